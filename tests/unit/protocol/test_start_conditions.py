"""Each condition of a start, alone: whatever else is right, this one thing makes it void."""

from typing import Any

import pytest

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.fold.revisions import may_compensate
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import After, Decision, RejectReason
from tests.testkit.histories import JOB, about, finished, fold, graph, key_of, planned, started

PLAN = planned(graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}))
IRREVERSIBLE = planned(graph({"id": "a"}, {"id": "b"}, act={"irreversible": True}))


def allowed(node: str) -> Any:
    return about(ev.PolicyAllowed, node, args_hash=args_hash(None), tool_version="1", rule="r")


def approved(node: str) -> Any:
    body: dict[str, Any] = {"args_hash": args_hash(None), "tool_version": "1", "rule": "r", "approver": "eve"}
    return about(ev.ApprovalDecided, node, decision=Decision.APPROVE, **body)


def asked(node: str, **changes: Any) -> Any:
    body: dict[str, Any] = {"args_hash": args_hash(None), "tool_version": "1", "rule": "r", "form": {}}
    return about(ev.ApprovalRequested, node, **body | changes)


def starts(job: JobState, event: ev.ToolInvocationStarted) -> bool:
    return start_is_void(job, event) is None


@pytest.mark.parametrize("wrong", [{"attempt_id": 1}, {"external_key": "another"}])
def test_both_the_attempt_and_the_external_key_follow_from_the_fold(wrong: dict[str, Any]) -> None:
    assert starts(fold(PLAN), started("a", "n1"))
    assert not starts(fold(PLAN), started("a", "n1").model_copy(update=wrong))


@pytest.mark.parametrize("wrong", [{"args_hash": "another"}, {"tool_version": "2"}])
def test_a_yes_is_for_these_arguments_and_this_version(wrong: dict[str, Any]) -> None:
    job = fold(IRREVERSIBLE, approved("a"))
    assert starts(job, started("a", "n1"))
    assert not starts(job, started("a", "n1").model_copy(update=wrong))


@pytest.mark.parametrize("plan", [PLAN, IRREVERSIBLE], ids=["reversible", "irreversible"])
def test_nothing_starts_behind_a_question_but_by_a_yes_to_just_this(plan: Any) -> None:
    """Grants are not signed: whoever wrote one, and whatever the policy said before or has said since."""
    for word in ((), (allowed("a"),)):
        assert not starts(fold(plan, *word, asked("a")), started("a", "n1"))
        assert not starts(fold(plan, asked("a"), *word), started("a", "n1"))
    job = fold(plan, asked("a"), approved("a"))
    assert starts(job, started("a", "n1"))
    assert not starts(job, started("a", "n1").model_copy(update={"tool_version": "2"}))
    assert not starts(job, started("a", "n1").model_copy(update={"args_hash": "another"}))
    assert starts(fold(plan, asked("b"), allowed("a")), started("a", "n1")), "what is asked is about another call"


def test_a_yes_that_comes_later_brings_no_start_to_life_that_lies_before_it() -> None:
    job = fold(PLAN, asked("a"), started("a", "n1"), approved("a"), started("a", "n1"))
    assert job.keys[key_of("a")].invocations == {}
    assert starts(job, started("a", "n2"))


@pytest.mark.parametrize("outcome", ["retryable_failure", None], ids=["another try", "in doubt"])
def test_what_has_started_is_asked_about_no_more(outcome: str | None) -> None:
    """By a ledger that had not read so: nobody is shown the question, so that nobody could answer it."""
    job = fold(PLAN, started("a", "n1"), asked("a"))
    assert job.keys[key_of("a")].requested is None
    again = about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="policy")
    end = again if outcome is None else finished("a", "n1", outcome)
    job = fold(PLAN, started("a", "n1"), end, asked("a"))
    attempt = 0 if outcome is None else 1
    assert starts(job, started("a", "n2", token=2, attempt=attempt))


def test_nobody_waits_for_the_answer_to_a_question_that_asks_nobody() -> None:
    """It lies behind the start that it would have held up, and so does the wait that came with it."""
    waits = ev.JobWaiting(job_id=JOB, wait_type="approval", node_id="a", correlation_key="q")
    assert fold(PLAN, started("a", "n1"), asked("a"), waits).open_waits == {}
    assert fold(PLAN, waits).open_waits == {}
    assert list(fold(PLAN, asked("a"), waits).open_waits) == [("approval", "a")]


