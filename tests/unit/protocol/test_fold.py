"""Each rule of the fold, attacked by a history that would break it."""

from typing import Any

import pytest

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.event_values import After, Decision, RejectReason
from tests.testkit.histories import JOB, about, finished, fold, graph, key_of, planned, started
from tests.testkit.tries import try_of

PLAN = planned(graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}))
IRREVERSIBLE = planned(graph({"id": "a"}, {"id": "b"}, act={"irreversible": True}))


def allowed(node: str = "a", **fields: Any) -> Any:
    return about(ev.PolicyAllowed, node, args_hash=args_hash(None), tool_version="1", rule="r", **fields)


def decided(decision: str, node: str = "a", **fields: Any) -> Any:
    return about(
        ev.ApprovalDecided,
        node,
        args_hash=args_hash(None),
        tool_version="1",
        rule="r",
        decision=Decision(decision),
        approver="eve",
        **fields,
    )


def rejected(reason: str = "policy", node: str = "a", **fields: Any) -> Any:
    return about(ev.InvocationRejected, node, reason=RejectReason(reason), **fields)


def reopened(invocation_id: str, by: str = "policy", node: str = "a") -> Any:
    return about(ev.InvocationReopened, node, invocation_id=invocation_id, next_token=0, by=by)


def parked(invocation_id: str, node: str = "a") -> Any:
    return about(ev.InvocationParked, node, invocation_id=invocation_id, reason="r")


def stopping(up_to: int = 0) -> ev.JobStopping:
    return ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=up_to)


def worker_ended(incarnation: str, worker_id: str = "w") -> ev.WorkerEnded:
    return ev.WorkerEnded(job_id=JOB, worker_id=worker_id, incarnation=incarnation, how="human", by="bob", evidence="e")


def returned(invocation_id: str, node: str = "a") -> Any:
    return about(
        ev.InvocationInDoubt, node, invocation_id=invocation_id, error_class="ConnectionResetError", returned=True
    )


def test_a_started_by_a_worker_that_had_ended_is_void() -> None:
    """A process that was declared ended, wakes, and takes a grant up behind the probe that found nothing."""
    ended = fold(PLAN, started("a", "n1"), worker_ended("i1"), reopened("n1"))
    assert start_is_void(ended, started("a", "n2", token=2)) == "its worker had ended"
    apply(ended, started("a", "n2", token=2), 9)
    assert (ended.keys[key_of("a")].status, ended.keys[key_of("a")].unresolved) == (KeyStatus.REOPENED, {try_of("n1")})
    assert start_is_void(ended, started("a", "n3", token=2, incarnation="i2")) is None
    other = fold(PLAN, worker_ended("i1", "another"))
    assert start_is_void(other, started("a", "n1")) is None


def test_what_a_worker_had_started_before_its_end_still_counts() -> None:
    job = fold(PLAN, started("a", "n1"), worker_ended("i1"), finished("a", "n1", result={"late": 1}))
    assert job.keys[key_of("a")].outcome is Settled.SUCCESS


def test_of_two_started_the_first_wins() -> None:
    job = fold(PLAN, started("a", "n1"), started("a", "n2"))
    state = job.keys[key_of("a")]
    assert (state.status, state.current_invocation, state.unresolved) == (
        KeyStatus.STARTED,
        try_of("n1"),
        {try_of("n1")},
    )


def test_a_start_that_was_void_stays_void_when_its_record_comes_again() -> None:
    """It was told so where it was read back: nobody runs it."""
    early = started("a", "n1")
    job = fold(IRREVERSIBLE, early, allowed(), early)
    assert job.keys[key_of("a")].status is KeyStatus.NONE
    assert apply(job, started("a", "n2"), 9)
    assert job.void_starts == {}


