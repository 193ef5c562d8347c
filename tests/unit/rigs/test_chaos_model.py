"""The model of a chaos run plays the script that its goal is, and never says the same twice."""

import json
from typing import Any

from aetheris.rigs.chaos.model import completion
from aetheris.rigs.chaos.schedule import MIX, job_plans


def calls(body: dict[str, Any], number: int) -> list[tuple[str, dict[str, Any]]]:
    message = completion(body, number)["choices"][0]["message"]
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return [(one["name"], json.loads(one["arguments"])) for one in functions]


def test_it_makes_the_calls_of_the_turn_that_is_next_and_then_is_done() -> None:
    plan = next(one for one in job_plans(7, MIX) if one.goal is not None)
    asked, made = [{"role": "system", "content": "s"}, {"role": "user", "content": plan.goal}], list[str]()
    reported: list[tuple[str, dict[str, Any]]] = []
    for turn in range(4):
        reported = calls({"messages": asked}, turn + 1)
        again = calls({"messages": asked}, turn + 100)
        assert [name for name, _ in reported] == [name for name, _ in again]
        assert not reported or reported != again
        made += [name for name, _ in reported]
        asked = [*asked, {"role": "assistant", "content": None}]
    assert sorted(made) == sorted(node["tool"] for node in plan.plan["nodes"])
    assert not reported
