"""What the executor's core takes up, drops, declares and lets run."""

import json
from typing import Any

import pytest

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.sealed import SealedNames
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import BlobRef, Decision, Outcome
from aetheris.sdk.outcomes import StateChange, Succeeded
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.partition import Drop, LoadResults
from aetheris.tool_executor.core.tries import CallRefusal, DeclaredInvocation, NodeReport
from tests.testkit.executor_cores import CoreBench, bench
from tests.testkit.histories import JOB, about, adopts, created, finished, graph, key_of, planned, sealed, started
from tests.testkit.tries import secret_of

REF = {"x": {"$ref": "a#/v"}}


def succeed(invocation: DeclaredInvocation, result: Any = None) -> ev.ToolInvocationFinished:
    node = invocation.started.node_id
    return finished(node, invocation.invocation_id, result=result, args=dict(invocation.call.args))


def run_on(made: CoreBench, invocation: DeclaredInvocation, result: Any) -> DeclaredInvocation | LoadResults | None:
    """As the edge does: keep the result, ask for the next, claim it."""
    invocation.run.reports[invocation.started.node_id] = NodeReport(invocation.invocation_id, digest(result), result)
    following = made.core.follow(invocation.run, secret_of(f"f{invocation.invocation_id}"))
    if isinstance(following, DeclaredInvocation):
        made.core.claim(following)
    return following


def test_a_grant_is_declared_with_what_the_fold_says() -> None:
    invocation = bench().declared("a")
    event = invocation.started
    assert (event.token, event.attempt_id, event.external_key) == (1, 0, f"aetheris:{JOB}:a:0")
    assert (event.worker_id, event.incarnation, event.caused_by, event.after) == ("w-1", "i-1", "cause-1", ())


def test_its_own_record_lets_it_run() -> None:
    made = bench()
    invocation = made.declared("a")
    reported = made.log(invocation.started)
    assert reported.won
    assert reported.invocation is invocation


def test_the_second_of_two_started_is_told_that_it_lost() -> None:
    made = bench()
    invocation = made.declared("a")
    made.log(started("a", "other"))
    assert not made.log(invocation.started).won


def test_a_repeated_record_runs_nothing_twice() -> None:
    made = bench()
    invocation = made.declared("a")
    assert made.log(invocation.started).won
    assert made.log(invocation.started) is None


def test_what_won_is_not_ours_any_more_after_a_reopen() -> None:
    made = bench()
    invocation = made.declared("a")
    made.log(
        invocation.started,
        about(ev.InvocationReopened, "a", invocation_id=invocation.invocation_id, next_token=2, by="policy"),
    )
    assert made.core.why_not(invocation) == "superseded before the call"


def test_what_won_does_not_run_where_something_unreadable_was_read() -> None:
    made = bench()
    invocation = made.declared("a")
    made.core.needs_upgrade(JOB, 9)
    assert made.log(invocation.started).won
    assert made.core.why_not(invocation) == "the job waits for a newer version"


def test_a_grant_waits_for_its_as_of() -> None:
    made = bench()
    made.core.receive(made.grant("a", as_of=made.offset + 2))
    assert not made.core.is_due()
    made.log(about(ev.RetryScheduled, "a", invocation_id="n1", attempt=1, due_at="t"))
    assert not made.core.is_due()
    made.core.pass_over(made.offset + 1)
    assert made.core.is_due()


def test_a_job_with_many_grants_does_not_hold_up_another() -> None:
    made = bench()
    grants = [ReceivedGrant(made.grant("a", job_id=job_id).grant, "cause", at) for at, job_id in enumerate("xxxxxyxz")]
    for taken in grants[:6]:
        made.core.receive(taken)
    order: list[str] = []
    for late in (grants[6], grants[7], *[None] * 6):
        assert made.core.is_due()
        taken = made.core.next_grant()
        assert taken is not None
        order.append(f"{taken.grant.job_id}{taken.offset}")
        if late is not None:
            made.core.receive(late)
    assert not made.core.is_due()
    assert order == ["x0", "y5", "x1", "z7", "x2", "x3", "x4", "x6"]


def test_a_job_not_known_from_its_birth_is_not_judged() -> None:
    assert isinstance(bench().judge("a", birth=5), Drop)
    assert isinstance(CoreBench().judge("a"), Drop)


def test_another_revision_plan_or_token_is_dropped() -> None:
    made = bench()
    for other in ({"revision": 1}, {"plan_hash": "x"}, {"token": 2}, {"key": "0" * 64}):
        assert isinstance(made.judge("a", **other), Drop), other


def test_a_started_or_settled_key_is_dropped() -> None:
    made = bench()
    made.log(started("a", "n"))
    assert isinstance(made.judge("a"), Drop)
    made.log(finished("a", "n"))
    assert isinstance(made.judge("a"), Drop)