def test_void_starts_are_remembered_only_while_they_could_come_alive() -> None:
    races = [started("a", f"n{number}") for number in range(5)]
    assert fold(PLAN, *races).void_starts == {}
    unplanned = [started("a", f"n{number}", revision=1) for number in range(2)]
    assert len(fold(PLAN, *unplanned).void_starts[key_of("a")]) == 2
    assert fold(PLAN, *unplanned, rejected()).void_starts == {}
    assert fold(PLAN, *unplanned, finished("a", "n9"), started("a", "n9")).void_starts == {}


@pytest.mark.parametrize("other", [{"correlation_key": "other"}, {"wait_type": "timer"}, {"idempotency_key": "k"}])
def test_a_wait_ends_by_its_own_end_only(other: dict[str, str]) -> None:
    node = {"id": "w", "kind": "wait", "tool": None, "wait": {"key": "go"}}
    named: dict[str, Any] = {"job_id": JOB, "node_id": "w", "idempotency_key": "k-w", "correlation_key": "go"}
    named["wait_type"] = "signal"
    job = fold(planned(graph(node)), ev.JobWaiting.model_validate(named))
    assert not apply(job, ev.WaitCompleted.model_validate(named | other), 9)
    assert job.keys["k-w"].is_waiting
    assert apply(job, ev.WaitCompleted.model_validate(named), 10)
    assert job.keys["k-w"].status is KeyStatus.SETTLED


def test_a_success_keeps_no_reason_of_an_earlier_try() -> None:
    failed = finished("a", "n1", "retryable_failure").model_copy(update={"error": "503"})
    job = fold(PLAN, started("a", "n1"), failed, started("a", "n2", token=2, attempt=1))
    assert job.keys[key_of("a")].reason == "503"
    apply(job, finished("a", "n2"), 9)
    assert job.keys[key_of("a")].reason is None


def test_first_settlement_wins() -> None:
    job = fold(
        PLAN,
        started("a", "n1"),
        finished("a", "n1", result=1),
        finished("a", "n1", "permanent_failure"),
        finished("a", "n1", result=2),
    )
    state = job.keys[key_of("a")]
    assert (state.outcome, state.result, state.sure) == (Settled.SUCCESS, 1, False)


def test_a_success_of_what_never_started_is_void() -> None:
    assert key_of("a") not in fold(PLAN, finished("a", "n1")).keys


def test_a_stale_token_never_starts() -> None:
    job = fold(PLAN, started("a", "n1"), reopened("n1"), started("a", "n2", token=1))
    assert job.keys[key_of("a")].status is KeyStatus.REOPENED
    assert apply(job, started("a", "n3", token=2), 9)


def test_a_nonce_is_never_taken_up_again() -> None:
    job = fold(PLAN, started("a", "n1"), reopened("n1"), started("a", "n1", token=2))
    assert job.keys[key_of("a")].status is KeyStatus.REOPENED


def test_only_a_recorded_proof_changes_the_external_key() -> None:
    job = fold(PLAN, started("a", "n1"), reopened("n1"))
    assert job.keys[key_of("a")].external_attempt == 1
    assert start_is_void(job, started("a", "n2", token=2, attempt=1)) is not None
    proven = fold(PLAN, started("a", "n1"), finished("a", "n1", "retryable_failure"))
    assert (proven.keys[key_of("a")].external_attempt, proven.keys[key_of("a")].fencing_token) == (2, 2)
    assert start_is_void(proven, started("a", "n2", token=2, attempt=1)) is None


def test_the_external_key_stays_while_an_older_try_may_still_act() -> None:
    job = fold(
        PLAN,
        started("a", "n1"),
        reopened("n1"),
        started("a", "n2", token=2),
        finished("a", "n2", "retryable_failure"),
    )
    state = job.keys[key_of("a")]
    assert (state.external_attempt, state.fencing_token, state.unresolved) == (1, 3, {try_of("n1")})


