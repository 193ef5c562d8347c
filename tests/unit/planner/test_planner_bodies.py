"""A job whose nodes have bodies is not created: nothing runs one yet."""

import pytest

from aetheris.planner.core.creations import creation_group
from aetheris.protocol.plan.graph import InvalidPlan
from tests.testkit.body_histories import GRAPH
from tests.testkit.planners import submit


@pytest.mark.parametrize("node", [GRAPH["nodes"][0], {"id": "s", "kind": "session"}])
def test_a_plan_with_a_body_names_the_node(node: dict[str, str]) -> None:
    with pytest.raises(InvalidPlan) as refused:
        creation_group(submit(GRAPH | {"nodes": [node]}), "c1")
    assert refused.value.field == "nodes[0].kind"
