"""What makes a plan valid, and how arguments meet a schema."""

import json
import time
import timeit
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from aetheris.protocol.base.references import UnresolvedReference, references, resolve
from aetheris.protocol.fold.state import PlanEntry
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.plan.graph import InvalidPlan, Node, TaskGraph, check_graph, read_graph
from aetheris.protocol.planning.schemas import (
    ArgsRefused,
    SchemaRefused,
    check_args,
    check_schema,
    graph_json,
    pinned,
    plan_hash,
    with_defaults,
)
from tests.testkit.histories import graph, planned

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "number"},
        "currency": {"type": "string", "default": "EUR"},
        "lines": {"type": "array", "items": {"type": "object", "required": ["sku"]}},
    },
    "required": ["amount"],
    "additionalProperties": False,
}
REGISTRY = {
    "pay": RegistryEntry.model_validate(
        {"name": "pay", "version": "2", "schema": SCHEMA, "schema_hash": "h", "effect_class": "opaque"}
    )
}


def plan(*nodes: dict[str, Any]) -> TaskGraph:
    return TaskGraph.model_validate({"nodes": [{"tool": "pay", "args": {"amount": 1}} | node for node in nodes]})


@pytest.mark.parametrize(
    ("nodes", "field"),
    [
        (({"id": "a"}, {"id": "a"}), "nodes[1].id"),
        (({"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}), "nodes[0].depends_on"),
        (({"id": "a", "depends_on": ["a"]},), "nodes[0].depends_on"),
        (({"id": "a", "depends_on": ["z"]},), "nodes[0].depends_on[0]"),
        (({"id": "a", "args": {"amount": {"$ref": "z#/x"}}},), "nodes[0].args/amount"),
        (({"id": "a", "kind": "time"},), "nodes[0].tool"),
        (({"id": "a", "tool": None},), "nodes[0].tool"),
    ],
)
def test_a_bad_graph_is_refused_by_field(nodes: tuple[dict[str, Any], ...], field: str) -> None:
    with pytest.raises(InvalidPlan) as refused:
        check_graph(plan(*nodes).nodes)
    assert refused.value.field == field


def test_a_reference_is_a_dependency() -> None:
    graph = plan({"id": "b", "args": {"amount": {"$ref": "a#/x"}}}, {"id": "a"})
    assert check_graph(graph.nodes) == ("a", "b")


def test_independent_nodes_keep_their_declared_order() -> None:
    assert check_graph(plan({"id": "z"}, {"id": "m"}, {"id": "a"}).nodes) == ("z", "m", "a")


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({}, ""),
        ({"amount": "1"}, "/amount"),
        ({"amount": 1, "extra": 1}, ""),
        ({"amount": 1, "lines": [{"sku": 1}, {}]}, "/lines/1"),
        ({"amount": {"$ref": "a#/x"}, "currency": 5}, "/currency"),
    ],
)
def test_arguments_against_the_schema(args: dict[str, Any], field: str) -> None:
    with pytest.raises(ArgsRefused) as refused:
        check_args(SCHEMA, args)
    assert refused.value.field == field
    assert "sku" not in str(refused.value) or "missing" in str(refused.value)


def test_what_a_reference_stands_for_is_not_judged() -> None:
    check_args(SCHEMA, {"amount": {"$ref": "a#/x"}, "lines": [{"$ref": "a#/line"}]})
    check_args(SCHEMA, {"amount": 1, "lines": {"$ref": "a#/lines"}})


def test_what_no_value_can_put_right_is_refused_beside_a_reference() -> None:
    for args, field, rule in (
        ({"lines": {"$ref": "a#/x"}}, "", "missing amount"),
        ({"amount": {"$ref": "a#/x"}, "other": {"$ref": "a#/y"}}, "", "unknown argument other"),
        ({"amount": 1, "lines": [{"$ref": "a#/x"}, {"sku": 1}, {}]}, "/lines/2", "missing sku"),
        ({"amount": "x", "lines": {"$ref": "a#/x"}}, "/amount", "must be number"),
    ):
        with pytest.raises(ArgsRefused) as refused:
            check_args(SCHEMA, args)
        assert (refused.value.field, refused.value.rule) == (field, rule)


def test_rules_over_what_holds_a_reference_wait_for_its_value() -> None:
    rows = {"type": "array", "contains": {"const": 5}, "uniqueItems": True}
    schema = {"type": "object", "properties": {"rows": rows, "one": {"oneOf": [{"type": "string"}, {"type": "null"}]}}}
    check_args(schema, {"rows": [1, {"$ref": "a#/x"}], "one": {"$ref": "a#/y"}})
    with pytest.raises(ArgsRefused, match="contains"):
        check_args(schema, {"rows": [1, 2], "one": {"$ref": "a#/y"}})


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(\w+\s?)*$", r"(x+x+)+y", r"([a-z]+)*[0-9]"])
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    check_schema(schema)
    took = min(
        timeit.repeat(lambda: _refused(schema, {"a": "a" * 20_000 + "!"}), timer=time.process_time, number=1, repeat=3)
    )
    assert took < 1, "backtracking would take longer than there has been time"


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(?<!a)b", r"(a)\1", r"((a{1000}){1000}){1000}", "("])
def test_a_pattern_that_needs_more_is_refused_where_it_is_declared(pattern: str) -> None:
    with pytest.raises(SchemaRefused, match="properties/a/pattern looks around or back, or is too large"):
        check_schema({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})


@pytest.mark.parametrize("held", [{}, {"ref": {"$ref": "a#/x"}}, {"refs": [{"$ref": "a#/x"}] * 40_000}])
def test_many_errors_cost_no_more_than_a_look_at_the_arguments(held: dict[str, Any]) -> None:
    """A megabyte of wrong values must not hold a service's loop."""
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "minItems": 1}}}
    took = min(
        timeit.repeat(
            lambda: _refused(schema, {"a": [1] * 200_000} | held), timer=time.process_time, number=1, repeat=3
        )
    )
    assert took < 1


