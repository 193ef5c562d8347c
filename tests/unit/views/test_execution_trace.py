"""The execution trace: one list in log order, create entries before moves, and only what counted."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.fold.job_log import logged_events
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.contract import TRANSITIONS, ContractStatus, Trigger
from aetheris.views.contracts import Contracts, Level
from aetheris.views.execution_trace import execution_trace
from tests.testkit import histories as h
from tests.testkit.job_histories import node_finished, records, refunded

PLAN = h.graph({"id": "a"}, {"id": "b", "args": {"x": {"$ref": "a#/y"}}}, {"id": "c", "args": {"x": 1}})
FIELDS: dict[str, Any] = {"args_hash": args_hash({}), "tool_version": "1", "rule": "r"}
ASKED = h.about(ev.ApprovalRequested, "a", form={}, **FIELDS)
YES = h.about(ev.ApprovalDecided, "a", decision="approve", approver="eve", **FIELDS)
EDIT = h.about(ev.ApprovalDecided, "a", decision="edit", approver="eve", data={"x": 2}, **FIELDS)
A = execution_id(h.JOB, "a", h.key_of("a"))


def trace(*events: Event) -> list[dict[str, Any]]:
    return execution_trace(logged_events(records(h.created(), h.planned(PLAN), *events)))


def actions(*events: Event) -> list[str]:
    """Without what a plan begins with."""
    return [entry["action"].replace(A, "A") for entry in trace(*events)[4:]]


def test_it_begins_with_the_job_its_plan_and_the_contracts_whose_arguments_are_known() -> None:
    first = trace()
    c = execution_id(h.JOB, "c", h.key_of("c", {"x": 1}))
    assert [entry["action"] for entry in first] == [
        "create_job",
        "plan:0",
        f"create_contract:{A}",
        f"create_contract:{c}",
    ]
    assert first[2]["metadata"] == {
        "trigger": "plan_generated",
        "actor": "test",
        "contract_id": A,
        "irreversible": False,
    }
    assert (first[2]["node_id"], first[2]["seq"], first[2]["event_id"], first[0]["node_id"]) == ("a", 2, "e1", None)


def test_an_approval_a_start_and_an_end() -> None:
    done = (ASKED, YES, h.started("a", "n1"), h.finished("a", "n1", result={"y": 1}))
    assert actions(*done) == [
        "approval_requested:A",
        "transition:A:pending→running",
        "transition:A:running→waiting",
        "approve:A",
        "try:0:A",
        "transition:A:waiting→running",
        "transition:A:running→completed",
    ]
    found = trace(*done)
    assert (found[-1]["result"], found[-1]["metadata"]["trigger"]) == ({"y": 1}, "succeed")
    yes = next(entry for entry in found if entry["action"].startswith("approve:"))
    assert (yes["metadata"]["actor"], yes["metadata"]["by"]) == ("human", "eve")


def test_a_call_is_created_when_its_arguments_are_known_and_an_edit_creates_another() -> None:
    later = h.started("b", "n2", args={"x": 1})
    b = execution_id(h.JOB, "b", h.key_of("b", {"x": 1}))
    done = (h.started("a", "n1"), h.finished("a", "n1", result={"y": 1}))
    assert trace(*done, later)[-3:][0]["action"] == f"create_contract:{b}"
    edited = execution_id(h.JOB, "a", h.key_of("a", {"x": 2}))
    assert [entry["action"] for entry in trace(ASKED, EDIT)][-2:] == [f"create_contract:{edited}", f"edit:{A}"]


def test_each_try_doubt_and_reopening_has_an_entry_though_the_contract_does_not_move() -> None:
    doubt = h.about(ev.InvocationInDoubt, "a", invocation_id="n1", error_class="TimeoutError")
    again = h.about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="policy")
    failed = h.finished("a", "n2", outcome=Outcome.PERMANENT).model_copy(update={"error": "no money"})
    events = (h.started("a", "n1"), doubt, again, h.started("a", "n2", token=2), failed)
    assert actions(*events) == [
        "try:0:A",
        "transition:A:pending→running",
        "invocation_in_doubt:A",
        "invocation_reopened:A",
        "try:0:A",
        "transition:A:running→failed",
    ]
    assert trace(*events)[-1]["metadata"]["error_message"] == "no money"


def test_an_undoing_and_the_job_s_end_are_in_it() -> None:
    done = (h.started("a", "n1"), h.finished("a", "n1"), node_finished("a", 0, "side_effect_committed", None))
    cancel = ev.CancelRequested(job_id=h.JOB, by="ann", compensate=True)
    end = ev.JobCancelled(job_id=h.JOB, by="ann", compensated=("a",))
    assert actions(*done, cancel, node_finished("a", 0, "compensated", None), end)[-3:] == [
        "cancel_requested",
        "undo:A",
        "job_cancelled",
    ]


def test_a_pause_and_its_end_are_in_it_with_who_said_so() -> None:
    paused = ev.JobPaused(job_id=h.JOB, number=1, by="ann")
    found = trace(paused, paused, ev.JobResumed(job_id=h.JOB, number=1, by="bob"))[4:]
    reported = [(entry["action"], entry["metadata"]["actor"], entry["metadata"]["by"]) for entry in found]
    assert reported == [("job_paused:1", "human", "ann"), ("job_resumed:1", "human", "bob")]


def test_what_is_void_or_repeated_leaves_no_entry() -> None:
    done = (h.started("a", "n1"), h.finished("a", "n1"))
    assert actions(*done, *done, h.started("a", "n9"), YES, YES)[-1] == "approve:A"
    assert len(actions(*done, *done, h.started("a", "n9"), YES, YES)) == len(actions(*done)) + 1


def test_a_real_course_comes_in_the_order_of_the_log() -> None:
    found = execution_trace(logged_events(records(*refunded())))
    assert [entry["offset"] for entry in found] == sorted(entry["offset"] for entry in found)
    assert [entry["action"].partition(":")[0] for entry in found if entry["node_id"] is None] == [
        "create_job",
        "plan",
        "job_completed",
    ]
    assert execution_trace(logged_events([])) == []


NONCES = st.sampled_from(["n1", "n2"])
ANY = st.one_of(
    st.builds(h.started, st.just("a"), NONCES, token=st.integers(1, 3), attempt=st.integers(0, 1)),
    st.builds(h.finished, st.just("a"), NONCES, outcome=st.sampled_from(Outcome), via=st.sampled_from(Via)),
    NONCES.map(lambda invocation_id: h.about(ev.InvocationParked, "a", invocation_id=invocation_id, reason="r")),
    NONCES.map(
        lambda invocation_id: h.about(ev.InvocationReopened, "a", invocation_id=invocation_id, next_token=2, by="human")
    ),
    st.sampled_from([ASKED, YES, EDIT, h.started("b", "n3", args={"x": 1})]),
)


@given(st.lists(ANY, max_size=12))
def test_its_moves_are_legal_and_those_of_the_contracts(events: list[Event]) -> None:
    contracts = Contracts()
    for one in logged_events(records(h.created(), h.planned(PLAN), *events)):
        contracts.take(one)
    at: dict[str, ContractStatus] = {}
    for entry in trace(*events):
        what, _, rest = entry["action"].partition(":")
        if what == "create_contract":
            assert at.setdefault(rest, ContractStatus.PENDING) is ContractStatus.PENDING
        elif what == "transition":
            called, _, move = rest.partition(":")
            source, _, target = move.partition("→")
            assert at[called] == source
            assert TRANSITIONS[ContractStatus(source), Trigger(entry["metadata"]["trigger"])] == target
            at[called] = ContractStatus(target)
    views = {view["execution_id"]: view["status"] for view in contracts.view(Level.RESULT)}
    assert all(views.get(called, status) == status for called, status in at.items())
