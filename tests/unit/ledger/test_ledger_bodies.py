"""Workflows: what a body may start by itself, and what the ledger does for its calls."""

from aetheris.protocol.planning.policy import parse
from tests.testkit.body_histories import GRAPH, PARENT
from tests.testkit.ledgers import ALLOW_ALL, Surroundings

GRAPH_WITHOUT_Q = GRAPH | {"nodes": GRAPH["nodes"][:1]}


def test_a_grant_names_what_its_body_may_start_and_leaves_out_what_can_not_be_undone() -> None:
    ledger = Surroundings(GRAPH_WITHOUT_Q, parse(ALLOW_ALL)).ledger()
    ledger.request(PARENT)
    (grant,) = ledger.grants
    assert grant.nodes == (PARENT,)
    licence = grant.licence or {}
    assert {"act", "read", "llm", "time", "random"} <= set(licence)
    assert set(licence.values()) == {"all"}
    assert "pay" not in licence


def test_what_the_policy_looks_at_or_limits_or_refuses_is_not_in_it() -> None:
    rules = """
[[rules]]
name = "small"
tools = ["act"]
when = "args.n < 5"
effect = "allow"

[[rules]]
name = "few"
tools = ["read"]
effect = "allow"
rate = {calls = 3, per_s = 1.0}

[[rules]]
name = "no models"
tools = ["llm"]
effect = "deny"

"""
    ledger = Surroundings(GRAPH_WITHOUT_Q, parse(rules + ALLOW_ALL)).ledger()
    ledger.request(PARENT)
    assert not {"act", "read", "pay", "llm"} & set(ledger.grants[0].licence or {})


def test_a_plain_node_has_none() -> None:
    ledger = Surroundings({**GRAPH, "nodes": [{"id": "a", "kind": "tool", "tool": "act"}]}).ledger()
    ledger.request("a")
    assert ledger.grants[0].licence is None