NAMES = st.sampled_from(["a", "b"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.0, 0.5, "", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=5,
)


def objects(schema: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = {
        "type": st.just("object"),
        "properties": st.dictionaries(NAMES, schema, max_size=2),
        "required": st.lists(NAMES, max_size=1),
        "additionalProperties": st.booleans() | schema,
    }
    return st.fixed_dictionaries({}, optional=body)


SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array", ["null", "string"]])},
        optional={"minimum": st.just(1), "default": st.just(7), "enum": st.just([1, "x"])},
    ),
    lambda inner: (
        objects(inner)
        | st.fixed_dictionaries({"items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
    ),
    max_leaves=5,
)


@settings(max_examples=500, deadline=None)
@given(objects(SCHEMAS), st.dictionaries(NAMES, VALUES, max_size=2))
def test_what_is_taken_is_what_another_implementation_takes(schema: dict[str, Any], args: dict[str, Any]) -> None:
    assert (not _refused(schema, args)) == Draft202012Validator(schema).is_valid(args)


def _refused(schema: dict[str, Any], args: dict[str, Any]) -> str:
    try:
        check_args(schema, args)
    except ArgsRefused as error:
        return error.rule
    return ""


def test_absent_and_default_are_one_plan() -> None:
    absent = pinned(plan({"id": "a"}), REGISTRY)
    given = pinned(plan({"id": "a", "args": {"amount": 1, "currency": "EUR"}}), REGISTRY)
    assert plan_hash(graph_json(absent)) == plan_hash(graph_json(given))
    assert absent.tools["pay"].version == "2"
    assert with_defaults(SCHEMA, {"amount": 1}) == {"amount": 1, "currency": "EUR"}


def test_a_pinned_plan_survives_the_log() -> None:
    graph = pinned(plan({"id": "a"}, {"id": "b", "depends_on": ["a"], "retry": {"max_attempts": 2}}), REGISTRY)
    assert TaskGraph.model_validate(graph_json(graph)) == graph


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(InvalidPlan, match=r"nodes\[0\]\.tool"):
        pinned(plan({"id": "a", "tool": "nope"}), REGISTRY)


def test_resolve() -> None:
    args = {"to": {"$ref": "lookup#/customer/email"}, "n": [{"$ref": "lookup#/list/1"}], "all": {"$ref": "lookup#"}}
    result = {"customer": {"email": "a@b"}, "list": [1, 2]}
    assert resolve(args, {"lookup": result}) == {"to": "a@b", "n": [2], "all": result}
    assert [reference.at for reference in references(args)] == ["/to", "/n/0", "/all"]


@pytest.mark.parametrize("target", ["lookup#/none", "lookup#/list/2", "lookup#/list/01", "other#", "lookup#x"])
def test_a_reference_that_leads_nowhere(target: str) -> None:
    with pytest.raises(UnresolvedReference):
        resolve({"$ref": target}, {"lookup": {"list": [1, 2]}})


def test_a_changed_copy_of_a_plan_has_its_own_graph() -> None:
    plan = planned(graph({"id": "a"}))
    assert [node.id for node in plan.graph.nodes] == ["a"]
    assert [node.id for node in plan.model_copy(update={"task_graph": graph({"id": "b"})}).graph.nodes] == ["b"]


def test_a_changed_copy_of_a_node_refers_to_what_its_own_arguments_do() -> None:
    node = Node(id="b", tool="t", args={"x": {"$ref": "a#/x"}})
    assert [reference.node_id for reference in node.refs] == ["a"]
    assert node.model_copy(update={"args": {"x": 1}}).refs == ()


def test_a_node_may_shorten_its_tools_timeout_and_never_lengthen_it() -> None:
    graph = pinned(plan({"id": "a", "timeout_s": 0.5}), REGISTRY)
    (node,) = graph.nodes
    pin = graph.tools[node.tool_name]
    assert PlanEntry(0, node, pin).timeout_s == 0.5
    assert PlanEntry(0, node.model_copy(update={"timeout_s": 1e6}), pin).timeout_s == pin.timeout_s
    for refused in ({"timeout_s": pin.timeout_s + 1}, {"kind": "time", "tool": None, "args": {}, "timeout_s": 1}):
        with pytest.raises(InvalidPlan) as why:
            pinned(plan({"id": "a"} | refused), REGISTRY)
        assert why.value.field == "nodes[0].timeout_s"
    longer = PlanEntry(0, node.model_copy(update={"timeout_s": 0.7}), pin)
    assert not PlanEntry(0, node, pin).same_as(longer)


def _doubled(steps: int, refer: str = "#/$defs/{}") -> dict[str, Any]:
    """A schema of few lines, each of which is judged twice as often as the one before it."""
    parts = dict[str, Any]()
    for step in range(steps):
        parts[f"s{step}"] = {"$anchor": f"s{step}", "allOf": [{"$ref": refer.format(f"s{step + 1}")}] * 2}
    return {"type": "object", "$ref": refer.format("s0"), "$defs": {**parts, f"s{steps}": {"$anchor": f"s{steps}"}}}


@pytest.mark.parametrize("refer", ["#/$defs/{}", "#{}"])
def test_a_schema_that_multiplies_is_refused(refer: str) -> None:
    check_schema(_doubled(8, refer))
    with pytest.raises(SchemaRefused, match="multiplies"):
        check_schema(_doubled(40, refer))
    with pytest.raises(SchemaRefused, match="multiplies"):
        check_schema(_doubled(2_000, refer))


def test_a_schema_that_recurs_is_taken_and_one_that_points_nowhere_is_not() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    check_schema(tree)
    check_schema({"type": "object", "properties": {"a/b~": {"type": "string"}, "c": {"$ref": "#/properties/a~1b~0"}}})
    for nowhere in ("#/$defs/none", "#none", "#/properties/1"):
        with pytest.raises(SchemaRefused, match="doesn't have"):
            check_schema({"type": "object", "properties": {"x": {"$ref": nowhere}}})


def test_pins_that_jobs_have_in_common_are_held_once_and_others_are_refused_as_ever() -> None:
    pin = {"version": "1", "schema_hash": "s" * 64, "effect_class": "pure"}
    said = {"tools": {"look": pin}, "nodes": [{"id": "a", "tool": "look"}]}
    first, second = (read_graph(json.loads(json.dumps(said))) for _ in range(2))
    assert first == second == TaskGraph.model_validate(said)
    assert first.tools["look"] is second.tools["look"]
    assert first.tools is not second.tools
    for wrong in ({"look": {"version": "1"}}, {"look": 3}, {"a b": pin}, {"look": {**pin, "timeout_s": "long"}}):
        with pytest.raises(ValidationError):
            read_graph({**said, "tools": wrong})
    long = {**said, "tools": {"look": {**pin, "volatile": ["v" * 40_000]}}}
    assert read_graph(long).tools["look"] is not read_graph(long).tools["look"]
