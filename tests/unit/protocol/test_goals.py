"""A goal's body: what it asks and makes upon each answer, what it tells its model, and when it ends."""

from typing import Any

import pytest

from aetheris.protocol.fold.state import Settled
from aetheris.protocol.plan.graph import EffectClass, Kind, ToolPin
from aetheris.protocol.plan.prompts import Brief, Limits
from aetheris.protocol.planning.goals import AnsweredCall, GoalArgs, GoalBody, GoalCall, decision_of

GOAL = "do it"
PINS = {
    "act": ToolPin(version="1", schema_hash="s", effect_class=EffectClass.IDEMPOTENT, volatile=("at",)),
    "look": ToolPin(version="1", schema_hash="s", effect_class=EffectClass.PURE),
}
ACT, OTHER, LOOK = ({"tool": tool, "args": args} for tool, args in (("act", {"n": 1}), ("act", {}), ("look", {})))
END = {"model": "fast", "text": "done"}


def brief(planning: Any = "agent", **limits: Any) -> Brief:
    return Brief(model="fast", tools=tuple(PINS), planning=planning, limits=Limits.model_validate(limits))


def says(*calls: dict[str, Any], text: str = "") -> dict[str, Any]:
    return {"model": "fast", "text": text, "calls": list(calls)}


class GoalTalk:
    """A body, and what it has asked for so far."""

    def __init__(self, planning: Any = "agent", *, args: GoalArgs | None = None, **limits: Any) -> None:
        self.body = GoalBody(args or GoalArgs(goal=GOAL, brief=brief(planning, **limits)), PINS)
        self.asked: dict[str, GoalCall] = {}
        self._take(self.body.begin())

    def _take(self, calls: list[GoalCall]) -> list[str]:
        assert self.asked.keys().isdisjoint(one.node.id for one in calls)
        self.asked |= {one.node.id: one for one in calls}
        return [one.node.id for one in calls]

    def told(self, node_id: str, result: Any = None, **more: Any) -> list[str]:
        reads = self.asked[node_id].reads
        return self._take(
            self.body.told(AnsweredCall(node_id, Settled.SUCCESS, result=result if reads else None, **more))
        )

    def failed(self, node_id: str, reason: str = "out of stock", **more: Any) -> list[str]:
        outcome = more.pop("outcome", Settled.FAILED)
        return self._take(self.body.told(AnsweredCall(node_id, outcome, reason=reason, **more)))

    def turns(self, node_id: str) -> list[dict[str, Any]]:
        return self.asked[node_id].node.args["turns"]

    @property
    def error(self) -> str | None:
        assert self.body.end is not None
        return self.body.end.error


def test_it_asks_makes_the_calls_and_asks_again_with_their_results_by_reference() -> None:
    course = GoalTalk()
    assert course.asked["goal.turn-1"].node.kind is Kind.LLM
    assert course.told("goal.turn-1", says(ACT, LOOK, text="So:")) == ["goal.turn-1.1", "goal.turn-1.2"]
    assert not course.asked["goal.turn-1.1"].reads, "what it only hands on it is not told"
    assert course.told("goal.turn-1.2") == []
    assert course.body.waits_for == ("goal.turn-1.1",)
    assert course.told("goal.turn-1.1") == ["goal.turn-2"]
    results = [{"$ref": "goal.turn-1.1#"}, {"$ref": "goal.turn-1.2#"}]
    assert course.turns("goal.turn-2") == [{"answer": {"$ref": "goal.turn-1#"}, "results": results}]
    assert course.told("goal.turn-2", END) == []
    assert (course.body.end and course.body.end.result, course.body.waits_for) == (END, ())