def test_a_late_retryable_of_an_old_nonce_moves_nothing_but_live() -> None:
    job = fold(
        PLAN,
        started("a", "n1"),
        reopened("n1"),
        started("a", "n2", token=2),
        finished("a", "n1", "retryable_failure"),
    )
    state = job.keys[key_of("a")]
    assert (state.status, state.current_invocation, state.fencing_token, state.external_attempt, state.unresolved) == (
        KeyStatus.STARTED,
        try_of("n2"),
        2,
        1,
        {try_of("n2")},
    )


def test_any_live_nonce_may_succeed_also_after_a_restart() -> None:
    job = fold(PLAN, started("a", "n1"), reopened("n1"), started("a", "n2", token=2), finished("a", "n1", result=7))
    state = job.keys[key_of("a")]
    assert (state.outcome, state.settled_by) == (Settled.SUCCESS, try_of("n1"))


def test_a_second_success_raises_an_alarm() -> None:
    history = (PLAN, started("a", "n1"), reopened("n1"), started("a", "n2", token=2), finished("a", "n2"))
    assert fold(*history, finished("a", "n1")).keys[key_of("a")].alarms == (try_of("n1"),)
    idempotent = planned(graph({"id": "a"}, act={"effect_class": "idempotent"}))
    assert fold(idempotent, *history[1:], finished("a", "n1")).keys[key_of("a")].alarms == ()


@pytest.mark.parametrize(
    ("via", "before", "sure"),
    [
        ("executor", (), True),
        ("ledger", (), False),
        ("ledger", (reopened("n1"),), False),
        ("human", (parked("n1"),), False),
    ],
)
def test_permanent_is_sure_only_where_nothing_else_can_act(via: str, before: tuple[Any, ...], sure: bool) -> None:
    job = fold(PLAN, started("a", "n1"), *before, finished("a", "n1", "permanent_failure", via=via))
    state = job.keys[key_of("a")]
    assert (state.outcome, state.sure) == (Settled.FAILED, sure)


def test_ledger_permanent_after_a_proof_is_sure() -> None:
    job = fold(
        PLAN,
        started("a", "n1"),
        finished("a", "n1", "retryable_failure"),
        finished("a", "n1", "permanent_failure", via="ledger"),
    )
    assert job.keys[key_of("a")].sure


@pytest.mark.parametrize(("via", "before"), [("human", ()), ("ledger", (parked("n1"),)), ("probe", ())])
def test_permanent_by_the_wrong_judge_is_void(via: str, before: tuple[Any, ...]) -> None:
    job = fold(PLAN, started("a", "n1"), *before, finished("a", "n1", "permanent_failure", via=via))
    assert job.keys[key_of("a")].status is not KeyStatus.SETTLED


@pytest.mark.parametrize("by", ["policy", "probe"])
def test_while_its_try_may_act_parked_is_left_by_a_human_only(by: str) -> None:
    job = fold(PLAN, started("a", "n1"), parked("n1"), worker_ended("i2"), reopened("n1", by))
    assert job.keys[key_of("a")].status is KeyStatus.PARKED
    assert apply(job, reopened("n1", "human"), 9)


@pytest.mark.parametrize("end", [worker_ended("i1"), returned("n1")])
def test_once_it_can_act_no_more_by_a_probe_too(end: Any) -> None:
    for history in ((parked("n1"), end), (end, parked("n1"))):
        job = fold(PLAN, started("a", "n1"), *history, reopened("n1", "policy"))
        assert job.keys[key_of("a")].status is KeyStatus.PARKED
        assert apply(job, reopened("n1", "probe"), 9)
        assert (job.keys[key_of("a")].status, job.keys[key_of("a")].asks) == (KeyStatus.REOPENED, 1)
        assert not apply(job, reopened("n1", "human"), 10)


