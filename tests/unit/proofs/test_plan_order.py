"""Nodes are ordered by what they come after, not by whose results they use; what is no plan has no order."""

import pytest

from aetheris.proofs.plans import Plans
from aetheris.proofs.records import fact_of


def planned(*nodes: dict[str, object]) -> Plans:
    plans = Plans()
    plans.add(fact_of(1, 1, "plan", "plan_generated", {"revision": 0, "task_graph": {"nodes": list(nodes)}}))
    return plans


USES_B = {"id": "a", "args": {"x": {"$ref": "b#/y"}}}


@pytest.mark.parametrize(
    ("nodes", "order"),
    [
        ((USES_B, {"id": "b"}), ["a", "b"]),
        (({**USES_B, "depends_on": ["b"]}, {"id": "b"}), ["b", "a"]),
        (({"id": "b"}, {"id": "a"}), ["a", "b"]),
        (({"id": "a", "depends_on": ["c"]}, {"id": "b"}, {"id": "c", "args": {"x": {"$ref": "b#"}}}), ["b", "c", "a"]),
    ],
)
def test_nodes_are_ordered_by_what_they_come_after(nodes: tuple[dict[str, object], ...], order: list[str]) -> None:
    plans = planned(*nodes)
    assert plans.order(0) == order
    assert plans.order(0) == order  # asked for again


def test_a_call_that_a_body_plans_is_in_its_place() -> None:
    plans = planned({"id": "b"}, {"id": "d"})
    assert plans.order(0) == ["b", "d"]
    plans.plan_call("c", {"id": "c"})
    assert plans.order(0) == ["b", "c", "d"]


@pytest.mark.parametrize(
    "nodes",
    [
        (USES_B, {"id": "b", "depends_on": ["a"]}),
        ({"id": "a", "depends_on": ["a"]},),
        ({"id": "a", "depends_on": ["nobody"]},),
        ({"id": "a"}, {"id": "a"}),
        ({"id": "a", "tool": "unpinned"},),
        (),
    ],
)
def test_what_is_no_graph_is_no_plan(nodes: tuple[dict[str, object], ...]) -> None:
    plans = planned(*nodes)
    assert not plans.effective
    assert plans.order(-1) == []