def test_a_grant_that_comes_twice_is_declared_once() -> None:
    made = bench()
    made.declared("a")
    assert isinstance(made.judge("a"), Drop)


def test_a_stopping_ended_or_newer_job_is_dropped() -> None:
    stop = ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0)
    for last in (stop, ev.JobFailed(job_id=JOB, error="e")):
        made = bench()
        made.log(last)
        assert isinstance(made.judge("a"), Drop)
    made = bench()
    made.core.needs_upgrade(JOB, 9)
    assert isinstance(made.judge("a", as_of=0), Drop)


def test_irreversible_without_leave_is_dropped() -> None:
    made = bench({"id": "a"}, act={"irreversible": True})
    assert isinstance(made.judge("a"), Drop)
    made.log(about(ev.PolicyAllowed, "a", args_hash="h", tool_version="1", rule="r"))
    assert isinstance(made.judge("a"), DeclaredInvocation)


def asked(node: str) -> ev.ApprovalRequested:
    return about(ev.ApprovalRequested, node, args_hash=args_hash(None), tool_version="1", rule="r", form={})


def approved(node: str) -> ev.ApprovalDecided:
    body: dict[str, Any] = {"args_hash": args_hash(None), "tool_version": "1", "rule": "r", "approver": "eve"}
    return about(ev.ApprovalDecided, node, decision=Decision.APPROVE, **body)


def test_what_a_human_is_asked_about_is_dropped_whoever_granted_it() -> None:
    made = bench()
    made.log(asked("a"))
    assert isinstance(made.judge("a"), Drop)
    made.log(approved("a"))
    assert isinstance(made.judge("a"), DeclaredInvocation)


def test_what_was_declared_before_the_question_was_read_does_not_run_behind_it() -> None:
    made = bench()
    declared = made.declared("a")
    assert not made.log(asked("a"), declared.started).won


def test_a_run_ends_before_what_a_human_is_asked_about() -> None:
    made = bench({"id": "a"}, {"id": "b"})
    first = made.declared("a", "b")
    made.log(first.started, asked("b"))
    assert run_on(made, first, None) is None
    made = bench({"id": "a"}, {"id": "b"})
    first = made.declared("a", "b")
    made.log(first.started)
    second = run_on(made, first, None)
    assert isinstance(second, DeclaredInvocation)
    assert not made.log(asked("b"), succeed(first), second.started).won


def test_after_a_sure_failure_the_external_key_changes_and_after_a_reopen_it_stays() -> None:
    made = bench()
    made.log(started("a", "n"), finished("a", "n", "retryable_failure"))
    assert made.declared("a", token=2).started.external_key.endswith(":1")
    made = bench()
    made.log(started("a", "n"), about(ev.InvocationReopened, "a", invocation_id="n", next_token=2, by="policy"))
    assert made.declared("a", token=2).started.external_key.endswith(":0")


def test_a_refused_call_is_never_declared_as_one_to_run() -> None:
    made = bench()
    made.refusal = refusal = CallRefusal(Outcome.RETRYABLE, "NotExecuted: tool version missing")
    invocation = made.declared("a")
    assert invocation.refusal is refusal
    assert made.log(invocation.started) is None
    assert made.log(reports.refused(invocation, refusal)) is None
    assert made.core.jobs[JOB].keys[key_of("a")].external_attempt == 2


def test_a_call_that_another_may_serve_is_passed_over_and_nothing_is_recorded() -> None:
    made = bench()
    made.refusal = CallRefusal(Outcome.RETRYABLE, "NotExecuted: tool version missing", is_missing=True)
    assert made.judge("a") == Drop("NotExecuted: tool version missing")
    made.refusal = None
    assert isinstance(made.judge("a"), DeclaredInvocation), "it was not claimed"


def test_references_are_resolved_from_the_fold() -> None:
    made = bench({"id": "a"}, {"id": "b", "args": REF})
    assert isinstance(made.judge("b", key=key_of("b", {"x": 1})), Drop)
    made.log(started("a", "n"), finished("a", "n", result={"v": 1}))
    assert made.declared("b", key=key_of("b", {"x": 1})).call.args == {"x": 1}


def test_large_results_are_asked_for_first() -> None:
    made = bench({"id": "a"}, {"id": "b", "args": REF})
    ref = BlobRef(sha256="s", size=9)
    made.log(started("a", "n"), finished("a", "n").model_copy(update={"result_ref": ref, "result": None}))
    taken = made.grant("b", key=key_of("b", {"x": 1}))
    assert made.core.judge(taken, secret_of("n1")) == LoadResults((ref,))
    invocation = made.core.judge(taken, secret_of("n1"), {"s": {"v": 1}})
    assert isinstance(invocation, DeclaredInvocation)