@pytest.mark.parametrize("by", ["ann", None])
def test_the_word_of_who_submitted_the_job_is_no_proof_of_an_end(by: str | None) -> None:
    own = ev.WorkerEnded(job_id=JOB, worker_id="w", incarnation="i1", how="human", by=by, evidence="e")
    job = fold(PLAN, started("a", "n1"), parked("n1"), own, reopened("n1", "probe"))
    assert job.keys[key_of("a")].status is KeyStatus.PARKED
    assert start_is_void(job, started("b", "n2")) == "its worker had ended"
    assert not apply(job, own, 9)
    assert apply(job, worker_ended("i1"), 10), "somebody else's word is one"
    assert apply(job, reopened("n1", "probe"), 11)


def test_a_return_of_another_try_moves_nothing_that_is_parked() -> None:
    job = fold(
        PLAN,
        *(started("a", "n1"), reopened("n1"), started("a", "n2", token=2), parked("n2")),
        *(returned("n1"), reopened("n2", "probe")),
    )
    assert job.keys[key_of("a")].status is KeyStatus.PARKED


def test_late_truth_settles_what_is_parked() -> None:
    job = fold(PLAN, started("a", "n1"), parked("n1"), finished("a", "n1", via="late"))
    assert job.keys[key_of("a")].outcome is Settled.SUCCESS


def test_a_judgement_of_another_nonce_is_void() -> None:
    job = fold(PLAN, started("a", "n1"), reopened("n1"), started("a", "n2", token=2), parked("n1"), reopened("n1"))
    assert job.keys[key_of("a")].status is KeyStatus.STARTED


def test_one_key_a_node() -> None:
    args = {"x": 1}
    assert start_is_void(fold(PLAN, started("a", "n1")), started("a", "n2", args=args)) is not None
    assert start_is_void(fold(PLAN, rejected()), started("a", "n2", args=args)) is None
    unsure = fold(PLAN, started("a", "n1"), reopened("n1"), rejected())
    assert unsure.keys[key_of("a")].sure is False
    assert start_is_void(unsure, started("a", "n2", args=args)) is not None


def test_rejected_after_started_is_void() -> None:
    job = fold(PLAN, started("a", "n1"), rejected())
    assert job.keys[key_of("a")].status is KeyStatus.STARTED


@pytest.mark.parametrize("reason", ["approval", "edited", "expired"])
def test_a_yes_that_came_first_stands(reason: str) -> None:
    assert fold(PLAN, decided("approve"), rejected(reason)).keys[key_of("a")].status is KeyStatus.NONE
    assert fold(PLAN, decided("approve"), rejected("policy")).keys[key_of("a")].outcome is Settled.REJECTED


@pytest.mark.parametrize("answer", ["reject", "edit"])
def test_a_no_stops_any_tool_also_where_policy_allows(answer: str) -> None:
    for plan in (PLAN, IRREVERSIBLE):
        job = fold(plan, allowed(), decided(answer), decided("approve"))
        assert start_is_void(job, started("a", "n1")) is not None


def test_irreversible_needs_a_yes_for_its_tool_version() -> None:
    assert start_is_void(fold(IRREVERSIBLE), started("a", "n1")) is not None
    assert start_is_void(fold(IRREVERSIBLE, allowed()), started("a", "n1")) is None
    assert start_is_void(fold(IRREVERSIBLE, decided("approve")), started("a", "n1")) is None
    other = about(ev.PolicyAllowed, "a", args_hash=args_hash(None), tool_version="2", rule="r")
    assert start_is_void(fold(IRREVERSIBLE, other), started("a", "n1")) is not None


def test_the_same_irreversible_call_in_two_nodes() -> None:
    history = (IRREVERSIBLE, allowed("a"), allowed("b"), started("a", "n1"))
    assert start_is_void(fold(*history), started("b", "n2")) is not None
    assert start_is_void(fold(*history, finished("a", "n1")), started("b", "n2")) is not None
    assert start_is_void(fold(*history, finished("a", "n1")), started("b", "n2", occurrence=2)) is None
    failed = fold(*history, finished("a", "n1", "permanent_failure"))
    assert start_is_void(failed, started("b", "n2")) is None


