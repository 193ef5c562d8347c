"""What a person fills in that is hidden: where it may be referred to from, and what is no such answer."""

import hashlib
from typing import Any

import pytest

from aetheris.protocol.base import recordable
from aetheris.protocol.base.hidden_values import HiddenPlace, HiddenValue
from aetheris.protocol.base.keys import idempotency_key
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.forms import AnswerRefused, FormField, answers
from aetheris.protocol.planning.invocation import has_hidden, invocation
from tests.testkit import histories as h

VALUE = HiddenValue("0" * 64, "1" * 64, "2" * 32)
FIELDS = [
    {"name": "to", "type": "text", "label": "l", "required": True, "personal": "/who"},
    {"name": "n", "type": "text", "label": "n"},
]
ASKS = {"id": "f", "kind": "human", "tool": None, "args": {"who": "ann"}, "form": {"title": "t", "fields": FIELDS}}


def answered(payload: Any, target: str = "f#/to") -> JobState:
    """A job whose form was answered so, and whose call refers to something of it."""
    takes = {"id": "a", "tool": "mail", "args": {"who": "ann", "to": {"$ref": target}}}
    key = idempotency_key(h.JOB, "f", "human", {"who": "ann"})
    result, data = recordable.result(payload)
    about: dict[str, Any] = {"job_id": h.JOB, "wait_type": "human", "node_id": "f", "idempotency_key": key}
    ended = ev.WaitCompleted(**about, payload=result, output_hash=hashlib.sha256(data).hexdigest(), by="ann")
    plan = h.planned(h.graph(ASKS, takes, mail={"effect_class": "opaque"}))
    return h.fold(plan, ev.JobWaiting(**about, form={"id": "r", "fields": []}), ended)


def hidden_of(job: JobState) -> tuple[HiddenPlace, ...]:
    entry = job.entry("a")
    assert entry is not None
    return invocation(job, entry).hidden


def test_a_hidden_answer_is_given_to_the_call_that_refers_to_it() -> None:
    job = answered({"to": VALUE.json(), "n": "x"})
    assert hidden_of(job) == (HiddenPlace("/to", VALUE),)
    assert (has_hidden(job, "a"), has_hidden(job, "f")) == (True, False)


def test_what_is_filled_in_in_the_clear_is_no_hidden_value() -> None:
    job = answered({"to": VALUE.json(), "n": "x"}, "f#/n")
    assert (hidden_of(job), has_hidden(job, "a")) == ((), False)
    assert hidden_of(answered({"to": "ann@x"})) == ()  # the executor refuses the call: its argument is personal


@pytest.mark.parametrize(
    ("payload", "target"),
    [
        ({"to": {"$hidden": 1}}, "f#/to"),
        ({"to": {"$hidden": {"c": "", "d": "", "k": ""}}}, "f#/to"),
        ({"to": VALUE.json()}, "f#"),
        ({"to": VALUE.json()}, "f#/to/$hidden"),
        ({"to": VALUE.json(), "n": VALUE.json()}, "f#/n"),
    ],
)
def test_nothing_else_that_says_hidden_can_be_referred_to(payload: Any, target: str) -> None:
    job = answered(payload, target)
    if target == "f#/to/$hidden":
        assert hidden_of(job) == ()
        return
    with pytest.raises(UnresolvedReference):
        hidden_of(job)


def test_an_answer_is_checked_in_the_clear_and_recorded_hidden() -> None:
    fields = [FormField.model_validate(one) for one in FIELDS]
    assert answers(fields, {"to": "ann@x"}) == {"to": "ann@x"}
    assert answers(fields, {"to": VALUE.json()}, hidden=True) == {"to": VALUE.json()}
    for data, hidden in (
        ({"to": VALUE.json()}, False),
        ({"to": "ann@x"}, True),
        ({"to": {"$hidden": {}}}, True),
        ({"to": [VALUE.json()]}, True),
        ({"to": VALUE.json(), "n": VALUE.json()}, True),
        ({}, True),
    ):
        with pytest.raises(AnswerRefused):
            answers(fields, data, hidden=hidden)


def test_what_a_signal_says_hidden_is_given_to_the_call_that_refers_to_it() -> None:
    waits = {"id": "w", "kind": "wait", "tool": None, "wait": {"key": "p", "personal": {"/iban": "/who"}}}
    takes = {"id": "a", "tool": "mail", "args": {"who": "ann", "to": {"$ref": "w#/iban"}}}
    payload = {"who": "ann", "iban": VALUE.json()}
    result, data = recordable.result(payload)
    about: dict[str, Any] = {"job_id": h.JOB, "wait_type": "signal", "node_id": "w", "correlation_key": "p"}
    about["idempotency_key"] = idempotency_key(h.JOB, "w", "wait", {})
    ended = ev.WaitCompleted(**about, payload=result, output_hash=hashlib.sha256(data).hexdigest())
    job = h.fold(h.planned(h.graph(waits, takes, mail={"effect_class": "opaque"})), ev.JobWaiting(**about), ended)
    assert hidden_of(job) == (HiddenPlace("/to", VALUE),)
    assert (has_hidden(job, "a"), has_hidden(job, "w")) == (True, False)
