"""The projection of the log as execution contracts: legal moves only, the fold's own standing, and what is hidden."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import Sequence, next_logged_event
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.event_values import DuplicateOf, Outcome, RejectReason, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.contract import TRANSITIONS, ContractStatus
from aetheris.protocol.planning.outcome import step_status
from aetheris.views.contracts import MAX_TRANSITIONS, Contracts, Level
from aetheris.views.standing import step_view
from tests.testkit.histories import JOB, about, created, finished, graph, key_of, planned, started

OPAQUE = graph({"id": "a"}, {"id": "b", "depends_on": ["a"], "args": {"x": {"$ref": "a#/y"}}})
WAITS = {"tools": {}, "nodes": [{"id": "w", "kind": "wait", "wait": {"key": "k", "timeout_s": 60}}]}
ASKED = about(ev.ApprovalRequested, "a", args_hash=args_hash({}), tool_version="1", rule="r", form={})
YES = about(
    ev.ApprovalDecided, "a", args_hash=args_hash({}), tool_version="1", rule="r", decision="approve", approver="eve"
)
PARKED = about(ev.InvocationParked, "a", invocation_id="n1", reason="nobody knows")
WAITING = ev.JobWaiting(
    job_id=JOB,
    wait_type="signal",
    node_id="w",
    idempotency_key="k-w",
    correlation_key="k",
    due_at="2030-01-01T00:01:00Z",
)


def rejected(reason: RejectReason, node: str = "a", key: str | None = None, **more: Any) -> ev.InvocationRejected:
    fields = {"job_id": JOB, "node_id": node, "idempotency_key": key or key_of(node), "reason": reason}
    return ev.InvocationRejected.model_validate(fields | more)


def reopened(by: str, invocation_id: str = "n1", token: int = 2) -> ev.InvocationReopened:
    return about(ev.InvocationReopened, "a", invocation_id=invocation_id, next_token=token, by=by)


def failed(via: Via, error: str = "refused", invocation_id: str = "n1") -> ev.ToolInvocationFinished:
    return finished("a", invocation_id, outcome=Outcome.PERMANENT, via=via).model_copy(update={"error": error})


def project(plan: dict[str, Any], *events: Event) -> tuple[Contracts, list[str]]:
    contracts, numbers, moves = Contracts(), Sequence(), list[str]()
    for offset, event in enumerate((created(), planned(plan), *events)):
        made = draft(
            Topic.JOBS_EVENTS, event, key=JOB, id=f"e{offset}", source="s", time=f"2030-01-01T00:00:{offset:02}Z"
        )
        record = Record(Topic.JOBS_EVENTS, 0, offset, 0, made.key, made.headers, made.value)
        moves += [f"{one.trigger}→{one.target}" for one in contracts.take(next_logged_event(numbers, record))]
    return contracts, moves


def only(plan: dict[str, Any], *events: Event, level: Level = Level.TRANSITION) -> dict[str, Any]:
    return project(plan, *events)[0].view(level)[0]


PATHS: list[tuple[dict[str, Any], tuple[Event, ...], list[str]]] = [
    (OPAQUE, (started("a", "n1"), finished("a", "n1")), ["start→running", "succeed→completed"]),
    (OPAQUE, (started("a", "n1"), failed(Via.EXECUTOR)), ["start→running", "fail→failed"]),
    (
        OPAQUE,
        (ASKED, YES, started("a", "n1"), finished("a", "n1")),
        ["start→running", "suspend→waiting", "resume→running", "succeed→completed"],
    ),
    (
        OPAQUE,
        (ASKED, rejected(RejectReason.APPROVAL)),
        ["start→running", "suspend→waiting", "resume→running", "reject→rejected"],
    ),
    (OPAQUE, (ASKED, rejected(RejectReason.EXPIRED)), ["start→running", "suspend→waiting", "timeout→cancelled"]),
    (OPAQUE, (ASKED, rejected(RejectReason.CANCELLED)), ["start→running", "suspend→waiting", "cancel→cancelled"]),
    (OPAQUE, (rejected(RejectReason.POLICY),), ["start→running", "reject→rejected"]),
    (
        OPAQUE,
        (started("a", "n1"), PARKED, finished("a", "n1", via=Via.HUMAN)),
        ["start→running", "suspend→waiting", "resume→running", "succeed→completed"],
    ),
    (
        OPAQUE,
        (started("a", "n1"), PARKED, failed(Via.HUMAN, "cancelled")),
        ["start→running", "suspend→waiting", "cancel→cancelled"],
    ),
    (
        OPAQUE,
        (started("a", "n1"), PARKED, reopened("human"), started("a", "n2", token=2), finished("a", "n2")),
        ["start→running", "suspend→waiting", "resume→running", "succeed→completed"],
    ),
    (
        WAITS,
        (
            WAITING,
            ev.WaitCompleted(
                job_id=JOB, wait_type="signal", node_id="w", idempotency_key="k-w", correlation_key="k", payload=1
            ),
        ),
        ["start→running", "suspend→waiting", "resume→running", "succeed→completed"],
    ),
    (
        WAITS,
        (WAITING, rejected(RejectReason.EXPIRED, "w", "k-w")),
        ["start→running", "suspend→waiting", "timeout→cancelled"],
    ),
]


@pytest.mark.parametrize(("plan", "events", "expected"), PATHS, ids=[" ".join(path[2]) for path in PATHS])
def test_the_log_moves_a_contract(plan: dict[str, Any], events: tuple[Event, ...], expected: list[str]) -> None:
    contracts, moves = project(plan, *events)
    assert moves == expected
    assert contracts.view()[0]["status"] == expected[-1].partition("→")[2]


def test_what_is_void_moves_nothing() -> None:
    done = (started("a", "n1"), finished("a", "n1"))
    _, moves = project(OPAQUE, *done, PARKED, rejected(RejectReason.POLICY), *done, started("a", "n9"))
    assert moves == ["start→running", "succeed→completed"]


def test_nodes_that_nobody_asked_for_are_pending_and_named_as_far_as_is_known() -> None:
    first, second = project(OPAQUE)[0].view()
    assert (first["status"], first["execution_id"]) == ("pending", execution_id(JOB, "a", key_of("a")))
    assert (second["status"], second["execution_id"]) == ("pending", None)
    assert (second["outcome"], second["has_effect"]) == (None, "none")


@pytest.mark.parametrize(
    ("events", "effect"),
    [
        ((started("a", "n1"),), "possible"),
        ((started("a", "n1"), finished("a", "n1")), "confirmed"),
        ((started("a", "n1"), failed(Via.EXECUTOR)), "none"),
        ((started("a", "n1"), PARKED), "possible"),
        ((started("a", "n1"), PARKED, failed(Via.HUMAN, "cancelled")), "possible"),
        ((started("a", "n1"), finished("a", "n1", outcome=Outcome.RETRYABLE)), "none"),
        ((rejected(RejectReason.POLICY),), "none"),
    ],
)
def test_effect(events: tuple[Event, ...], effect: str) -> None:
    assert only(OPAQUE, *events)["has_effect"] == effect


def test_a_duplicate_names_what_it_repeats() -> None:
    other = DuplicateOf(job_id=JOB, node_id="z", execution_id="x")
    found = only(OPAQUE, rejected(RejectReason.DUPLICATE_OF, duplicate_of=other, detail="z"))
    assert (found["status"], found["outcome"]) == ("rejected", "rejected")
    assert found["duplicate_of"] == {"job_id": JOB, "node_id": "z", "execution_id": "x"}
    assert found["error_message"] == "duplicate_of: z"


def test_each_level_shows_what_it_is_for() -> None:
    events = (started("a", "n1"), failed(Via.EXECUTOR))
    result = only(OPAQUE, *events, level=Level.RESULT)
    diagnosis = only(OPAQUE, *events, level=Level.TRANSITION)
    request = only(OPAQUE, *events, level=Level.REQUEST)
    hidden = {"idempotency_key", "timeout_seconds", "action_detail", "due_at"}
    assert not {*hidden, "transitions"} & set(result)
    assert not hidden & set(diagnosis)
    assert [moved["actor"] for moved in diagnosis["transitions"]] == ["executor", "executor"]
    assert "i1" not in str(diagnosis)
    assert hidden <= set(request)
    assert (request["idempotency_key"], request["timeout_seconds"]) == (key_of("a"), 30.0)
    assert request["action_detail"] == {"kind": "tool", "tool": "act", "arguments": {}, "occurrence": 1}
    assert request["transitions"][0]["actor_id"] == "w/i1"
    assert diagnosis["transitions"][0]["event_id"] == "e2"
    assert (result["created_at"], result["updated_at"]) == ("2030-01-01T00:00:01Z", "2030-01-01T00:00:03Z")


def test_a_contract_keeps_its_last_transitions_and_counts_all() -> None:
    invocations: list[Event] = []
    for number in range(1, 31):
        invocations += [
            started("a", f"n{number}", token=number),
            about(ev.InvocationParked, "a", invocation_id=f"n{number}", reason="r"),
            reopened("human", f"n{number}", number + 1),
        ]
    found = only(OPAQUE, *invocations)
    assert (len(found["transitions"]), found["transitions_total"]) == (MAX_TRANSITIONS, 61)
    assert (found["transitions"][-1]["trigger"], found["status"]) == ("resume", "running")


STOPPING = ev.JobStopping(job_id=JOB, by="ann", reason="enough", up_to_revision=0)
CANCELLED = ev.JobCancelled(job_id=JOB, by="ann")


@pytest.mark.parametrize("stop", [(YES, STOPPING), (STOPPING, YES), (STOPPING,)])
def test_what_was_approved_and_never_started_is_closed_when_its_job_has_ended(stop: tuple[Event, ...]) -> None:
    """Nothing can start it any more, and nobody waits for it."""
    contracts, moves = project(OPAQUE, ASKED, *stop, CANCELLED)
    assert moves == ["start→running", "suspend→waiting", "cancel→cancelled"]
    view = contracts.view()[0]
    assert (view["status"], view["outcome"], view["has_effect"]) == ("cancelled", "cancelled", "none")
    job = contracts.job
    assert job is not None
    assert step_view(job, job.entries["a"][-1])["state"] == "cancelled"
    assert project(OPAQUE, ASKED, *stop, CANCELLED, rejected(RejectReason.CANCELLED))[1] == moves


def test_what_is_parked_or_nobody_asked_for_is_not_closed_by_that() -> None:
    assert only(OPAQUE, started("a", "n1"), PARKED, CANCELLED)["status"] == "waiting"
    assert only(OPAQUE, CANCELLED)["status"] == "pending"


NONCES = st.sampled_from(["n1", "n2"])
ANY = st.one_of(
    st.builds(started, st.just("a"), NONCES, token=st.integers(1, 3), attempt=st.integers(0, 1)),
    st.builds(finished, st.just("a"), NONCES, outcome=st.sampled_from(Outcome), via=st.sampled_from(Via)),
    NONCES.map(lambda invocation_id: about(ev.InvocationParked, "a", invocation_id=invocation_id, reason="r")),
    st.builds(reopened, st.sampled_from(["human", "policy"]), NONCES),
    st.builds(rejected, st.sampled_from(RejectReason)),
    st.sampled_from([ASKED, YES, PARKED, failed(Via.HUMAN, "cancelled"), failed(Via.LEDGER), CANCELLED]),
)


@given(st.lists(ANY, max_size=12))
def test_a_contract_stands_where_the_fold_does_and_got_there_by_legal_moves(events: list[Event]) -> None:
    ended = events.index(CANCELLED) if CANCELLED in events else len(events)
    behind = [event for event in events[ended:] if not isinstance(event, ev.InvocationRejected)]  # the end closed it
    contracts, _ = project(OPAQUE, *events[:ended], *behind)
    state = contracts.job.keys.get(key_of("a")) if contracts.job is not None else None
    view = contracts.view(Level.TRANSITION)[0]
    over = contracts.job is not None and contracts.job.terminal is not None
    assert view["status"] == (step_status(state, over=over) if state is not None else ContractStatus.PENDING)
    at = ContractStatus.PENDING
    for moved in view["transitions"]:
        assert moved["from"] == at
        assert (at, moved["trigger"]) in TRANSITIONS
        at = ContractStatus(moved["to"])
