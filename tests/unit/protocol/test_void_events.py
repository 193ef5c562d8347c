"""What is void, for one reason alone: it counts as nothing, and leaves what decides as it was."""

import copy
from typing import Any

import pytest

from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.fold.revisions import unsure
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Answer, Decision, RejectReason
from aetheris.protocol.messages.events import Event
from tests.testkit.histories import JOB, about, finished, fold, graph, key_of, planned, sealed, started
from tests.testkit.tries import try_of

PLAN = planned(graph({"id": "a"}, {"id": "b"}))
IRREVERSIBLE = planned(graph({"id": "a"}, {"id": "b"}, act={"irreversible": True}))
IDEMPOTENT = planned(graph({"id": "a"}, act={"effect_class": "idempotent"}))
PURE = planned(graph({"id": "a"}, act={"effect_class": "pure"}))
WAITS = planned(graph({"id": "w", "kind": "wait", "tool": None, "wait": {"key": "go"}}, {"id": "a"}))
STARTED = started("a", "n1")
SECOND = started("a", "n2", token=2)
STOPPING = ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0)
CANCELLED = ev.JobCancelled(job_id=JOB, by="ann")
SEALED = sealed()
UNDO = {"id": "a.undo", "args": {"undo": 1}, "compensates": "a"}
UNDOABLE = planned(graph({"id": "a", "compensate_with": {"tool": "act", "args": {"undo": 1}}}))
SAID: dict[str, Any] = {"args_hash": args_hash(None), "tool_version": "1", "rule": "r"}


def of_b(event: Any) -> Any:
    """The same, of another node: its key belongs to the first."""
    return event.model_copy(update={"node_id": "b"})


def reopened(invocation_id: str = "n1", by: str = "policy") -> Any:
    return about(ev.InvocationReopened, "a", invocation_id=invocation_id, next_token=2, by=by)


def parked(invocation_id: str = "n1") -> Any:
    return about(ev.InvocationParked, "a", invocation_id=invocation_id, reason="r")


def in_doubt(invocation_id: str = "n1", *, returned: bool = False) -> Any:
    return about(ev.InvocationInDoubt, "a", invocation_id=invocation_id, error_class="E", returned=returned)


def probed(invocation_id: str = "n1") -> Any:
    return about(
        ev.InvocationProbed, "a", invocation_id=invocation_id, external_key="x", ask="1", answer=Answer("not_found")
    )


def asked(token: int | None = None) -> Any:
    return about(ev.ApprovalRequested, "a", form={}, token=token, **SAID)


def decided(decision: str, **fields: Any) -> Any:
    return about(ev.ApprovalDecided, "a", decision=Decision(decision), approver="eve", **SAID, **fields)


def waiting(node: str | None = "w", key: str | None = "k", on: str = "go", wait_type: Any = "signal") -> ev.JobWaiting:
    return ev.JobWaiting(job_id=JOB, wait_type=wait_type, node_id=node, idempotency_key=key, correlation_key=on)


def ended(node: str | None = "w", key: str | None = "k", on: str = "go", wait_type: Any = "signal") -> ev.WaitCompleted:
    return ev.WaitCompleted(job_id=JOB, wait_type=wait_type, node_id=node, idempotency_key=key, correlation_key=on)


ALLOWED = about(ev.PolicyAllowed, "a", **SAID)
REJECTED = about(ev.InvocationRejected, "a", reason=RejectReason.POLICY)
RETRY = about(ev.RetryScheduled, "a", invocation_id="n1", attempt=1, due_at="t")
STEP_CANCEL = about(ev.InvocationCancelRequested, "a", by="ann")
SIGNAL = ev.SignalReceived(job_id=JOB, correlation_key="go")
CANCEL = ev.CancelRequested(job_id=JOB, by="ann")
ENDED_WORKER = ev.WorkerEnded(job_id=JOB, worker_id="w", incarnation="i1", how="lock")
BY_HAND = (IRREVERSIBLE, ALLOWED, STARTED, parked(), reopened(by="human"))

