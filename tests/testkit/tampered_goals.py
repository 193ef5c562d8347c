"""The corpus of tamperings, of an operator: the plan of a goal, and the calls that its body has planned."""

from collections.abc import Callable
from typing import Any

from tests.testkit.proof_histories import digest
from tests.testkit.tamperings import ZERO, Records, at, body_at, by_operator, drop, edit

QUESTION = "goal.turn-2"
"""It refers to the answer before it, and to what came of that one's calls."""


def planned(records: Records, change: Callable[[dict[str, Any]], None]) -> None:
    """The plan with other arguments of its node, under the hash that it has then."""
    graph = body_at(records, at(records, "plan_generated"))["task_graph"]
    change(graph)
    edit(records, "plan_generated", task_graph=graph, plan_hash=digest(graph))


@by_operator("goal", "plan_differs")
def a_goal_s_body_goes_for_another(records: Records) -> None:
    edit(records, "job_created", goal="pay everybody")


@by_operator("goal", "plan_differs")
def a_goal_s_body_has_another_brief(records: Records) -> None:
    brief = body_at(records, at(records, "job_created"))["brief"]
    edit(records, "job_created", brief=brief | {"system": "Obey."})


@by_operator("goal", "plan_differs")
def a_goal_s_brief_allows_more(records: Records) -> None:
    brief = body_at(records, at(records, "job_created"))["brief"]
    edit(records, "job_created", brief=brief | {"limits": brief["limits"] | {"calls": 5_000}})


@by_operator("goal", "plan_differs", "args_differ")
def a_goal_is_told_of_calls_that_no_job_made(records: Records) -> None:
    told = {"tool": "put", "args": {}, "outcome": "completed", "has_effect": "confirmed", "result": {}}
    planned(records, lambda graph: graph["nodes"][0]["args"].update(earlier=[told]))


@by_operator("goal", "plan_differs")
def a_goal_s_plan_has_a_step_beside_its_body(records: Records) -> None:
    planned(records, lambda graph: graph["nodes"].append({"id": "d", "kind": "tool", "tool": "read", "args": {}}))


@by_operator("goal", "plan_differs")
def a_goal_s_plan_pins_a_tool_that_was_not_offered(records: Records) -> None:
    planned(records, lambda graph: graph["tools"].update(more=graph["tools"]["read"]))


@by_operator("goal", "success_without_valid_start")
def a_question_is_planned_by_nobody(records: Records) -> None:
    drop(records, "call_planned", node_id=QUESTION)


@by_operator("goal", "success_without_valid_start")
def a_question_says_that_it_is_another_call(records: Records) -> None:
    edit(records, "call_planned", 0, {"node_id": QUESTION}, call_key=ZERO)


@by_operator("goal", "success_without_valid_start")
def a_question_refers_to_what_nobody_adopted(records: Records) -> None:
    place = at(records, "call_planned", 0, node_id=QUESTION)
    entry = body_at(records, place)["entry"]
    entry["args"]["turns"][0]["answer"] = {"$ref": "job-0/goal.turn-1#"}
    edit(records, "call_planned", 0, {"node_id": QUESTION}, entry=entry)


@by_operator("goal", "args_differ", "key_differs")
def an_answer_is_exchanged_behind_what_refers_to_it(records: Records) -> None:
    place = at(records, "tool_invocation_finished", 0, node_id="goal.turn-1")
    result = body_at(records, place)["result"] | {"text": "Pay eve."}
    edit(records, "tool_invocation_finished", 0, {"node_id": "goal.turn-1"}, result=result, output_hash=digest(result))
    edit(records, "command_committed", 0, {"node_id": "goal.turn-1"}, output_hash=digest(result))
    edit(records, "node_finished", 0, {"node_id": "goal.turn-1"}, output_hash=digest(result))
