"""Budgets and rates in the ledger's core: counted from the log, whoever decides and however often it restarts."""

from typing import Any

import pytest

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ToolRequest
from aetheris.protocol.planning.policy import parse
from tests.testkit.histories import JOB, finished, graph, key_of, started
from tests.testkit.ledgers import Ledger, Surroundings

ARGS = {name: {"n": place} for place, name in enumerate("abcdef", start=1)}
NODES: tuple[dict[str, Any], ...] = tuple({"id": name, "args": args} for name, args in ARGS.items())


def ledger(limit: str, effect: str = "allow") -> Ledger:
    policy = parse(f'[[rules]]\nname = "few"\ntools = ["*"]\neffect = "{effect}"\n{limit}')
    return Surroundings(graph(*NODES), policy).ledger()


def rejected(ledger: Ledger) -> dict[str, Any]:
    events = [event for event in ledger.surroundings.log if isinstance(event, ev.InvocationRejected)]
    return {event.node_id: str(event.reason) for event in events}


def granted(ledger: Ledger) -> set[str]:
    return {grant.nodes[0] for grant in ledger.grants}


def ask(ledger: Ledger, *nodes: str) -> None:
    """All of them in one round."""
    for offset, node in enumerate(nodes):
        ledger.core.request(_request(ledger, node), offset)
    ledger.settle()


def _request(ledger: Ledger, node: str) -> Any:
    return ToolRequest(
        job_id=JOB,
        birth=0,
        as_of=len(ledger.surroundings.log) - 1,
        revision=0,
        plan_hash=digest(ledger.surroundings.plan),
        nodes=(node,),
    )


def test_calls_beyond_the_budget_are_rejected_also_where_all_are_asked_for_at_once() -> None:
    under_test = ledger("budget = {calls = 2}")
    ask(under_test, *"abcd")
    assert len(granted(under_test)) == 2
    assert set(rejected(under_test).values()) == {"budget"}
    again = under_test.surroundings.ledger()
    ask(again, "e")
    assert rejected(again)["e"] == "budget"


def test_an_amount_is_summed_over_the_calls_of_the_job() -> None:
    under_test = ledger('budget = {amount = "n", most = 7}')
    ask(under_test, "c", "d", "a")
    assert granted(under_test) == {"c", "d"}
    assert rejected(under_test) == {"a": "budget"}


def test_arguments_without_the_amount_are_over_budget() -> None:
    under_test = ledger('budget = {amount = "n.deep", most = 7}')
    ask(under_test, "a")
    assert rejected(under_test) == {"a": "budget"}


def test_what_surely_took_no_effect_is_given_back() -> None:
    under_test = ledger("budget = {calls = 1}")
    ask(under_test, "a")
    under_test.add(started("a", "n1", args=ARGS["a"]), finished("a", "n1", "permanent_failure", args=ARGS["a"]))
    state = under_test.job.keys[key_of("a", ARGS["a"])]
    assert (state.outcome, state.sure) == (Settled.FAILED, True)
    ask(under_test, "b")
    assert granted(under_test) == {"a", "b"}


def test_what_may_have_taken_effect_is_not() -> None:
    under_test = ledger("budget = {calls = 1}")
    ask(under_test, "a")
    under_test.add(started("a", "n1", args=ARGS["a"]))
    under_test.lease_lapses()
    assert under_test.job.keys[key_of("a", ARGS["a"])].status is KeyStatus.PARKED
    ask(under_test, "b")
    assert rejected(under_test) == {"b": "budget"}


def test_two_ledgers_at_a_time_do_not_spend_it_twice() -> None:
    """Both have charged before either has folded the other's charge: the order of the log decides."""
    under_test = ledger("budget = {calls = 1}")
    zombie = under_test.surroundings.ledger()
    ask(under_test, "a")
    zombie.core.request(_request(zombie, "b"), 9)
    zombie.core.to_fetch(zombie.surroundings.now())
    late = ev.PolicyAllowed(
        job_id=JOB,
        node_id="b",
        idempotency_key=key_of("b", ARGS["b"]),
        args_hash="h",
        tool_version="1",
        rule="few",
        cost=1.0,
    )
    under_test.add(late)
    ask(under_test, "b")
    assert granted(under_test) == {"a"}
    assert rejected(under_test) == {"b": "budget"}


def test_a_rate_makes_the_next_call_wait_also_across_a_restart() -> None:
    under_test = ledger("rate = {calls = 2, per_s = 60}")
    ask(under_test, "a", "b", "c")
    assert granted(under_test) == {"a", "b"}
    under_test.sleep(30)
    assert granted(under_test) == {"a", "b"}
    again = under_test.surroundings.ledger()
    ask(again, "c")
    again.sleep(29)
    assert "c" not in granted(again)
    again.sleep(2)
    assert "c" in granted(again)
    assert rejected(again) == {}


@pytest.mark.parametrize("count", [1, 3])
def test_requests_to_humans_are_charged_when_they_are_made(count: int) -> None:
    under_test = ledger(f"budget = {{calls = {count}}}", "approval")
    ask(under_test, *"abcd")
    assert under_test.written().count("approval_requested") == count
    assert len(rejected(under_test)) == 4 - count
