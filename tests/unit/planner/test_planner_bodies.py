"""Jobs whose nodes have bodies: what is created, and what is refused by name."""

from typing import Any

import pytest

from aetheris.planner.core.creations import creation_group
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import InvalidPlan
from tests.testkit.body_histories import GRAPH
from tests.testkit.planners import submit


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
        ({"id": "s", "kind": "session"}, "nodes[0].kind"),
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