@pytest.mark.parametrize("is_large", [False, True])
def test_what_an_earlier_job_gave_is_resolved_and_asked_for_like_its_own(is_large: bool) -> None:
    ref = BlobRef(sha256="s", size=9)
    plan = graph({"id": "b", "args": {"x": {"$ref": "job-0/a#/v"}}}, {"id": "c", "args": {"x": {"$ref": "job-0/z#"}}})
    made = CoreBench()
    made.log(adopts("a", {}, result={"v": 1}, ref=ref if is_large else None), planned(plan))
    assert made.core.jobs[JOB].entry("b") is None, "a plan that refers to what is not adopted is none"
    made = CoreBench()
    made.log(adopts("a", {}, result={"v": 1}, ref=ref if is_large else None))
    made.log(planned(graph({"id": "b", "args": {"x": {"$ref": "job-0/a#/v"}}})))
    taken = made.grant("b", key=key_of("b", {"x": 1}))
    if is_large:
        assert made.core.judge(taken, secret_of("n1")) == LoadResults((ref,))
    invocation = made.core.judge(taken, secret_of("n1"), {"s": {"v": 1}} if is_large else {})
    assert isinstance(invocation, DeclaredInvocation)
    assert (invocation.call.args, invocation.started.after) == ({"x": 1}, ())


def test_a_run_goes_on_with_results_that_are_not_in_the_log_yet() -> None:
    made = bench({"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c", "args": REF, "depends_on": ["b"]})
    first = made.declared("a", "b", "c", rules=("one", "two"))
    made.log(first.started)
    second = run_on(made, first, {"v": 1})
    assert isinstance(second, DeclaredInvocation)
    assert (first.started.rule, second.started.rule) == ("one", "two")
    assert [after.invocation_id for after in second.started.after] == [first.invocation_id]
    assert made.log(succeed(first, {"v": 1}), second.started).won
    third = run_on(made, second, None)
    assert isinstance(third, DeclaredInvocation)
    assert third.call.args == {"x": 1}
    assert [after.invocation_id for after in third.started.after] == [second.invocation_id, first.invocation_id]
    assert made.log(finished("b", second.invocation_id), third.started).won
    assert run_on(made, third, None) is None


def test_a_next_node_is_lost_where_the_log_has_another_result() -> None:
    made = bench({"id": "a"}, {"id": "b", "depends_on": ["a"]})
    first = made.declared("a", "b")
    made.log(first.started)
    second = run_on(made, first, {"v": 1})
    assert isinstance(second, DeclaredInvocation)
    assert not made.log(finished("a", first.invocation_id, result={"v": 2}), second.started).won


def test_a_stop_in_the_log_ends_a_run() -> None:
    made = bench({"id": "a"}, {"id": "b"})
    first = made.declared("a", "b")
    made.log(first.started, ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0))
    assert run_on(made, first, None) is None


def test_a_run_ends_before_what_is_touched_irreversible_refused_or_not_ready() -> None:
    def following(*nodes: dict[str, Any], history: tuple[ev.Event, ...] = (), **tools: dict[str, Any]) -> Any:
        made = bench({"id": "a"}, *nodes, **tools)
        first = made.declared("a", "b")
        made.log(first.started, *history)
        return run_on(made, first, None)

    b, reopened = {"id": "b"}, about(ev.InvocationReopened, "b", invocation_id="n", next_token=2, by="policy")
    assert isinstance(following(b), DeclaredInvocation)
    assert following(b, history=(started("b", "n"),)) is None
    assert following(b, history=(started("b", "n"), reopened)) is None
    assert following({"id": "b", "tool": "pay"}, act={}, pay={"irreversible": True}) is None
    assert following({"id": "b", "depends_on": ["c"]}, {"id": "c"}) is None
    made = bench({"id": "a"}, b)
    first = made.declared("a", "b")
    made.refusal = CallRefusal(Outcome.RETRYABLE, "no")
    assert run_on(made, first, None) is None


def test_what_is_withdrawn_never_runs() -> None:
    made = bench()
    invocation = made.declared("a")
    assert made.core.withdraw() == [invocation]
    assert made.log(invocation.started) is None


def test_the_low_water_is_the_oldest_open_grant_and_the_mark_the_oldest_birth() -> None:
    made = bench()
    assert ([creation_offset for _, creation_offset in made.core.live()], made.core.low_water()) == ([0], None)
    taken = made.grant("a")
    made.core.receive(taken)
    assert made.core.low_water() == 7
    made.core.discharge(taken)
    assert made.core.low_water() is None
    made.log(sealed())
    assert [*made.core.live()] == []


