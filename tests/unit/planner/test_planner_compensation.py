"""What the planner does after a stop: who is undone, in which order, once, and what the end says of it."""

from typing import Any

from aetheris.planner.core.partition import Partition
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel
from aetheris.protocol.messages.events import Event
from tests.testkit.histories import JOB, TENANT, about, finished, graph, started
from tests.testkit.planners import (
    Planner,
    PlannerSurroundings,
    events_of,
    of_type,
    ran,
    requests,
    started_planner,
    submit,
)

UNDO = {"tool": "act", "args": {"id": {"$ref": "a#/id"}}}
PLAN = graph(
    {"id": "a", "compensate_with": UNDO},
    {"id": "b", "depends_on": ["a"], "compensate_with": {"tool": "act"}},
    {"id": "c", "depends_on": ["b"]},
    {"id": "d", "depends_on": ["c"]},
)
DONE = (*ran("a", result={"id": 7}), *ran("b"))
FAILED = ran("c", outcome="permanent_failure")


def failed() -> Planner:
    return started_planner(PLAN).happens(*DONE, *FAILED)


def undone(node: str, **fields: Any) -> tuple[Event, Event]:
    args = {"id": 7} if node == "a" else None
    invocation_id, name = f"undo-{node}", f"{node}.undo"
    return started(name, invocation_id, args=args, revision=1), finished(name, invocation_id, args=args, **fields)


def cancel(*, compensate: bool) -> Cancel:
    return Cancel(job_id=JOB, by="bob", tenant=TENANT, reason="enough", compensate=compensate)


def state(surroundings: PlannerSurroundings) -> JobState:
    created, *rest = surroundings.log
    assert isinstance(created, ev.JobCreated)
    job = create_job(created, 0)
    for offset, event in enumerate(rest, 1):
        apply(job, event, offset)
    return job


def test_what_was_committed_is_undone_in_reverse_order_by_a_later_revision() -> None:
    planner = failed()
    (first, second) = of_type(planner.surroundings, ev.PlanGenerated)
    assert (first.revision, second.revision) == (0, 1)
    assert second.diff is not None
    assert [(node["id"], node.get("depends_on")) for node in second.diff["nodes"]] == [
        ("b.undo", None),
        ("a.undo", ["b.undo"]),
    ]
    assert of_type(planner.surroundings, ev.JobFailed) == []
    asked = requests(planner.take())[-1]
    assert (asked.body.nodes, asked.body.revision) == (("b.undo", "a.undo"), 1)


def test_each_is_reported_once_and_the_end_names_them() -> None:
    planner = failed()
    planner.take()
    planner.happens(*undone("b"))
    assert events_of(planner.take())[:3] == ["node_finished b.undo", "step_compensated b.undo", "node_finished b"]
    planner.happens(*undone("a"))
    (end,) = of_type(planner.surroundings, ev.JobFailed)
    assert (end.node_id, end.compensated) == ("c", ("b", "a"))
    results = [(one.node_id, one.result_type) for one in of_type(planner.surroundings, ev.NodeFinished)]
    assert results == [
        ("a", "side_effect_committed"),
        ("b", "side_effect_committed"),
        ("c", "permanent_failure"),
        ("b.undo", "side_effect_committed"),
        ("b", "compensated"),
        ("a.undo", "side_effect_committed"),
        ("a", "compensated"),
    ]
    assert of_type(planner.surroundings, ev.StepCompensated)[1].compensates == "a"


def test_a_planner_that_dies_anywhere_writes_the_same_and_folds_to_the_same() -> None:
    whole = failed().happens(*undone("b"), *undone("a")).surroundings
    for end in range(2, len(whole.log)):
        surroundings = PlannerSurroundings(log=whole.log[:end], ids=whole.ids[:end])
        surroundings.planner().restore()
        known = dict(zip(whole.ids, whole.log, strict=True))
        new = [
            (id_, event)
            for id_, event in zip(surroundings.ids[end:], surroundings.log[end:], strict=True)
            if id_ in known
        ]
        assert all(known[id_] == event for id_, event in new)
        assert len(of_type(PlannerSurroundings(log=whole.log[:end] + surroundings.log[end:]), ev.PlanGenerated)) <= 2
        assert state(surroundings).revision == min(1, state(surroundings).revision)


def test_a_repeated_or_stale_revision_undoes_nothing_twice() -> None:
    planner = failed()
    (_, plan) = of_type(planner.surroundings, ev.PlanGenerated)
    planner.happens(*undone("b"), plan, *undone("a"))
    later = plan.model_copy(update={"revision": 2})
    planner.happens(later)
    assert state(planner.surroundings).revision == 1


def test_a_compensation_that_fails_stops_those_after_it() -> None:
    planner = failed().happens(*undone("b", outcome="permanent_failure"))
    assert [stop.up_to_revision for stop in of_type(planner.surroundings, ev.JobStopping)] == [0, 1]
    (end,) = of_type(planner.surroundings, ev.JobFailed)
    assert end.compensated is None
    assert "b.undo failed" in end.error
    assert state(planner.surroundings).settled_key("a.undo") is None


def test_what_was_undone_in_part_is_not_undone() -> None:
    planner = failed().happens(*undone("b", outcome="compensatable_failure"))
    (end,) = of_type(planner.surroundings, ev.JobFailed)
    assert end.compensated is None
    assert of_type(planner.surroundings, ev.StepCompensated) == []


