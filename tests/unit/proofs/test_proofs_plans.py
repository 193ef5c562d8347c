"""What is no plan changes nothing, for the fold and for both verifiers: a revision must say a graph that can be run."""

from typing import Any

import pytest

from tests.testkit.histories import fold, planned
from tests.testkit.proof_histories import Log, clean, node, tool
from tests.testkit.standalone import verified as verify

AGAIN: dict[str, Any] = {"args": {"amount": 2}}
VOID: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "no id": [{"kind": "tool", "tool": "refund"}],
    "an id twice": [node("b", **AGAIN), node("b", args={"amount": 3})],
    "a tool that is not pinned": [node("c", "pay")],
    "after nobody": [node("c", "refund", "nobody")],
    "the result of nobody": [node("c", args={"lines": [{"amount": {"$ref": "nobody#/amount"}}]})],
    "after itself": [node("b", "refund", "b")],
    "its own result": [node("c", args={"amount": {"$ref": "c#/amount"}})],
    "two after each other": [node("c", "refund", "d"), node("d", "refund", "c")],
    "a circle with what was there": [node("a", "refund", "b")],
    "such a circle by a result": [node("a", args={"amount": {"$ref": "b#/amount"}})],
}


def with_revision(number: int, *nodes: dict[str, Any]) -> Log:
    """A job of two steps that goes well, whose plan was to be revised before."""
    log = Log(node("a"), node("b", "refund", "a"))
    log.plan(number, *nodes)
    log.step("n1", "a")
    log.step("n2", "b", after=[{"invocation_id": "n1", "result_hash": log.hashes["a"]}])
    log.complete()
    return log


@pytest.mark.parametrize("nodes", VOID.values(), ids=VOID)
def test_what_is_no_plan_is_in_force_for_nobody(nodes: list[dict[str, Any]]) -> None:
    first, diff = clean().graph, {"nodes": nodes, "tools": dict[str, Any]()}
    assert fold(planned(first), planned(diff, revision=1)).revision == 0
    assert verify(with_revision(1, *nodes).records).violations == ()


@pytest.mark.parametrize("number", [0, 2])
def test_nor_is_a_revision_that_does_not_follow(number: int) -> None:
    changed = node("b", **AGAIN)
    part = {"nodes": [changed], "tools": dict[str, Any]()}
    assert fold(planned(clean().graph), planned(part, revision=number)).revision == 0
    assert verify(with_revision(number, changed).records).violations == ()


@pytest.mark.parametrize("again", [1, 2])
def test_what_is_a_plan_is_in_force(again: int) -> None:
    """The next revision after a void one has its number."""
    log = Log(node("a"))
    for _ in range(again):
        log.plan(1, node("c", "pay"))
    log.revise(1, node("a", **AGAIN), node("c", "pay", args={"v": {"$ref": "a#/v"}}), tools={"pay": tool()})
    log.start("n1", revision=0)
    assert verify(log.records).ledger.pending_idempotency_keys == (), "the entry that it names is replaced"
    log.start("n2", revision=1)
    assert verify(log.records).ledger.pending_idempotency_keys == (log.key(),)
