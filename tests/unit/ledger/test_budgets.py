"""Budgets and rates in the ledger's core: counted from the log, whoever decides and however often it restarts."""

from typing import Any

import pytest

from aetheris.ledger.core.policy import parse
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.fold.state import Settled, St
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ToolRequest
from tests.testkit.histories import JOB, finished, graph, key_of, started
from tests.testkit.ledgers import Ledger, Surroundings

ARGS = {name: {"n": place} for place, name in enumerate("abcdef", start=1)}
NODES: tuple[dict[str, Any], ...] = tuple({"id": name, "args": args} for name, args in ARGS.items())


def ledger(limit: str, effect: str = "allow") -> Ledger:
    policy = parse(f'[[rules]]\nname = "few"\ntools = ["*"]\neffect = "{effect}"\n{limit}')
    return Surroundings(graph(*NODES), policy).ledger()


def rejected(of: Ledger) -> dict[str, Any]:
    events = [event for event in of.world.log if isinstance(event, ev.InvocationRejected)]
    return {event.node_id: event.reason.value for event in events}


def granted(of: Ledger) -> set[str]:
    return {grant.nodes[0] for grant in of.grants}


def ask(of: Ledger, *nodes: str) -> None:
    """All of them in one round."""
    for offset, node in enumerate(nodes):
        of.core.request(_request(of, node), offset)
    of.settle()


def _request(of: Ledger, node: str) -> Any:
    return ToolRequest(
        job_id=JOB,
        birth=0,
        as_of=len(of.world.log) - 1,
        revision=0,
        plan_hash=digest(of.world.plan),
        nodes=(node,),
    )


def test_calls_beyond_the_budget_are_rejected_also_where_all_are_asked_for_at_once() -> None:
    of = ledger("budget = {calls = 2}")
    ask(of, *"abcd")
    assert len(granted(of)) == 2
    assert set(rejected(of).values()) == {"budget"}
    again = of.world.ledger()
    ask(again, "e")
    assert rejected(again)["e"] == "budget"


def test_an_amount_is_summed_over_the_calls_of_the_job() -> None:
    of = ledger('budget = {amount = "n", most = 7}')
    ask(of, "c", "d", "a")
    assert granted(of) == {"c", "d"}
    assert rejected(of) == {"a": "budget"}


def test_arguments_without_the_amount_are_over_budget() -> None:
    of = ledger('budget = {amount = "n.deep", most = 7}')
    ask(of, "a")
    assert rejected(of) == {"a": "budget"}


def test_what_surely_took_no_effect_is_given_back() -> None:
    of = ledger("budget = {calls = 1}")
    ask(of, "a")
    of.add(started("a", "n1", args=ARGS["a"]), finished("a", "n1", "permanent_failure", args=ARGS["a"]))
    state = of.job.keys[key_of("a", ARGS["a"])]
    assert (state.outcome, state.sure) == (Settled.FAILED, True)
    ask(of, "b")
    assert granted(of) == {"a", "b"}


def test_what_may_have_taken_effect_is_not() -> None:
    of = ledger("budget = {calls = 1}")
    ask(of, "a")
    of.add(started("a", "n1", args=ARGS["a"]))
    of.lease_lapses()
    assert of.job.keys[key_of("a", ARGS["a"])].st is St.PARKED
    ask(of, "b")
    assert rejected(of) == {"b": "budget"}


def test_two_ledgers_at_a_time_do_not_spend_it_twice() -> None:
    """Both have charged before either has folded the other's charge: the order of the log decides."""
    of = ledger("budget = {calls = 1}")
    zombie = of.world.ledger()
    ask(of, "a")
    zombie.core.request(_request(zombie, "b"), 9)
    zombie.core.to_fetch(zombie.world.now())
    late = ev.PolicyAllowed(
        job_id=JOB,
        node_id="b",
        idempotency_key=key_of("b", ARGS["b"]),
        args_hash="h",
        tool_version="1",
        rule="few",
        cost=1.0,
    )
    of.add(late)
    ask(of, "b")
    assert granted(of) == {"a"}
    assert rejected(of) == {"b": "budget"}


def test_a_rate_makes_the_next_call_wait_also_across_a_restart() -> None:
    of = ledger("rate = {calls = 2, per_s = 60}")
    ask(of, "a", "b", "c")
    assert granted(of) == {"a", "b"}
    of.sleep(30)
    assert granted(of) == {"a", "b"}
    again = of.world.ledger()
    ask(again, "c")
    again.sleep(29)
    assert "c" not in granted(again)
    again.sleep(2)
    assert "c" in granted(again)
    assert rejected(again) == {}


@pytest.mark.parametrize("count", [1, 3])
def test_requests_to_humans_are_charged_when_they_are_made(count: int) -> None:
    of = ledger(f"budget = {{calls = {count}}}", "approval")
    ask(of, *"abcd")
    assert of.written().count("approval_requested") == count
    assert len(rejected(of)) == 4 - count