def test_a_stop_in_the_log_keeps_any_later_started_from_running() -> None:
    assert start_is_void(fold(PLAN, stopping()), started("a", "n1")) is not None
    end = ev.JobCancelled(job_id=JOB, by="ann")
    assert start_is_void(fold(PLAN, end), started("a", "n1")) is not None


UNDO = {"tool": "act", "args": {"undo": {"$ref": "a#/id"}}}
UNDOABLE = planned(graph({"id": "a", "compensate_with": UNDO}, {"id": "b", "depends_on": ["a"]}))
DONE_A = (UNDOABLE, started("a", "n1"), finished("a", "n1", result={"id": 7}))
UNDO_NODE = {"id": "a.undo", "args": UNDO["args"], "compensates": "a"}


def undoing(*nodes: dict[str, Any], revision: int = 1) -> ev.PlanGenerated:
    return planned(graph(*nodes), revision)


def undo_started(revision: int = 1) -> ev.ToolInvocationStarted:
    return started("a.undo", "u1", args={"undo": 7}, revision=revision)


@pytest.mark.parametrize("revision", [0, 1, 2])
def test_no_revision_that_a_started_names_lets_it_escape_a_stop(revision: int) -> None:
    before = fold(*DONE_A, undoing({"id": "c"}), stopping(0))
    behind = fold(*DONE_A, stopping(0), undoing(UNDO_NODE))
    for job in (before, behind):
        assert start_is_void(job, started("b", "n2", revision=revision)) is not None


@pytest.mark.parametrize("node", ["a", "b", "c", "a.undo"])
def test_what_a_revision_behind_a_stop_adds_does_not_start(node: str) -> None:
    job = fold(*DONE_A, stopping(0), undoing({"id": node, "args": {"x": 1}}))
    assert job.revision == 0
    assert start_is_void(job, started(node, "n2", args={"x": 1}, revision=1)) is not None


def test_behind_a_stop_only_what_undoes_a_success_starts() -> None:
    assert start_is_void(fold(*DONE_A, stopping(0), undoing(UNDO_NODE)), undo_started()) is None
    assert start_is_void(fold(*DONE_A, undoing(UNDO_NODE)), undo_started()) is not None
    assert start_is_void(fold(*DONE_A, stopping(0), undoing(UNDO_NODE), stopping(1)), undo_started()) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        UNDO_NODE | {"args": {"undo": 8}},
        UNDO_NODE | {"id": "c"},
        UNDO_NODE | {"compensates": "b", "id": "b.undo"},
        UNDO_NODE | {"occurrence": 2},
        UNDO_NODE | {"irreversible": True},
        UNDO_NODE | {"compensates": None},
    ],
)
def test_a_compensation_is_just_what_the_plan_declared(wrong: dict[str, Any]) -> None:
    assert fold(*DONE_A, stopping(0), undoing(wrong)).revision == 0
    assert fold(*DONE_A, stopping(0), undoing(UNDO_NODE, wrong)).revision == 0


def test_nothing_is_undone_while_something_is_open_or_unsure() -> None:
    done = (*DONE_A, started("b", "n2"))
    unsure = finished("b", "n2", "permanent_failure", via="ledger")
    asked = ev.CancelRequested(job_id=JOB, by="ann", compensate=True)
    assert fold(*DONE_A[:2], stopping(0), undoing(UNDO_NODE)).revision == 0
    assert fold(*done, stopping(0), undoing(UNDO_NODE)).revision == 0
    assert fold(*done, unsure, stopping(0), undoing(UNDO_NODE)).revision == 0
    assert fold(*done, unsure, asked, stopping(0), undoing(UNDO_NODE)).revision == 1
    assert fold(*DONE_A, asked, stopping(0), undoing(UNDO_NODE)).revision == 1
    not_asked = ev.CancelRequested(job_id=JOB, by="ann")
    assert fold(*DONE_A, not_asked, stopping(0), undoing(UNDO_NODE)).revision == 0


