"""What a body may plan, be told and end with, as its executor keeps to it: each rule by itself."""

from typing import Any

from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ToolGrant
from aetheris.protocol.messages.event_values import After, RejectReason
from aetheris.tool_executor.core.body_runs import BodyOutcome, RunningBody, Stop
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.tries import DeclaredInvocation, GrantRun
from tests.testkit.body_histories import (
    FLOW,
    PARENT,
    body,
    call,
    ended,
    fold_bodies,
    named,
    pair,
    reopened,
    take,
    words,
)
from tests.testkit.histories import JOB, about, key_of
from tests.testkit.tries import try_of, words_of

A, B, C = {"n": 1}, {"n": 2}, {"n": 3}


def running(name: str, *expected: str) -> RunningBody:
    """A body that has just begun."""
    text = dict.fromkeys(("plan_hash", "idempotency_key", "lease_id"), "x")
    numbers = dict.fromkeys(("birth", "as_of", "revision", "token", "deadline_s"), 1)
    grant = ToolGrant.model_validate({"job_id": JOB, "nodes": (PARENT,)} | text | numbers)
    made: Any = None
    run = GrantRun(ReceivedGrant(grant, "cause", 0))
    return RunningBody(
        DeclaredInvocation(run, body(name), made, words_of(name), call_words=words(name)), expected, None
    )


def node(args: dict[str, Any]) -> dict[str, Any]:
    return {"id": named(args), "kind": "tool", "tool": "act", "args": args}


def begun(*events: Any) -> JobState:
    return fold_bodies(FLOW, body("b1"), *events)


def test_what_is_new_waits_until_all_that_is_recorded_was_asked_for() -> None:
    job = begun(*pair(A), reopened("b1"), body("b2", token=2))
    run = running("b2", named(A))
    run.asks(job, node(B))
    assert run.due() == []
    run.asks(job, node(A))
    assert [one.id for one in run.due()] == [named(B)]
    assert run.due() == []


def test_who_waits_or_ends_before_that_has_diverged() -> None:
    job = begun(*pair(A), reopened("b1"), body("b2", token=2))
    waits, ends = running("b2", named(A)), running("b2", named(A))
    waits.asks(job, node(B))
    waits.idles([named(B)])
    ends.ends(BodyOutcome(result=1))
    assert waits.over is not None
    assert ends.over is not None
    assert (waits.over.stop, ends.over.stop) == (Stop.DIVERGED, Stop.DIVERGED)
    assert (waits.over.evidence or {})["unasked"] == [named(A)]


def test_a_call_is_built_on_all_that_the_body_was_told_before_the_log() -> None:
    job, run = begun(*pair(A)), running("b1")
    run.asks(job, node(A))
    run.idles([named(A)])
    told = After(invocation_id=try_of("t1"), result_hash="r")
    run.told_early(named(A), told)
    run.asks(job, node(B))
    (planned,) = [run.planned(job, one) for one in run.due()]
    assert planned.after == (told,)


def test_it_is_told_before_the_log_only_of_the_one_thing_that_it_waits_for() -> None:
    run = running("b1")
    run.idles([named(A), named(B)])
    assert not run.may_be_told_early(named(A))
    run.idles([named(A)])
    assert run.may_be_told_early(named(A))
    assert not run.may_be_told_early(named(B))


def test_a_body_that_was_told_what_the_log_does_not_say_begins_anew() -> None:
    job, run = begun(*pair(A)), running("b1")
    run.idles([named(A)])
    run.told_early(named(A), After(invocation_id=try_of("t1"), result_hash="another"))
    run.ends(BodyOutcome(result=1))
    assert not run.may_report(job)
    take(job, ended("t1", A))
    assert not run.settled(named(A), job.keys[key_of(named(A), A)])
    assert run.over is not None
    assert run.over.stop is Stop.LOST


def test_it_does_not_end_while_a_call_of_it_is_under_way() -> None:
    job, run = begun(*pair(A)), running("b1")
    run.asks(job, node(A))
    run.ends(BodyOutcome(result=1))
    assert not run.may_report(job)
    take(job, ended("t1", A))
    assert run.may_report(job)


def test_a_copy_of_its_record_says_nothing_of_it() -> None:
    job, run = begun(), running("b1")
    run.asks(job, node(C))
    (planned,) = [run.planned(job, one) for one in run.due()]
    run.read_back(job, planned, counts=True)
    run.read_back(job, planned, counts=False)
    assert run.over is None


def test_a_record_of_it_that_is_void_ends_it() -> None:
    job, run = begun(), running("b1")
    run.asks(job, node(C))
    (planned,) = [run.planned(job, one) for one in run.due()]
    run.read_back(job, planned, counts=False)
    assert run.over is not None
    assert (run.over.error, run.over.stop) == (f"CallRefused: {named(C)}", None)


def test_what_was_refused_before_it_was_planned_anew_is_told_as_recorded() -> None:
    """A person has said no while this body's record was on its way: nothing is wrong with its code."""
    refused = about(ev.InvocationRejected, named(A), args=A, reason=RejectReason.APPROVAL)
    for first, over in ((C, None), (A, BodyOutcome(stop=Stop.LOST))):
        job = begun(call("b1", A), reopened("b1"), body("b2", token=2))
        run = running("b2")
        for args in dict.fromkeys(map(named, (first, A))):
            run.asks(job, node(A if args == named(A) else C))
        planned = [run.planned(job, one) for one in run.due()]
        assert take(job, refused)
        for one in planned:
            run.read_back(job, one, counts=take(job, one))
        assert run.over == over  # a first record says that all was asked for: where it is void, who says so begins anew