def test_what_is_over_is_asked_about_no_more() -> None:
    job = fold(PLAN, about(ev.InvocationRejected, "a", reason=RejectReason.BUDGET), asked("a"))
    assert job.keys[key_of("a")].requested is None


def test_a_retry_by_hand_is_asked_about_before_it_starts_and_not_behind_that() -> None:
    by_hand = about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="human")
    again = about(ev.InvocationReopened, "a", invocation_id="n2", next_token=3, by="policy")
    yes = approved("a").model_copy(update={"token": 2})
    parked = about(ev.InvocationParked, "a", invocation_id="n1", reason="r")
    retried = (PLAN, asked("a"), approved("a"), started("a", "n1"), parked, by_hand)
    second = started("a", "n2", token=2)
    assert not starts(fold(*retried, asked("a", token=2)), second)
    assert starts(fold(*retried, asked("a", token=2), yes), second)
    job = fold(*retried, yes, second, again, asked("a", token=2))
    assert job.keys[key_of("a")].requested is None


def test_what_is_built_on_is_the_try_that_settled() -> None:
    again = about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="policy")
    job = fold(PLAN, started("a", "n1"), again, started("a", "n2", token=2), finished("a", "n1", result=1))
    assert starts(job, started("b", "n3", after=[After(invocation_id="n1", result_hash=digest(1))]))
    assert not starts(job, started("b", "n3", after=[After(invocation_id="n2", result_hash=digest(1))]))


def test_an_equal_irreversible_call_that_failed_surely_is_in_nobodys_way() -> None:
    begun = (IRREVERSIBLE, allowed("a"), allowed("b"), started("a", "n1"))
    assert starts(fold(*begun, finished("a", "n1", "permanent_failure")), started("b", "n2"))
    unsure = about(ev.InvocationParked, "a", invocation_id="n1", reason="r")
    assert not starts(fold(*begun, unsure, finished("a", "n1", "permanent_failure", via="human")), started("b", "n2"))


def test_another_key_of_the_node_that_failed_surely_keeps_it() -> None:
    """Only a rejection gives a node back: an edited call is rejected before the edited one starts."""
    failed = fold(PLAN, started("a", "n1"), finished("a", "n1", "permanent_failure"))
    assert not starts(failed, started("a", "n2", args={"x": 1}))


def test_another_key_of_the_node_that_never_started_does_not() -> None:
    assert starts(fold(PLAN, allowed("a")), started("a", "n1", args={"x": 1}))


def test_a_node_that_no_plan_has_never_starts() -> None:
    assert not starts(fold(PLAN), started("z", "n1"))


def test_a_revision_that_did_not_have_the_node_can_not_be_named() -> None:
    job = fold(PLAN, planned(graph({"id": "c"}), revision=1))
    assert starts(job, started("c", "n1", revision=1))
    assert not starts(job, started("c", "n1", revision=0))


def test_a_revision_that_had_another_version_of_the_tool_can_not_be_named() -> None:
    job = fold(PLAN, planned(graph({"id": "a"}, act={"version": "2"}), revision=1))
    assert not starts(job, started("a", "n1", revision=0))


def test_what_it_builds_on_excuses_nothing_else() -> None:
    after = [After(invocation_id="n1", result_hash=digest(1))]
    done = (PLAN, started("a", "n1"), finished("a", "n1", result=1))
    assert starts(fold(*done), started("b", "n2", after=after))
    stop = ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0)
    assert not starts(fold(*done, stop), started("b", "n2", after=after))


def test_a_revision_that_came_between_a_cancel_and_its_stop_is_stopped_too() -> None:
    stop = ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0)
    job = fold(PLAN, planned(graph({"id": "c"}), revision=1), stop)
    assert not starts(job, started("c", "n1", revision=1))


def test_nothing_is_undone_behind_the_end() -> None:
    stop = ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0)
    job = fold(PLAN, stop)
    assert may_compensate(job)
    job.terminal = ev.JobFailed(job_id=JOB, error="e")
    assert not may_compensate(job)


def test_a_key_asks_only_until_it_is_answered_or_over() -> None:
    asked = about(ev.ApprovalRequested, "a", args_hash="h", tool_version="1", rule="r", form={})
    job = fold(IRREVERSIBLE, asked)
    assert job.keys[key_of("a")].is_asking
    over = about(ev.InvocationRejected, "a", reason=RejectReason.CANCELLED)
    assert not fold(IRREVERSIBLE, asked, over).keys[key_of("a")].is_asking
    assert not fold(IRREVERSIBLE, allowed("a")).keys[key_of("a")].is_asking