def test_the_plan_in_force() -> None:
    changed = planned(graph({"id": "a", "args": {"x": 1}}), 1)
    same = planned(graph({"id": "c"}), 1)
    assert start_is_void(fold(PLAN, changed), started("a", "n1", revision=0)) is not None
    assert start_is_void(fold(PLAN, changed), started("a", "n1", revision=1)) is None
    assert start_is_void(fold(PLAN, same), started("a", "n1", revision=0)) is None
    assert start_is_void(fold(PLAN), started("a", "n1", revision=1)) is not None
    assert fold(PLAN, planned(graph({"id": "z"}))).entry("z") is None


def test_a_run_builds_on_exactly_that_result() -> None:
    history = (PLAN, started("a", "n1"), finished("a", "n1", result={"v": 1}))
    right = After(invocation_id="n1", result_hash=digest({"v": 1}))
    wrong = After(invocation_id="n1", result_hash=digest({"v": 2}))
    other = After(invocation_id="n9", result_hash=digest({"v": 1}))
    assert start_is_void(fold(*history), started("b", "n2", after=[right])) is None
    assert start_is_void(fold(*history), started("b", "n2", after=[wrong])) is not None
    assert start_is_void(fold(*history), started("b", "n2", after=[other])) is not None


def test_the_first_terminal_event_wins() -> None:
    job = fold(PLAN, ev.JobCompleted(job_id=JOB), ev.JobFailed(job_id=JOB, error="e"))
    assert isinstance(job.terminal, ev.JobCompleted)


def test_one_node_finished_and_a_second_only_for_compensated() -> None:
    def done(result_type: str) -> ev.NodeFinished:
        return ev.NodeFinished(job_id=JOB, node_id="a", step_index=0, attempt=1, result_type=result_type)

    job = fold(PLAN, done("side_effect_committed"), done("permanent_failure"))
    assert job.finished["a"].result_type == "side_effect_committed"
    assert apply(job, done("compensated"), 9)
    assert not apply(job, done("compensated"), 10)


def test_a_rejected_key_ends_its_node_though_an_earlier_key_never_started() -> None:
    asked: dict[str, Any] = {"args_hash": args_hash(None), "tool_version": "1", "rule": "r", "form": {}}
    job = fold(
        planned(graph({"id": "a"})),
        about(ev.ApprovalRequested, "a", **asked),
        planned(graph({"id": "a", "args": {"x": 1}}), revision=1),
        about(ev.ApprovalRequested, "a", args={"x": 1}, **asked),
    )
    assert job.settled_key("a") is None
    apply(job, about(ev.InvocationRejected, "a", args={"x": 1}, reason=RejectReason.APPROVAL), 5)
    settled = job.settled_key("a")
    assert settled is not None
    assert settled[0] == key_of("a", {"x": 1})


def test_the_plan_in_force_keeps_its_order_and_takes_no_node_twice() -> None:
    first = planned(graph({"id": "b", "depends_on": ["a"]}, {"id": "a"}, {"id": "c"}))
    assert list(fold(first).places) == ["a", "c", "b"]
    changed = planned(graph({"id": "b"}, {"id": "d"}), 1)
    assert list(fold(first, changed).places) == ["b", "a", "c", "d"]
    twice = planned(graph({"id": "d"}, {"id": "b"}, {"id": "b"}), 1)
    assert (fold(first, twice).revision, list(fold(first, twice).places)) == (0, ["a", "c", "b"])


def test_a_decoded_event_is_like_one_that_was_made_and_so_are_its_copies() -> None:
    written = draft(Topic.JOBS_EVENTS, started("a", "n1"), key=JOB, id="1", source="test", time="")
    record = Record(Topic.JOBS_EVENTS, 0, 0, 0, written.key, written.headers, written.value)
    for node in ("b", "c"):
        found = decode_event(record)
        assert isinstance(found, Envelope)
        assert found.body == started("a", "n1")
        copied, made = (one.model_copy(update={"node_id": node}) for one in (found.body, started("a", "n1")))
        assert copied == made
