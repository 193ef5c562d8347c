"""What is shown of a request is what it is about, or the page says that it is not."""

import json
from typing import Any

import pytest

from aetheris.console.core.exact_json import NotExact
from aetheris.console.core.shown_requests import shown_request
from aetheris.protocol.base.canonical import canonical
from tests.testkit.consoles import PAYOUT, StandInGateway


def asked(args: dict[str, Any] | None = None) -> dict[str, Any]:
    with StandInGateway() as gateway:
        return gateway.requests[gateway.ask(args=args)]


def shown(request: dict[str, Any]) -> Any:
    return shown_request(json.dumps(request).encode())


def test_the_arguments_of_a_request_are_bound_to_its_id() -> None:
    found = shown(asked())
    assert found.is_bound
    assert found.canonical == canonical(PAYOUT).decode()
    assert (found.is_open, found.is_form, found.can_be_edited) == (True, False, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one["request"]["context"]["arguments"].update(amount=1250),
        lambda one: one["request"]["context"]["arguments"].pop("to"),
        lambda one: one["request"]["context"].update(tool="bank.refund"),
        lambda one: one.update(node_id="other"),
        lambda one: one.update(job_id="job-2"),
        lambda one: one["asked_by"].update(args_hash="0" * 64),
        lambda one: one["request"].update(id=one["request"]["id"] + ":x"),
    ],
)
def test_other_arguments_than_the_request_s_own_are_seen(change: Any) -> None:
    request = asked()
    change(request)
    assert not shown(request).is_bound


def test_a_number_that_no_call_can_have_is_shown_by_its_digits_and_bound_to_nothing() -> None:
    raw = json.dumps(asked()).replace("12.5", "9007199254740993").encode()
    found = shown_request(raw)
    assert '"amount": 9007199254740993' in found.pretty
    assert not found.is_bound


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.update(status="approved"),
        lambda one: one.update(votes={"given": ["carol"], "needed": 2}),
        lambda one: one["request"]["context"]["arguments"].update(amount=12.50001),
        lambda one: one["request"].update(expires_at=None),
        lambda one: one["asked_by"].update(rule="other"),
    ],
)
def test_what_a_decision_rests_on_is_in_what_was_seen(change: Any) -> None:
    request = asked()
    before = shown(request).seen
    assert shown(json.loads(json.dumps(request))).seen == before
    change(request)
    assert shown(request).seen != before


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"{", b'{"request": []}'])
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises((NotExact, ValueError)):
        shown_request(raw)
