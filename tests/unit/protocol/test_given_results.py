"""Results that a body hands on: which call may be given which, attacked."""

from typing import Any

import pytest

from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages.events import Event
from tests.testkit.body_histories import (
    FLOW,
    GRAPH,
    PARENT,
    asked,
    body,
    call,
    ended,
    first,
    given,
    named,
    pair,
    take,
    taken_over,
    with_bodies,
)
from tests.testkit.body_histories import fold_bodies as fold
from tests.testkit.histories import graph, key_of, started

A = {"n": 1}


def test_a_call_is_given_the_result_of_a_call_of_the_same_body_that_has_succeeded() -> None:
    job = fold(FLOW, body("b1"), *pair(A), ended("t1", A, result={"ok": [1]}))
    plan = call("b1", {"x": given("/ok/0", args=A)}, said=None, made={"x": 1})
    assert take(job, plan)
    start = first("b1", "t2", {"x": 1}, node=plan.node_id)
    assert start_is_void(job, first("b1", "t2", {"x": 2}, node=plan.node_id)) == "it is not the call that was planned"
    assert take(job, start)
    assert job.keys[key_of(plan.node_id, {"x": 1})].status is KeyStatus.STARTED
    assert job.revision == 0


@pytest.mark.parametrize(
    "before",
    [
        [],
        [call("b1", A)],
        [*pair(A)],
        [*pair(A), ended("t1", A, outcome="permanent_failure")],
        [*pair(A), ended("t1", A, outcome="retryable_failure")],
    ],
    ids=["unknown", "planned", "started", "failed", "to be tried again"],
)
def test_what_has_not_succeeded_is_given_to_no_call(before: list[Event]) -> None:
    job = fold(FLOW, body("b1"), *before)
    assert not take(job, call("b1", {"x": given("", args=A)}, said=None, made={"x": None}))


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        ({"x": given("", "q")}, {}),
        ({"x": given("", PARENT)}, {}),
        ({"x": given("", "job-0/q")}, {}),
        ({"x": given("", args=A), "y": given("", "nobody")}, {}),
        ({"x": given("", args=A)}, {"made": None}),
        ({"x": given("", args=A)}, {"node": "p.x", "tool": None, "kind": "human", "form": {"title": "?"}}),
        ({"x": given("", args=A)}, {"depends_on": ["q"]}),
        ({"x": 1}, {}),
    ],
)
def test_what_is_no_result_of_its_own_or_none_s_to_be_given_is_not_planned(
    args: dict[str, Any], fields: dict[str, Any]
) -> None:
    job = fold(FLOW, body("b1"), *pair(A), ended("t1", A, result=1))
    more: dict[str, Any] = {"said": None, "made": {"x": 1}} | fields
    assert not take(job, call("b1", args, **more))


@pytest.mark.parametrize("tool", ["jobs.start", "jobs.continue", "local.read", "local.act"])
def test_the_system_s_own_calls_are_given_nothing(tool: str) -> None:
    """What job begins follows from the arguments as they are planned, and a function has its own at hand."""
    tools = GRAPH["tools"] | {tool: {"version": "1", "schema_hash": "s", "effect_class": "pure"}}
    job = fold(with_bodies(graph(*GRAPH["nodes"], **tools)), body("b1"), *pair(A), ended("t1", A, result=1))
    assert take(job, call("b1", {"x": 1}, tool, said=None))
    assert not take(job, call("b1", {"x": given("", args=A)}, tool, said=None, made={"x": 1}))


def test_a_result_of_another_body_is_not_its_own() -> None:
    two = graph(*GRAPH["nodes"], {"id": "p2", "kind": "workflow", "tool": "flow"}, **GRAPH["tools"])
    job = fold(with_bodies(two), body("b1"), started("p2", "c1", tool="flow"), *pair(A), ended("t1", A, result=1))
    assert not take(job, call("c1", {"x": given("", args=A)}, parent="p2", said=None, made={"x": 1}))


def test_a_body_that_takes_over_is_given_the_same() -> None:
    job = taken_over(*pair(A), ended("t1", A, result=1), call("b1", {"x": given("", args=A)}, said=None, made={"x": 1}))
    again = call("b2", {"x": given("", args=A)}, said=asked(named(A)), made={"x": 1})
    assert take(job, again)
    assert take(job, first("b2", "t2", {"x": 1}, node=again.node_id))


def test_what_undoes_a_call_may_be_given_what_that_was() -> None:
    job = fold(FLOW, body("b1"), *pair(A), ended("t1", A, result=1))
    undone = {"tool": "act", "args": {"own": given("", "p.x"), "used": given("", args=A)}}
    assert take(job, call("b1", {"x": given("", args=A)}, node="p.x", said=None, made={"x": 1}, compensate_with=undone))
    assert not take(job, call("b1", {"y": 1}, node="p.y", said=None, compensate_with=undone))
