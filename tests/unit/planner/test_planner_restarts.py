"""A planner that comes back, and crashes anywhere: the same end, and nothing twice."""

import random
from typing import Any

import pytest

from aetheris.planner.core.decisions import Append
from aetheris.protocol.messages import events as ev
from tests.testkit.histories import JOB, graph, started
from tests.testkit.planners import (
    PURE,
    WIDE,
    Planner,
    PlannerSurroundings,
    events_of,
    id_of,
    of_type,
    ran,
    requests,
    started_planner,
    submit,
)


class TestRestart:
    def test_an_open_job_is_taken_up_as_it_stands(self) -> None:
        planner = started_planner(WIDE).happens(started("a", "na"))
        again = planner.surroundings.planner().restore()
        assert events_of(again.take()) == [("b",)]

    def test_what_was_lost_with_the_process_is_written_with_the_same_ids(self) -> None:
        planner = started_planner(PURE)
        for event in (*ran("a"), *ran("b")):
            planner.append(event, "other")
        planner.fold()
        lost = [id_of(one) for output in planner.core.decide() if isinstance(output, Append) for one in output.facts]
        planner.surroundings.planner().restore()
        assert planner.surroundings.ids[-3:] == lost
        assert events_of(planner.surroundings.planner().restore().take()) == []

    @pytest.mark.parametrize("seed", range(40))
    def test_crashes_anywhere_lead_to_the_same_end(self, seed: int) -> None:
        print(f"seed {seed}")  # noqa: T201  names the failing run
        rng = random.Random(seed)  # noqa: S311  a repeatable test
        surroundings = PlannerSurroundings()
        planner = surroundings.planner(runs=rng.random() < 0.5)
        plan = random_plan(rng)
        planner.submit(submit(plan))
        doomed = rng.random() < 0.3
        asked: set[str] = set()
        for _ in range(2000):
            if (
                surroundings.log
                and isinstance(surroundings.log[-1], ev.TERMINAL)
                and planner.folded == len(surroundings.log)
            ):
                break
            planner = step(planner, rng, asked, doomed=doomed)
        nodes = [node["id"] for node in plan["nodes"]]
        reported = {one.node_id: one.result_type for one in of_type(surroundings, ev.NodeFinished)}
        ends = [event for event in surroundings.log if isinstance(event, ev.TERMINAL)]
        assert len({type(end) for end in ends}) == 1
        if isinstance(ends[0], ev.JobCompleted):
            assert set(reported) == set(nodes)
        else:
            assert "permanent_failure" in reported.values()
        reports = [
            id_
            for id_, event in zip(surroundings.ids, surroundings.log, strict=True)
            if isinstance(event, ev.NodeFinished)
        ]
        assert len(set(reports)) == len(reported)
        assert surroundings.index[JOB].status == ends[0].event_type.removeprefix("job_")


def step(planner: Planner, rng: random.Random, asked: set[str], *, doomed: bool) -> Planner:
    """One thing happens: a round, a crash before or after writing, or an asked-for node runs."""
    asked.update(node for one in requests(planner.take()) for node in one.body.nodes[: rng.randint(1, 3)])
    chance = rng.random()
    if chance < 0.1:
        planner = planner.surroundings.planner(runs=rng.random() < 0.5)
        planner.fold()
        planner.write(planner.core.recover())
    elif chance < 0.2:
        planner.fold()
        planner.core.decide()
        planner = planner.surroundings.planner()
        planner.fold()
        planner.write(planner.core.recover())
    elif chance < 0.6 and asked:
        node = rng.choice(sorted(asked))
        asked.discard(node)
        progress = planner.core.jobs.get(JOB)
        if progress is not None and progress.job.stopping is None and JOB in planner.surroundings.index:
            failed = doomed and rng.random() < 0.2
            run(planner, node, failed=failed)
    else:
        planner.round()
    return planner


def run(planner: Planner, node: str, *, failed: bool) -> None:
    """The executor appends, where the log lets it: never twice, never after a stop, never before what it needs."""
    log = planner.surroundings.log
    done = {event.node_id for event in log if isinstance(event, ev.ToolInvocationFinished)}
    plan = log[1]
    assert isinstance(plan, ev.PlanGenerated)
    assert plan.task_graph is not None
    needed = next(one.get("depends_on", []) for one in plan.task_graph["nodes"] if one["id"] == node)
    stopped = any(isinstance(event, ev.JobStopping) for event in log)
    if node in done or stopped or not set(needed) <= done:
        return
    for event in ran(node, outcome="permanent_failure" if failed else "success"):
        planner.append(event, "executor")


def random_plan(rng: random.Random) -> dict[str, Any]:
    count = rng.randint(1, 12)
    nodes = [{"id": f"n{i}", "depends_on": [f"n{j}" for j in range(i) if rng.random() < 0.3]} for i in range(count)]
    rng.shuffle(nodes)
    return graph(*nodes)
