"""Whether who sends a delivery has the key, as Standard Webhooks has it (standardwebhooks.com); pure."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
AROUND = timedelta(minutes=5)
"""How far a delivery's time may be from ours, on either side."""
SHORTEST_KEY = 24
_VERSION = "v1"
_ENCODED = "whsec_"
_LONGEST_ID = 256


class DeliveryRefused(ValueError):
    """It is not from who has the key, or not of now."""


def key_of(text: str) -> bytes:
    """The key in a file: as it is, or behind `whsec_` in base64.

    Raises:
        ValueError: it is none, or shorter than 24 bytes.
    """
    text = text.strip()
    encoded = text.startswith(_ENCODED)
    key = base64.b64decode(text.removeprefix(_ENCODED), validate=True) if encoded else text.encode()
    if len(key) < SHORTEST_KEY:
        raise ValueError(f"a key has at least {SHORTEST_KEY} bytes")
    return key


def delivery_of(key: bytes, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
    """The id of a delivery: the same one comes again under the same id.

    Raises:
        DeliveryRefused: a header is missing or none, no signature is the key's, or its time is not about now.
    """
    delivery, sent = headers.get(ID, ""), headers.get(TIMESTAMP, "")
    if not 0 < len(delivery) <= _LONGEST_ID or not delivery.isascii() or not delivery.isprintable():
        raise DeliveryRefused(ID)
    if not (sent.isascii() and sent.isdecimal() and len(sent) <= 11):
        raise DeliveryRefused(TIMESTAMP)
    signed = hmac.digest(key, f"{delivery}.{sent}.".encode() + body, hashlib.sha256)
    expected = f"{_VERSION},{base64.b64encode(signed).decode()}"
    if not any(hmac.compare_digest(expected.encode(), one.encode()) for one in headers.get(SIGNATURE, "").split()):
        raise DeliveryRefused(SIGNATURE)
    if abs(now - datetime.fromtimestamp(int(sent), UTC)) > AROUND:
        raise DeliveryRefused(TIMESTAMP)
    return delivery
