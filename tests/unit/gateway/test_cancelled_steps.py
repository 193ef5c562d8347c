"""The cancel of one step, at the gateway: what may be cancelled, and which event answers."""

import json

import pytest

from aetheris.gateway.core import answers
from aetheris.gateway.core.problems import ConflictProblem
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision
from tests.testkit import histories as h

GRAPH = h.planned(h.graph({"id": "a"}))
KEY = h.key_of("a")
ASKED = h.about(ev.ApprovalRequested, "a", args_hash="", tool_version="1", rule="r", form={"title": "a"})


def decided(decision: str) -> ev.Event:
    answer = Decision(decision)
    return h.about(ev.ApprovalDecided, "a", args_hash="", tool_version="1", rule="r", approver="bob", decision=answer)


def heard(event_type: str, caused_by: str = "other", **fields: str) -> answers.ObservedEvent:
    payload = json.dumps({"idempotency_key": KEY, "caused_by": caused_by} | fields).encode()
    headers = (("ce_id", b"1"), ("ce_type", f"io.aetheris.{event_type}.v1".encode()))
    return answers.observed_event(Record("t", 0, 0, 0, b"job-1", headers, payload))


@pytest.mark.parametrize("answer", [(), (decided("approve"),)], ids=["asked", "approved"])
def test_a_step_that_is_asked_about_or_approved_may_be_cancelled(answer: tuple[ev.Event, ...]) -> None:
    job = h.fold(GRAPH, ASKED, *answer)
    assert answers.key_to_call_off(job, execution_id(h.JOB, "a", KEY)) == KEY


@pytest.mark.parametrize("decision", ["reject", "edit"])
def test_a_step_that_was_answered_otherwise_is_about_to_end(decision: str) -> None:
    job = h.fold(GRAPH, ASKED, decided(decision))
    with pytest.raises(ConflictProblem, match="about to end"):
        answers.key_to_call_off(job, execution_id(h.JOB, "a", KEY))


GOES_ON = {
    "started": heard("tool_invocation_started"),
    "reopened": heard("invocation_reopened"),
    "not executed": heard("tool_invocation_finished", outcome="retryable_failure"),
}


@pytest.mark.parametrize("meanwhile", GOES_ON.values(), ids=GOES_ON)
def test_what_would_have_ended_a_step_that_went_on_first_answers_nothing(meanwhile: answers.ObservedEvent) -> None:
    """It is void: the request to try no more is what counts."""
    cancelled = answers.StepCancelled(KEY)
    assert not cancelled.settles("c1", meanwhile)
    assert not cancelled.settles("c1", heard("invocation_rejected", "c1"))
    assert not cancelled.settles("c1", heard("tool_invocation_finished", "c1", outcome="permanent_failure"))
    assert cancelled.settles("c1", heard("invocation_cancel_requested", "c1"))


@pytest.mark.parametrize("event_type", ["invocation_rejected", "tool_invocation_finished"])
def test_the_end_of_what_waited_answers(event_type: str) -> None:
    assert answers.StepCancelled(KEY).settles("c1", heard(event_type, "c1"))


def test_a_request_of_somebody_else_stands_and_another_end_refuses() -> None:
    cancelled = answers.StepCancelled(KEY)
    assert not cancelled.settles("c1", heard("approval_decided"))
    assert cancelled.settles("c1", heard("invocation_cancel_requested"))
    with pytest.raises(ConflictProblem, match="tool_invocation_finished first"):
        cancelled.settles("c1", heard("tool_invocation_finished", outcome="success"))


def test_what_concerns_another_step_says_nothing() -> None:
    other = heard("tool_invocation_finished", "c1", idempotency_key="k2", outcome="success")
    assert not answers.StepCancelled(KEY).settles("c1", other)