def test_an_equal_call_is_the_earlier_one_but_where_that_surely_took_no_effect_or_only_read() -> None:
    course = GoalTalk()
    again = {"tool": "act", "args": {"n": 1, "at": "later"}}
    assert course.told("goal.turn-1", says(ACT, OTHER, again, LOOK, LOOK)) == [
        f"goal.turn-1.{place}" for place in (1, 2, 4, 5)
    ]
    for place in (1, 4, 5):
        course.told(f"goal.turn-1.{place}")
    course.failed("goal.turn-1.2")
    assert course.told("goal.turn-2", says(OTHER, ACT)) == ["goal.turn-2.1"]
    course.told("goal.turn-2.1")
    first, second = course.turns("goal.turn-3")
    assert [first["results"][place] for place in (0, 2)] == [{"$ref": "goal.turn-1.1#"}] * 2
    assert second["results"] == [{"$ref": "goal.turn-2.1#"}, {"$ref": "goal.turn-1.1#"}]
    assert course.told("goal.turn-3", says(ACT, OTHER)) == ["goal.turn-4"], "nothing is made, and it asks on"
    assert course.turns("goal.turn-4")[2]["results"] == second["results"][::-1]


def test_its_model_is_told_what_surely_failed_once_the_other_calls_have_ended() -> None:
    course = GoalTalk()
    course.told("goal.turn-1", says(ACT, OTHER))
    assert course.failed("goal.turn-1.1", execution_id="e") == []
    assert course.failed("goal.turn-1.2", "policy", detail="rule never", outcome=Settled.REJECTED) == ["goal.turn-2"]
    assert course.turns("goal.turn-2")[0]["results"] == [
        {"outcome": "failed", "has_effect": "none", "error_message": "out of stock", "execution_id": "e"},
        {"outcome": "rejected", "has_effect": "none", "error_message": "policy: rule never"},
    ]


@pytest.mark.parametrize("planning", ["agent", "graph"])
def test_what_may_have_taken_effect_or_did_in_part_ends_it(planning: Any) -> None:
    steps = {"model": "fast", "steps": [{"id": "a", "tool": "act"}, {"id": "b", "tool": "look"}]}
    answer, first, reads = (
        (says(ACT, LOOK), "goal.turn-1.1", "goal.turn-1.2")
        if planning == "agent"
        else (steps, "goal.plan.a", "goal.plan.b")
    )
    for how, why in (({"sure": False}, "failed, not sure: out of stock"), ({"partial": True}, "took effect in part")):
        course = GoalTalk(planning)
        course.told("goal.turn-1", answer)
        if "sure" in how:
            course.failed(first, sure=False)
        else:
            course.told(first, partial=True)
        assert course.error == f"{first} {why}"
        assert course.failed(reads) == [], "nothing follows of it"
    course = GoalTalk("agent")
    course.told("goal.turn-1", says(ACT, LOOK))
    course.failed("goal.turn-1.2", sure=False)
    course.told("goal.turn-1.1", partial=False)
    assert course.turns("goal.turn-2")[0]["results"][1]["has_effect"] == "none", "what only reads took none"


def test_limits_end_it_with_their_name() -> None:
    def end(*, usage: dict[str, Any] | None = None, **limits: Any) -> str:
        course = GoalTalk(**limits)
        course.told("goal.turn-1", says(ACT, OTHER), usage=usage or {})
        return course.body.end.error or "" if course.body.end is not None else ""

    seven = {"input_tokens": 3, "output_tokens": 4, "cost_usd": 0.5}
    assert end(turns=2) == end(calls=2) == end(tokens=7, cost_usd=0.5, usage=seven) == ""
    assert end(turns=1) == "limit_turns: 1 turns are used, and the goal is not reached"
    assert end(calls=1) == "limit_calls: 0 of 1 calls are made, 2 more are asked for"
    assert end(tokens=6, usage=seven) == "limit_tokens: 7 of 6 tokens are used"
    assert end(cost_usd=0.4, usage=seven) == "limit_cost_usd: 0.500000 of 0.4 USD are spent"
    assert end(cost_usd=0.4, usage={"input_tokens": 1}) == "limit_cost_usd: the price of fast is not known"


