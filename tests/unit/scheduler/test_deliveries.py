"""Who sends a delivery has the key, and sends it now; the vector is that of Standard Webhooks' own documentation."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aetheris.scheduler.core.deliveries import DeliveryRefused, delivery_of, key_of

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105  published
BODY = b'{"test": 2432232314}'
SENT = datetime.fromtimestamp(1614265330, UTC)
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def read(body: bytes = BODY, key: str = SECRET, now: datetime = SENT, **headers: Any) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return delivery_of(key_of(key), {**HEADERS, **named}, body, now)


def test_what_is_signed_is_taken_within_five_minutes_and_one_of_several_signatures_is_enough() -> None:
    assert read() == HEADERS["webhook-id"]
    assert read(now=SENT + timedelta(minutes=5)) == read(now=SENT - timedelta(minutes=5)) == HEADERS["webhook-id"]
    others = f"v1,AAAA v1a,x {HEADERS['webhook-signature']} \xff"
    assert read(webhook_signature=others) == HEADERS["webhook-id"]


@pytest.mark.parametrize(
    "lie",
    [
        {"body": BODY + b" "},
        {"key": "a key of somebody else's, long"},
        {"now": SENT + timedelta(minutes=5, seconds=1)},
        {"now": SENT - timedelta(minutes=5, seconds=1)},
        {"webhook_id": "msg_other"},
        {"webhook_id": ""},
        {"webhook_id": "x" * 257},
        {"webhook_id": "a\nb"},
        {"webhook_timestamp": "1614265331"},
        {"webhook_timestamp": ""},
        {"webhook_timestamp": "-1"},
        {"webhook_timestamp": "9" * 400},
        {"webhook_timestamp": "99999999999"},
        {"webhook_timestamp": "١٦١٤٢٦٥٣٣٠"},
        {"webhook_signature": ""},
        {"webhook_signature": HEADERS["webhook-signature"].removeprefix("v1,")},
        {"webhook_signature": HEADERS["webhook-signature"].replace("v1,", "v2,")},
        {"webhook_signature": HEADERS["webhook-signature"] + "A"},
    ],
)
def test_a_lie_is_refused(lie: dict[str, Any]) -> None:
    with pytest.raises(DeliveryRefused):
        read(**lie)


@pytest.mark.parametrize("text", ["", "short", "whsec_c2hvcnQ=", "whsec_not base64, though it is long enough"])
def test_what_is_no_key_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"24 bytes|base64|[Ii]ncorrect|character"):
        key_of(text)