def test_a_report_carries_what_the_catch_up_repeats() -> None:
    invocation = bench().declared("a")
    outcome = Succeeded({"v": 1}, "ext-1", (StateChange("row", "1", "insert"),))
    drawn = reports.succeeded(invocation, outcome, digest({"v": 1}), {"v": 1})
    assert [event.event_type for event in drawn] == [
        "tool_invocation_finished",
        "command_committed",
        "state_changed",
    ]
    value = reports.effect_value([event.model_dump_json(exclude_none=True).encode() for event in drawn])
    assert ev.ToolInvocationFinished.model_validate_json(_part(value, "finished")) == drawn[0]
    assert ev.StateChanged.model_validate_json(_part(value, "changed")) == drawn[2]


def test_changes_beyond_what_a_group_holds_are_said_to_be_left_out() -> None:
    invocation = bench().declared("a")
    changes = tuple(StateChange("row", "x" * 1000, "insert") for _ in range(1000))
    changed = reports.succeeded(invocation, Succeeded(None, changes=changes), "h")[2]
    assert isinstance(changed, ev.StateChanged)
    assert len(changed.model_dump_json()) < 2 * recordable.MAX_CHANGES_BYTES
    assert changed.changes[-1].operation == "left_out"


def _part(value: bytes, name: str) -> bytes:
    return json.dumps(json.loads(value)[name]).encode()


def test_a_repeated_birth_after_the_seal_clears_no_try_of_before() -> None:
    made = bench()
    invocation = made.declared("a")
    made.log(sealed())
    made.log(created(), planned(graph({"id": "a"})))
    assert JOB not in made.core.jobs
    reported = made.log(invocation.started)
    assert reported is None or not reported.won


def test_what_follows_builds_on_a_result_that_only_this_process_knows() -> None:
    made = bench({"id": "a"}, {"id": "b", "args": REF})
    first = made.declared("a", "b")
    made.log(first.started)
    second = run_on(made, first, {"v": 7})
    assert isinstance(second, DeclaredInvocation)
    assert second.call.args == {"x": 7}


def test_a_run_asks_for_a_large_result_before_it_goes_on() -> None:
    made = bench({"id": "c"}, {"id": "a"}, {"id": "b", "args": {"x": {"$ref": "c#/v"}}})
    ref = BlobRef(sha256="s", size=9)
    made.log(started("c", "n"), finished("c", "n").model_copy(update={"result_ref": ref, "result": None}))
    first = made.declared("a", "b")
    made.log(first.started)
    assert run_on(made, first, None) == LoadResults((ref,))


def test_what_was_only_allowed_follows_and_what_is_no_call_or_of_an_ended_job_does_not() -> None:
    def following(node: dict[str, Any], *history: ev.Event) -> Any:
        made = bench({"id": "a"}, {"id": "b"} | node)
        first = made.declared("a", "b")
        made.log(first.started, *history)
        return run_on(made, first, None)

    allowed = about(ev.PolicyAllowed, "b", args_hash="h", tool_version="1", rule="r")
    assert isinstance(following({}, allowed), DeclaredInvocation)
    assert following({}, ev.JobFailed(job_id=JOB, error="e")) is None
    assert following({}, ev.JobPaused(job_id=JOB, by="ann", number=1)) is None
    assert following({"kind": "wait", "tool": None, "wait": {"key": "go"}}) is None


def test_a_grant_of_an_earlier_revision_is_dropped_though_the_plan_says_the_same() -> None:
    made = bench()
    made.log(planned(graph({"id": "a"}), 1))
    assert isinstance(made.judge("a", revision=0), Drop)
    assert isinstance(made.judge("a", revision=1), DeclaredInvocation)


def test_a_node_that_no_plan_has_is_dropped_behind_a_stop_too() -> None:
    made = bench()
    made.log(ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0))
    assert isinstance(made.judge("z"), Drop)


def test_a_job_that_was_not_seen_born_is_not_folded() -> None:
    made = CoreBench()
    made.log(started("a", "n"))
    assert not list(made.core.jobs)


def test_a_sealed_job_runs_nothing_and_is_not_held_up_by_a_birth_of_a_later_version() -> None:
    made = bench()
    invocation = made.declared("a")
    made.log(invocation.started, sealed())
    assert made.core.why_not(invocation) == "superseded before the call"
    made.core.needs_upgrade(JOB, 9, is_birth=True)
    assert [*made.core.live()] == []


def test_a_nonce_that_another_job_names_does_not_win_for_a_sealed_one() -> None:
    made = bench()
    invocation = made.declared("a")
    made.log(sealed(), created().model_copy(update={"job_id": "job-2"}))
    reported = made.log(invocation.started.model_copy(update={"job_id": "job-2"}))
    assert not reported.won


def test_a_try_of_an_earlier_life_of_the_job_does_not_win_in_a_later_one() -> None:
    made = bench()
    invocation = made.declared("a")
    made.log(sealed())
    made.core._forgotten = SealedNames()  # it was so long ago that its name is forgotten too
    made.log(created(), planned(graph({"id": "a"})))
    assert not made.log(invocation.started).won
