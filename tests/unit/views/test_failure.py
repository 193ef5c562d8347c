"""Why a job failed, in words: the step, the call, what was said of it, what is left behind, what can be done."""

from typing import Any

import pytest

from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import DuplicateOf, Outcome, RejectReason, Via
from aetheris.protocol.messages.events import Event
from aetheris.views.failure import failure_in_words
from aetheris.views.standing import job_view
from tests.testkit import histories as h

PLAN = h.graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}, act={"effect_class": "probeable"})
START = h.started("a", "n1")
PARKED = h.about(ev.InvocationParked, "a", invocation_id="n1", reason="nobody knows")
OTHER = DuplicateOf(job_id="job-0", node_id="pay", execution_id="x")
GO_ON = "To go on with what is left: aetheris continue job-1 [--plan FILE]"
LOOK = (
    "Look outside for aetheris:job-1:a:0, and say what you found: "
    "aetheris continue job-1 --settle a=happened|not_executed --evidence TEXT"
)


def ended(error: str, node_id: str | None = "a", **more: Any) -> ev.JobFailed:
    return ev.JobFailed(job_id=h.JOB, error=error, node_id=node_id, **more)


def failed(error: str, via: Via = Via.EXECUTOR, invocation_id: str = "n1", **more: Any) -> ev.ToolInvocationFinished:
    event = h.finished("a", invocation_id, outcome=Outcome.PERMANENT, via=via)
    return event.model_copy(update={"error": error, **more})


def rejected(reason: RejectReason, **more: Any) -> ev.InvocationRejected:
    return h.about(ev.InvocationRejected, "a", reason=reason, **more)


def words(*events: Event) -> str | None:
    return failure_in_words(h.fold(h.planned(PLAN), *events))


def no(comment: str | None) -> tuple[Event, ...]:
    fields: dict[str, Any] = {"args_hash": "h", "tool_version": "1", "rule": "r"}
    asked = h.about(ev.ApprovalRequested, "a", form={}, **fields)
    decided = h.about(ev.ApprovalDecided, "a", decision="reject", approver="bob", comment=comment, **fields)
    return asked, decided, rejected(RejectReason.APPROVAL, detail="a human said no")


CALL = "act, aetheris:job-1:a:0"
AGAIN = (START, h.finished("a", "n1", outcome=Outcome.RETRYABLE), h.started("a", "n2", token=2, attempt=1))


@pytest.mark.parametrize(
    ("events", "error", "text"),
    [
        ((START, failed("no money")), "no money", f"a failed: {CALL} said: no money; it took no effect. {GO_ON}"),
        (
            (*AGAIN, failed("no money", invocation_id="n2")),
            "no money",
            f"a failed: act, aetheris:job-1:a:1, try 2 said: no money; it took no effect. {GO_ON}",
        ),
        (
            (START, failed("too often", Via.LEDGER)),
            "too often",
            f"a ({CALL}) was given up: too often; whether a took effect is not known. {LOOK}",
        ),
        (
            (START, PARKED, failed("not executed", Via.HUMAN)),
            "not executed",
            f"a ({CALL}) was not executed, as a human found out; it took no effect. {GO_ON}",
        ),
        (
            (START, PARKED, failed("cancelled", Via.HUMAN)),
            "cancelled",
            f"a ({CALL}) was cancelled by a human while it was in doubt; whether a took effect is not known. {LOOK}",
        ),
        (no("wrong account"), "approval", f"a (act) was rejected by bob: wrong account; it took no effect. {GO_ON}"),
        (no(None), "approval", f"a (act) was rejected by bob; it took no effect. {GO_ON}"),
        (
            (rejected(RejectReason.DUPLICATE_OF, duplicate_of=OTHER, detail="x"),),
            "duplicate_of",
            f"a (act) was refused, as it repeats another call (pay of job-0); it took no effect. {GO_ON}",
        ),
        (
            (rejected(RejectReason.BUDGET, detail="acts: 5 of 5"),),
            "budget",
            f"a (act) was refused, as the budget does not allow it: acts: 5 of 5; it took no effect. {GO_ON}",
        ),
    ],
)
def test_a_sentence_says_which_call_what_of_it_and_what_now(events: tuple[Event, ...], error: str, text: str) -> None:
    assert words(*events, ended(error)) == text


@pytest.mark.parametrize("reason", [reason for reason in RejectReason if reason is not RejectReason.APPROVAL])
def test_every_refusal_has_words_of_its_own(reason: RejectReason) -> None:
    text = words(rejected(reason), ended(reason.value))
    assert text is not None
    assert text.startswith("a (act) ")
    assert "_" not in text


def test_a_limit_or_a_failed_compensation_is_said_beside_the_step() -> None:
    limit = words(START, failed("no money"), ended("limit_failed_turns: 3 turns; a: no money"))
    assert limit is not None
    assert limit.startswith(f"limit_failed_turns: 3 turns; a: no money; a failed: {CALL} said: no money; ")
    undo = words(START, failed("no money"), ended("no money; its compensation a.undo failed: gone"))
    assert undo is not None
    assert "said: no money; its compensation a.undo failed: gone; it took no effect" in undo


def test_a_failure_of_no_step_is_said_as_it_was_recorded() -> None:
    assert words(ended("no_plan: the model gave none", None)) == f"no_plan: the model gave none. {GO_ON}"
    unresolved = words(ended("a.args/x: no such field"))
    assert unresolved == f"a failed: a.args/x: no such field. {GO_ON}"


def test_a_model_s_job_is_continued() -> None:
    created = h.created().model_copy(update={"goal": "pay them"})
    job = JobState(h.JOB, 0, created, terminal=ended("limit_turns: 3", None))
    assert (
        failure_in_words(job) == f"limit_turns: 3. To go on with what is left: aetheris continue {h.JOB} [--plan FILE]"
    )


def test_what_was_undone_and_what_was_done_in_part_are_named() -> None:
    second = h.finished("a", "n1", outcome=Outcome.COMPENSATABLE)
    assert words(START, second, ended("b: gone", "b")) == (
        "b failed: b: gone; a took effect in part. A job that ended so is not continued"
    )
    assert words(START, second, ended("b: gone", "b", compensated=("a",))) == (f"b failed: b: gone; undone: a. {GO_ON}")


def test_a_cancelled_job_says_by_whom_and_what_is_left() -> None:
    end = ev.JobCancelled(job_id=h.JOB, by="ann", reason="wrong month")
    assert words(end) == f"cancelled by ann: wrong month. {GO_ON}"
    both = (START, h.finished("a", "n1"), h.started("b", "n2"), h.finished("b", "n2"))
    assert words(*both, end) == "cancelled by ann: wrong month"
    assert words(START, end) == f"cancelled by ann: wrong month; whether a took effect is not known. {LOOK}"


def test_it_is_one_line_whatever_a_tool_says() -> None:
    text = words(START, failed("no\n\n  money\tleft"), ended("no\n\n  money\tleft"))
    assert text is not None
    assert f"{CALL} said: no money left;" in text


def test_it_is_what_a_job_shows_and_only_where_it_ended_so() -> None:
    done = (START, failed("no money"))
    assert job_view(h.fold(h.planned(PLAN), *done, ended("no money")), "")["why"] == words(*done, ended("no money"))
    assert words(*done) is None
    assert words(ev.JobCompleted(job_id=h.JOB)) is None
