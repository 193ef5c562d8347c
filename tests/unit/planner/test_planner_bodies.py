"""Jobs whose nodes have bodies: what is created, and what is refused by name."""

from typing import Any

import pytest

from aetheris.planner.core.creations import creation_group
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import RejectReason
from aetheris.protocol.plan.graph import InvalidPlan, undo_id
from tests.testkit.body_histories import GRAPH, PARENT, body, call, ended, first, named, over, pair, worded
from tests.testkit.histories import JOB, about
from tests.testkit.planners import Planner, events_of, of_type, requests, started_planner, submit


def test_a_plan_with_a_workflow_is_of_version_2_and_comes_into_force() -> None:
    birth, plan = (one.event for one in creation_group(submit(GRAPH), "c1").facts)
    assert isinstance(birth, ev.JobCreated)
    assert isinstance(plan, ev.PlanGenerated)
    assert plan.version == 2
    job = create_job(birth, 0)
    assert apply(job, plan, 1)
    assert job.bodies is not None
    assert set(job.bodies.of) == {"p"}


def test_a_plan_without_one_stays_of_version_1() -> None:
    plain = GRAPH | {"nodes": [{"id": "a", "kind": "tool", "tool": "act"}]}
    plan = creation_group(submit(plain), "c1").facts[1].event
    assert isinstance(plan, ev.PlanGenerated)
    assert plan.version == 1


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"id": "p", "kind": "workflow", "tool": "act"}, "nodes[0].tool"),
        ({"id": "p", "kind": "workflow", "tool": "pay"}, "nodes[0].tool"),
        ({"id": "p", "kind": "workflow", "tool": "flow", "irreversible": True}, "nodes[0].tool"),
        ({"id": "p", "kind": "workflow", "tool": "other"}, "nodes[0].tool"),
    ],
)
def test_what_the_fold_would_call_void_names_the_node(node: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidPlan) as refused:
        creation_group(submit(GRAPH | {"nodes": [node]}), "c1")
    assert refused.value.field == field


def running() -> Planner:
    """The body b1 of p runs; q, which needs p, waits."""
    return started_planner(GRAPH).happens(body("b1"))


def says(planner: Planner, *events: ev.Event) -> Planner:
    """What bodies and their calls say, each call with its word."""
    for event in events:
        planner.append(worded(planner.core.jobs[JOB].job, event), "other")
        planner.fold()
    planner.write(planner.core.decide())
    return planner.settle()


def status(planner: Planner) -> str:
    return planner.surroundings.index[JOB].status


def test_a_call_is_asked_for_by_the_body_alone_and_its_end_is_told() -> None:
    planner = running()
    planner.take()
    says(planner, *pair({"n": 1}), ended("t1", {"n": 1}))
    assert events_of(planner.take()) == [f"node_finished {named({'n': 1})}"]
    (told,) = of_type(planner.surroundings, ev.NodeFinished)
    assert (told.result_type, told.step_index, told.attempt) == ("side_effect_committed", 2, 1)


def test_a_call_that_fails_is_no_failure_of_the_job() -> None:
    planner = running()
    says(planner, *pair({"n": 1}), ended("t1", {"n": 1}, outcome="permanent_failure"))
    (told,) = of_type(planner.surroundings, ev.NodeFinished)
    assert (told.node_id, told.result_type) == (named({"n": 1}), "permanent_failure")
    assert of_type(planner.surroundings, ev.JobStopping) == []
    says(planner, over("b1"))
    assert events_of(planner.take())[-1] == ("q",)


def test_the_job_ends_behind_the_last_call_with_the_result_of_its_workflow_alone() -> None:
    planner = started_planner(GRAPH | {"nodes": GRAPH["nodes"][:1]}).happens(body("b1"))
    left = call("b1", {"n": 2}, said=None)
    end = over("b1").model_copy(update={"result": "done", "output_hash": digest("done")})
    says(planner, *pair({"n": 1}), ended("t1", {"n": 1}), left, end)
    assert of_type(planner.surroundings, ev.JobCompleted) == []
    says(planner, about(ev.InvocationRejected, left.node_id, args={"n": 2}, reason=RejectReason.CANCELLED))
    (completed,) = of_type(planner.surroundings, ev.JobCompleted)
    assert completed.result == {PARENT: "done"}


def test_a_body_that_fails_stops_its_job_and_what_its_calls_did_is_undone_the_last_first() -> None:
    planner = running()
    undo = {"tool": "act", "args": {"undo": 1}}
    one = call("b1", {"n": 1}, compensate_with=undo)
    two = call("b1", {"n": 2}, said=None, compensate_with=undo)
    says(planner, one, first("b1", "t1", {"n": 1}), two, first("b1", "t2", {"n": 2}))
    says(planner, ended("t2", {"n": 2}), ended("t1", {"n": 1}), over("b1", "permanent_failure"))
    plan = of_type(planner.surroundings, ev.PlanGenerated)[-1]
    nodes = [(node["id"], node["compensates"], node.get("depends_on")) for node in plan.diff["nodes"]]
    of_one, of_two = undo_id(one.node_id), undo_id(two.node_id)
    assert nodes == [(of_one, one.node_id, None), (of_two, two.node_id, [of_one])]
    assert planner.core.jobs[JOB].job.revision == 1
    assert requests(planner.outputs)[-1].body.nodes == (of_one, of_two)


def test_a_body_that_waits_for_a_human_makes_its_job_wait_and_takes_up_no_room() -> None:
    planner = running()
    says(planner, call("b1", {"n": 1}, tool="pay"))
    assert status(planner) == "running"
    form = {"id": "r", "title": "t"}
    asks = {"rule": "ask", "form": form, "args_hash": args_hash({"n": 1}), "tool_version": "1"}
    node = named({"n": 1}, "pay")
    says(planner, about(ev.ApprovalRequested, node, args={"n": 1}, tool="pay", **asks))
    assert status(planner) == "waiting"
    assert len(planner.core.in_flight) == 0
    says(planner, *pair({"n": 2}, name="t2", said=None))
    assert status(planner) == "running"


def test_a_restart_tells_what_was_not_told_and_asks_for_no_call() -> None:
    planner = running()
    planner.append(worded(planner.core.jobs[JOB].job, call("b1", {"n": 1})), "other")
    for event in (first("b1", "t1", {"n": 1}), ended("t1", {"n": 1})):
        planner.append(event, "other")
    again = planner.surroundings.planner().restore()
    assert events_of(again.take()) == [f"node_finished {named({'n': 1})}"]
    assert again.surroundings.planner().restore().take() == []