def test_a_cap_ends_the_turns_with_failed_calls() -> None:
    course = GoalTalk(failed_turns=2)
    for turn in (1, 2, 3):
        calls = [{"tool": "act", "args": {"turn": turn, "place": place}} for place in (1, 2)]
        course.told(f"goal.turn-{turn}", says(*calls))
        course.told(f"goal.turn-{turn}.1")
        course.failed(f"goal.turn-{turn}.2")
    assert course.error == "limit_failed_turns: 2 turns with a failed call are allowed; goal.turn-3.2: out of stock"


def test_a_whole_plan_is_made_step_by_step_and_returns_what_its_last_ones_did() -> None:
    course = GoalTalk("graph")
    steps = [
        {"id": "c", "tool": "look", "depends_on": ["b"]},
        {"id": "a", "tool": "act"},
        {"id": "b", "tool": "act", "args": {"v": {"$ref": "a#/v"}}},
        {"id": "d", "tool": "look"},
    ]
    assert course.told("goal.turn-1", {"model": "fast", "steps": steps}) == ["goal.plan.a", "goal.plan.d"]
    assert course.told("goal.plan.d", {"seen": 1}) == []
    assert course.told("goal.plan.a") == ["goal.plan.b"]
    node = course.asked["goal.plan.b"].node
    assert (node.args, node.depends_on) == ({"v": {"$ref": "goal.plan.a#/v"}}, ())
    assert course.told("goal.plan.b") == ["goal.plan.c"]
    course.told("goal.plan.c", {"seen": 2})
    assert course.body.end is not None
    assert course.body.end.result == {"d": {"seen": 1}, "c": {"seen": 2}}


def test_a_failure_of_a_whole_plan_and_of_a_question_ends_it() -> None:
    course = GoalTalk("graph")
    course.told("goal.turn-1", {"model": "fast", "steps": [{"id": "a", "tool": "act"}]})
    course.failed("goal.plan.a")
    assert course.error == "goal.plan.a: out of stock"
    course = GoalTalk()
    course.failed("goal.turn-1", "the model's server answered 401")
    assert course.error == "the model's server answered 401"


def test_what_the_job_before_did_is_told_with_each_question_and_not_done_again() -> None:
    earlier = (
        {"tool": "act", "args": {"n": 1}, "outcome": "completed", "result": {"$ref": "job-0/goal.turn-1.1#"}},
        {"tool": "act", "args": {}, "outcome": "failed", "error_message": "gone"},
        {"tool": "look", "args": {}, "outcome": "completed", "result": {"$ref": "job-0/goal.turn-1.2#"}},
    )
    course = GoalTalk(args=GoalArgs(goal=GOAL, brief=brief(turns=2), first=4, earlier=earlier))
    assert course.asked["goal.turn-4"].node.args["earlier"] == list(earlier)
    assert course.told("goal.turn-4", says(ACT, OTHER, LOOK)) == ["goal.turn-4.2", "goal.turn-4.3"]
    course.told("goal.turn-4.2")
    course.told("goal.turn-4.3")
    assert course.turns("goal.turn-5")[0]["results"][0] == {"$ref": "job-0/goal.turn-1.1#"}
    course.told("goal.turn-5", says(ACT))
    assert (course.error or "").startswith("limit_turns: 2 turns")


def test_a_decision_says_what_an_answer_asks_for() -> None:
    found = decision_of(brief(), "goal.turn-2", says(ACT, {"tool": "x", "refused": "no"}, LOOK, text="So:"))
    assert [node["id"] for node in found.task_graph["nodes"]] == ["goal.turn-2.1", "goal.turn-2.2"]
    assert found.summary == "So:"
    assert decision_of(brief(), "goal.turn-1", None).task_graph == {"nodes": []}
    planned = decision_of(brief("graph"), "goal.turn-1", {"model": "m", "steps": [{"id": "a", "tool": "act"}]})
    assert [node["id"] for node in planned.task_graph["nodes"]] == ["goal.plan.a"]
