"""What a job spent, from its records alone: charges, what gives them back, and its model's answers."""

from typing import Any

from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.prompts import Brief, Limits
from aetheris.views.spending import RuleCharges, spending
from tests.testkit.histories import about, created, finished, graph, planned, started
from tests.testkit.job_histories import records

PLAN = planned(graph({"id": "a"}, {"id": "b"}, {"id": "c"}))


def allowed(node: str, cost: float | None, rule: str = "few") -> Event:
    return about(ev.PolicyAllowed, node, args_hash=args_hash(None), tool_version="1", rule=rule, cost=cost)


def asked(node: str, cost: float) -> Event:
    named: dict[str, Any] = {"args_hash": args_hash(None), "tool_version": "1", "rule": "much"}
    return about(ev.ApprovalRequested, node, **named, form={}, cost=cost)


def decided(node: str, decision: Decision) -> Event:
    named: dict[str, Any] = {"args_hash": args_hash(None), "tool_version": "1", "rule": "much"}
    return about(ev.ApprovalDecided, node, **named, decision=decision, approver="bob")


def rules(*events: Event) -> dict[str, RuleCharges]:
    found = spending(records(created(), PLAN, *events))
    assert found is not None
    return dict(found.rules)


def test_each_call_is_charged_once_to_its_rule() -> None:
    again = (allowed("a", 250), started("a", "n1"), allowed("a", 250))
    assert rules(*again, allowed("b", 12.5), allowed("c", None)) == {"few": RuleCharges(2, 262.5)}


def test_what_surely_had_no_effect_gives_back_what_it_took_and_what_may_have_does_not() -> None:
    surely = finished("a", "n1", "permanent_failure")
    assert rules(allowed("a", 5), started("a", "n1"), surely) == {}
    doubtful = about(ev.InvocationInDoubt, "a", invocation_id="n1", error_class="lost")
    assert rules(allowed("a", 5), started("a", "n1"), doubtful) == {"few": RuleCharges(1, 5)}


def test_a_no_gives_back_and_a_yes_does_not() -> None:
    assert rules(asked("a", 7), decided("a", Decision.REJECT)) == {}
    assert rules(asked("a", 7), decided("a", Decision.APPROVE)) == {"much": RuleCharges(1, 7)}


def test_a_void_record_charges_nothing() -> None:
    found = spending(records(created(), allowed("a", 5), created()))
    assert found is not None
    assert "few" not in found.rules or found.rules["few"].calls == 1


def test_of_no_job_nothing_is_said() -> None:
    assert spending(records(allowed("a", 5))) is None


def test_the_answers_of_a_model_are_summed_and_an_unknown_price_is_none() -> None:
    brief = Brief(model="m", limits=Limits(cost_usd=0.5))
    birth = created().model_copy(update={"brief": brief, "agent": "agent-7"})
    usage = {"model": "m", "input_tokens": 100, "output_tokens": 20, "cost_usd": 0.25}
    answer = finished("a", "n1").model_copy(update={"usage": usage})
    other = finished("b", "n2").model_copy(update={"usage": {**usage, "cost_usd": None}})
    found = spending(records(birth, PLAN, started("a", "n1"), answer))
    assert found is not None
    assert (found.agent, found.answers.tokens, found.answers.cost_usd) == ("agent-7", 120, 0.25)
    assert found.limits is not None
    assert found.limits.cost_usd == 0.5
    found = spending(records(birth, PLAN, started("a", "n1"), answer, started("b", "n2"), other))
    assert found is not None
    assert (found.answers.tokens, found.answers.cost_usd) == (240, None)