VOID: dict[str, tuple[tuple[Event, ...], Event]] = {
    "a plan without nodes": ((), PLAN.model_copy(update={"task_graph": None})),
    "a plan that can't undo": (
        (),
        planned(graph({"id": "a", "compensate_with": {"tool": "other", "args": {}}})),
    ),
    "undoing twice": (
        (UNDOABLE, STARTED, finished("a", "n1"), STOPPING, planned(graph(UNDO), 1)),
        planned(graph(UNDO), 2),
    ),
    "undoing what failed": (
        (UNDOABLE, STARTED, finished("a", "n1", "permanent_failure"), STOPPING),
        planned(graph(UNDO), 1),
    ),
    "a result under another node": ((PLAN, STARTED), of_b(finished("a", "n1"))),
    "a success of who never started": ((PLAN, STARTED), finished("a", "n9")),
    "a failure of an earlier try": ((PLAN, STARTED, reopened(), SECOND), finished("a", "n1", "permanent_failure")),
    "a failure behind the proof that it did not run": (
        (PLAN, STARTED, finished("a", "n1", "retryable_failure")),
        finished("a", "n1", "permanent_failure"),
    ),
    "a second proof that it did not run": (
        (PLAN, STARTED, finished("a", "n1", "retryable_failure")),
        finished("a", "n1", "retryable_failure"),
    ),
    "a failure behind a success": (
        (PLAN, STARTED, reopened(), SECOND, finished("a", "n2")),
        finished("a", "n1", "permanent_failure"),
    ),
    "a second success of nobody": ((PLAN, STARTED, finished("a", "n1")), finished("a", "n9")),
    "a second success of what only reads": (
        (PURE, STARTED, reopened(), SECOND, finished("a", "n2")),
        finished("a", "n1"),
    ),
    "a second success twice": (
        (PLAN, STARTED, reopened(), SECOND, finished("a", "n2"), finished("a", "n1")),
        finished("a", "n1"),
    ),
    "reopened before anything": ((PLAN,), reopened()),
    "parked before anything": ((PLAN,), parked()),
    "parked when it is free again": ((PLAN, STARTED, reopened()), parked()),
    "reopened by a probe when it is over": (
        (PLAN, STARTED, ENDED_WORKER, finished("a", "n1")),
        reopened(by="probe"),
    ),
    "rejected under another node": ((PLAN, ALLOWED), of_b(REJECTED)),
    "allowed under another node": ((PLAN, asked()), of_b(ALLOWED)),
    "allowed twice": ((PLAN, ALLOWED), ALLOWED),
    "asked under another node": ((PLAN, ALLOWED), of_b(asked())),
    "asked twice": ((PLAN, asked()), asked()),
    "asked of an earlier try": (BY_HAND, asked()),
    "answered under another node": ((PLAN, ALLOWED), of_b(decided("approve"))),
    "answered of an earlier try": (BY_HAND, decided("approve")),
    "in doubt before anything": ((PLAN,), in_doubt()),
    "in doubt about nobody's try": ((PLAN, STARTED), in_doubt("n9", returned=True)),
    "in doubt twice": ((PLAN, STARTED, in_doubt()), in_doubt()),
    "in doubt behind the human's turn": ((PLAN, STARTED, parked()), in_doubt()),
    "in doubt about an earlier try": ((PLAN, STARTED, reopened(), SECOND), in_doubt()),
    "returned twice": ((PLAN, STARTED, in_doubt(returned=True)), in_doubt(returned=True)),
    "probed before anything": ((PLAN,), probed()),
    "probed nobody's try": ((PLAN, STARTED), probed("n9")),
    "called off before anything": ((PLAN,), STEP_CANCEL),
    "called off behind its end": ((PLAN, STARTED, finished("a", "n1")), STEP_CANCEL),
    "called off twice": ((PLAN, STARTED, STEP_CANCEL), STEP_CANCEL.model_copy(update={"by": "eve"})),
    "a pause before anything": ((PLAN,), RETRY),
    "a pause of what runs": ((PLAN, STARTED), RETRY),
    "a pause of an earlier try": (
        (PLAN, STARTED, reopened(), SECOND, reopened("n2").model_copy(update={"next_token": 3})),
        RETRY,
    ),
    "another pause of the same try": ((PLAN, STARTED, reopened(), RETRY), RETRY.model_copy(update={"due_at": "u"})),
    "a worker's end twice": ((PLAN, ENDED_WORKER), ENDED_WORKER),
    "cancelled twice": ((PLAN, CANCEL), CANCEL.model_copy(update={"by": "eve"})),
    "a job's wait again behind its end": (
        (PLAN, waiting(None, wait_type="approval"), ended(None, wait_type="approval")),
        waiting(None, wait_type="approval"),
    ),
    "a node's wait without a key": ((WAITS,), waiting(key=None)),
    "a wait behind the job's end": ((WAITS, CANCELLED), waiting()),
    "a wait of no node": ((WAITS,), waiting("z")),
    "a wait of a call": ((WAITS,), waiting("a")),
    "a wait behind a stop": ((WAITS, STOPPING), waiting()),
    "a wait whose key is another node's": ((WAITS, ALLOWED), waiting(key=key_of("a"))),
    "a wait whose key is over": (
        (WAITS, REJECTED.model_copy(update={"node_id": "w", "idempotency_key": "k"})),
        waiting(),
    ),
    "a second wait of a node": ((WAITS, waiting()), waiting(key="k-2", on="stop")),
    "the end of another confirmation": (
        (PLAN, waiting(None, None, "a", "confirmation")),
        ended(None, None, "b", "confirmation"),
    ),
    "the same signal again": ((PLAN, SIGNAL), SIGNAL.model_copy(update={"payload": 1})),
    "sealed twice": ((PLAN, SEALED), SEALED),
    "a birth repeated behind the seal": (
        (PLAN, SEALED),
        ev.BirthRepeated(job_id=JOB, birth=-1),
    ),
}