def test_a_partial_failure_is_undone_too_and_first() -> None:
    planner = started_planner(PLAN).happens(*ran("a", result={"id": 7}), *ran("b", outcome="compensatable_failure"))
    assert requests(planner.take())[-1].body.nodes == ("b.undo", "a.undo")
    planner.happens(*undone("b"), *undone("a"))
    (end,) = of_type(planner.surroundings, ev.JobFailed)
    assert (end.error, end.compensated) == ("took effect in part", ("b", "a"))


def test_nothing_is_undone_before_all_that_is_open_is_settled() -> None:
    plan = graph({"id": "a", "compensate_with": {"tool": "act"}}, {"id": "b"}, {"id": "c"})
    planner = started_planner(plan).happens(*ran("a"), started("c", "nc"), *ran("b", outcome="permanent_failure"))
    assert len(of_type(planner.surroundings, ev.PlanGenerated)) == 1
    planner.happens(about(ev.InvocationParked, "c", invocation_id="nc", reason="r"))
    assert len(of_type(planner.surroundings, ev.PlanGenerated)) == 1
    planner.happens(finished("c", "nc"))
    assert len(of_type(planner.surroundings, ev.PlanGenerated)) == 2


def test_after_an_unsure_failure_a_human_decides() -> None:
    for compensate in (True, False):
        planner = started_planner(PLAN).happens(*DONE, *ran("c", outcome="permanent_failure", via="ledger"))
        (asked,) = of_type(planner.surroundings, ev.JobWaiting)
        assert (asked.wait_type, asked.node_id, asked.correlation_key) == ("resolve", None, "c")
        assert len(of_type(planner.surroundings, ev.PlanGenerated)) == 1
        restored = planner.surroundings.planner().restore()
        assert len(of_type(planner.surroundings, ev.JobWaiting)) == 1
        restored.cancel(cancel(compensate=compensate))
        restored.settle()
        assert len(of_type(planner.surroundings, ev.WaitCompleted)) == 1
        assert len(of_type(planner.surroundings, ev.PlanGenerated)) == 1 + compensate
        assert len(of_type(planner.surroundings, ev.JobCancelled)) == 1 - compensate


def test_an_unsure_failure_with_nothing_to_undo_asks_nobody() -> None:
    planner = started_planner(graph({"id": "a"})).happens(*ran("a", outcome="permanent_failure", via="ledger"))
    assert of_type(planner.surroundings, ev.JobWaiting) == []
    assert len(of_type(planner.surroundings, ev.JobFailed)) == 1


def test_a_cancel_undoes_only_where_it_was_asked_for() -> None:
    planner = started_planner(PLAN).happens(*ran("a", result={"id": 7}))
    planner.cancel(cancel(compensate=False))
    planner.settle()
    assert len(of_type(planner.surroundings, ev.JobCancelled)) == 1
    planner = started_planner(PLAN).happens(*ran("a", result={"id": 7}))
    planner.cancel(cancel(compensate=True))
    planner.settle().happens(*undone("a"))
    (end,) = of_type(planner.surroundings, ev.JobCancelled)
    assert end.compensated == ("a",)


def test_a_cancel_without_stops_compensations_that_have_not_started() -> None:
    planner = failed().happens(*undone("b")[:1])
    planner.cancel(cancel(compensate=False))
    planner.settle()
    assert of_type(planner.surroundings, ev.JobCancelled) == []
    planner.happens(*undone("b")[1:])
    (end,) = of_type(planner.surroundings, ev.JobCancelled)
    assert end.compensated == ("b",)


def test_a_cancel_that_asks_for_compensation_does_not_stop_it() -> None:
    planner = failed()
    planner.cancel(cancel(compensate=True))
    planner.settle().happens(*undone("b"), *undone("a"))
    (end,) = of_type(planner.surroundings, ev.JobCancelled)
    assert end.compensated == ("b", "a")
    assert len(of_type(planner.surroundings, ev.JobStopping)) == 1


def test_a_cancel_just_behind_the_plan_stops_it() -> None:
    """Its writer had not read the plan when it was written."""
    planner = started_planner(PLAN)
    planner.happens(*DONE, *FAILED[:1])
    planner.append(FAILED[1], "other")
    while not planner.core.jobs[JOB].sent.undo:
        planner.round()
    planner.cancel(cancel(compensate=False))
    planner.settle()
    assert [stop.up_to_revision for stop in of_type(planner.surroundings, ev.JobStopping)] == [0, 1]
    assert len(of_type(planner.surroundings, ev.JobCancelled)) == 1


def test_a_compensation_whose_reference_leads_nowhere_has_failed() -> None:
    planner = started_planner(PLAN).happens(*ran("a", result={}), *ran("b"), *FAILED).happens(*undone("b"))
    (end,) = of_type(planner.surroundings, ev.JobFailed)
    assert end.compensated == ("b",)
    assert "a.undo failed" in end.error


def test_a_plan_may_not_name_what_it_compensates() -> None:
    core = Partition({}.get)
    for bad in ({"compensates": "a"}, {"compensate_with": {"tool": "unknown"}}):
        refused = core.submit(submit(graph({"id": "a"}, {"id": "b", **bad})), "cmd", 0)
        assert "nodes[1]" in str(refused)