@pytest.mark.parametrize("name", VOID)
def test_what_is_void_changes_nothing(name: str) -> None:
    history, event = VOID[name]
    job = fold(*history)
    before = copy.deepcopy(job)
    assert not apply(job, event, job.last_offset)
    assert {key: state for key, state in job.keys.items() if key in before.keys} == before.keys
    for part in ("entries", "plan_hashes", "ended_workers", "cancel", "waits", "open_waits", "signals", "sealed"):
        assert getattr(job, part) == getattr(before, part)


def test_an_equal_call_that_can_be_undone_is_in_nobodys_way() -> None:
    plan = planned(graph({"id": "a"}, {"id": "b", "irreversible": True}))
    job = fold(plan, STARTED, about(ev.PolicyAllowed, "b", **SAID))
    assert start_is_void(job, started("b", "n2")) is None


@pytest.mark.parametrize(
    "history",
    [
        (PLAN, STARTED, finished("a", "n1"), started("a", "n5", token=5)),
        (PLAN, STARTED, reopened(), started("a", "n5")),
        (PLAN, STARTED, reopened(), started("a", "n1", token=2)),
        (PLAN, CANCELLED, STARTED),
    ],
)
def test_a_void_start_that_nothing_can_bring_back_is_not_remembered(history: tuple[Event, ...]) -> None:
    assert fold(*history).void_starts == {}


def test_a_start_that_was_void_before_its_turn_stays_void_in_it() -> None:
    early = fold(PLAN, SECOND, STARTED, reopened())
    assert start_is_void(early, SECOND) == "it was void before, so nobody runs it"
    between = fold(PLAN, STARTED, SECOND, reopened())
    assert start_is_void(between, SECOND) == "it was void before, so nobody runs it"


def test_a_probe_reopens_what_is_started_whoever_lives() -> None:
    job = fold(PLAN, STARTED, reopened(by="probe"))
    assert job.keys[key_of("a")].status is KeyStatus.REOPENED


def test_a_late_word_that_an_open_try_did_not_run_opens_nothing_again() -> None:
    job = fold(PLAN, STARTED, reopened(), finished("a", "n1", "retryable_failure"))
    state = job.keys[key_of("a")]
    assert (state.status, state.fencing_token, state.external_attempt, state.unresolved) == (
        KeyStatus.REOPENED,
        2,
        1,
        frozenset(),
    )


def test_what_only_reads_is_never_unsure() -> None:
    failed = finished("a", "n1", "permanent_failure", via="ledger")
    assert unsure(fold(PURE, STARTED, failed)) is None
    assert unsure(fold(PLAN, STARTED, failed)) == "a"


@pytest.mark.parametrize(
    "history",
    [
        (IDEMPOTENT, STARTED, reopened(), SECOND, finished("a", "n2", "permanent_failure")),
        (
            IDEMPOTENT,
            STARTED,
            finished("a", "n1", "retryable_failure"),
            started("a", "n2", token=2, attempt=1),
            finished("a", "n2"),
        ),
    ],
)
def test_an_idempotent_call_is_done_twice_behind_a_failure_or_under_another_external_key(
    history: tuple[Event, ...],
) -> None:
    job = fold(*history, finished("a", "n1"))
    assert job.keys[key_of("a")].alarms == (try_of("n1"),)


@pytest.mark.parametrize(
    ("history", "answer"),
    [
        ((PLAN,), decided("approve", data={"x": 1})),
        ((PLAN,), decided("edit", data={"x": {"$ref": "b#/v"}})),
        ((*BY_HAND, asked(2)), decided("edit", data={"x": 1}, token=2)),
    ],
)
def test_only_an_edit_of_what_never_ran_with_plain_arguments_changes_the_call(
    history: tuple[Event, ...], answer: Event
) -> None:
    job = fold(*history)
    before = job.entry("a")
    assert apply(job, answer, 99)
    assert job.entry("a") is before


def test_an_edit_of_a_node_that_no_plan_has_changes_no_plan() -> None:
    job = fold(PLAN)
    edit = decided("edit", data={"x": 1}).model_copy(update={"node_id": "z", "idempotency_key": "k-z"})
    assert apply(job, edit, 9)
    assert job.entry("z") is None


def test_that_a_try_returned_is_kept_beside_the_doubt() -> None:
    job = fold(PLAN, STARTED, in_doubt())
    assert apply(job, in_doubt(returned=True), 9)
    assert job.keys[key_of("a")].returned == {try_of("n1")}


def test_a_confirmation_ends_by_its_own_end_and_any_other_wait_of_the_job_by_any() -> None:
    confirming = fold(PLAN, waiting(None, None, "a", "confirmation"), ended(None, None, "a", "confirmation"))
    assert confirming.open_waits == {}
    approving = fold(PLAN, waiting("a", key_of("a"), "x", "approval"), ended("a", None, "y", "approval"))
    assert approving.open_waits == {}
