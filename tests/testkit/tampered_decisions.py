"""The corpus of tamperings, of an operator: what people were asked, what was planned, and what was undone."""

from typing import Any

from tests.testkit.proof_histories import digest
from tests.testkit.tamperings import (
    COMMITTED,
    FINISHED,
    ZERO,
    Records,
    again,
    at,
    body_at,
    by_operator,
    drop,
    edit,
    put_behind,
    with_body,
)

# What people are asked.


def form_of(records: Records, node: str, number: int = 0) -> dict[str, Any]:
    return body_at(records, at(records, "approval_requested", number, node_id=node))["form"]


@by_operator("approved", "form_differs")
def a_form_shows_other_arguments(records: Records) -> None:
    form = form_of(records, "b")
    form["context"]["arguments"] = {"for": "something harmless"}
    edit(records, "approval_requested", 0, {"node_id": "b"}, form=form)


@by_operator("approved", "form_differs")
def a_form_leaves_the_arguments_out(records: Records) -> None:
    form = form_of(records, "b")
    named = {"sha256": ZERO, "bytes": 9}
    form["context"]["arguments"] = {"for": {"$left_out": named, "begins": "something harmless"}}
    edit(records, "approval_requested", 0, {"node_id": "b"}, form=form)


@by_operator("approved", "form_differs")
def a_form_shows_no_arguments(records: Records) -> None:
    form = form_of(records, "b")
    del form["context"]["arguments"]
    edit(records, "approval_requested", 0, {"node_id": "b"}, form=form)


@by_operator("approved", "form_differs")
def a_form_is_about_another_tool(records: Records) -> None:
    form = form_of(records, "b")
    form["context"]["tool"] = "read"
    edit(records, "approval_requested", 0, {"node_id": "b"}, form=form)


@by_operator("approved", "form_differs")
def a_form_is_about_another_step(records: Records) -> None:
    form = form_of(records, "b")
    form["context"]["node_id"] = "a"
    edit(records, "approval_requested", 0, {"node_id": "b"}, form=form)


@by_operator("approved", "form_differs")
def a_form_is_about_another_version(records: Records) -> None:
    form = form_of(records, "b")
    form["context"]["tool_version"] = "0"
    edit(records, "approval_requested", 0, {"node_id": "b"}, form=form)


@by_operator("approved", "form_differs")
def a_request_has_a_text_for_a_form(records: Records) -> None:
    edit(records, "approval_requested", 0, {"node_id": "b"}, form="approve")


@by_operator("approved", "decision_differs", "form_differs")
def a_request_is_about_other_arguments(records: Records) -> None:
    edit(records, "approval_requested", 0, {"node_id": "b"}, args_hash=ZERO)


@by_operator("approved", "key_differs", "args_differ")
def an_edit_made_other_arguments(records: Records) -> None:
    edit(records, "approval_decided", 0, {"decision": "edit"}, data={"for": "else"})


@by_operator("approved", "key_differs", "args_differ")
def an_edit_is_dropped(records: Records) -> None:
    drop(records, "approval_decided", 0, decision="edit")


@by_operator("approved", "own_edit")
def who_edited_it_approves_it(records: Records) -> None:
    edit(records, "approval_decided", 0, {"node_id": "a", "decision": "approve"}, approver="carol", principal=None)


@by_operator("approved", "self_approval")
def who_submitted_it_approves_it(records: Records) -> None:
    edit(records, "approval_decided", 0, {"node_id": "b"}, approver="ann", principal=None)


@by_operator("approved", "not_an_approver")
def a_service_approves_what_asks_for_a_person(records: Records) -> None:
    said = {"id": "bob", "kind": "service", "roles": ["approve"], "tenant": "acme"}
    edit(records, "approval_decided", 0, {"node_id": "b"}, principal=said)


@by_operator("approved", "not_an_approver")
def an_approver_is_nobody_known(records: Records) -> None:
    edit(records, "approval_decided", 0, {"node_id": "b"}, principal=None)


@by_operator("approved", "not_an_approver")
def an_approver_has_another_name(records: Records) -> None:
    edit(records, "approval_decided", 0, {"node_id": "b"}, approver="the CFO")


@by_operator("approved", "success_without_valid_start")
def a_decision_is_dropped(records: Records) -> None:
    """Of what can't be undone: nothing lets it start."""
    drop(records, "approval_decided", 0, node_id="a", decision="approve")


@by_operator("approved", "success_without_valid_start")
def a_no_is_said_first(records: Records) -> Records:
    place = at(records, "approval_decided", 0, node_id="a", decision="approve")
    return put_behind(records, place - 1, again(records[place], decision="reject"))


@by_operator("approved", "decision_differs", "success_without_valid_start")
def a_decision_is_about_other_arguments(records: Records) -> None:
    edit(records, "approval_decided", 0, {"node_id": "a", "decision": "approve"}, args_hash=ZERO)


@by_operator("approved", "decision_differs")
def a_decision_is_by_another_rule(records: Records) -> None:
    edit(records, "approval_decided", 0, {"node_id": "b"}, rule="else")


@by_operator("approved", "success_without_valid_start")
def a_decision_carries_true_for_a_token(records: Records) -> None:
    edit(records, "approval_decided", 0, {"node_id": "a", "decision": "approve"}, token=True)


@by_operator("approved", "unasked_decision")
def a_decision_nobody_asked_for(records: Records) -> None:
    drop(records, "approval_requested", 1, node_id="a")


@by_operator("turns", "votes_missing")
def one_decides_where_two_must(records: Records) -> None:
    edit(records, "approval_requested", 0, {"node_id": "turn-1.2"}, approvals=2)
    edit(records, "approval_decided", 0, {"node_id": "turn-1.2"}, decision="approve")


@by_operator("turns", "not_an_approver")
def approvers_are_a_text(records: Records) -> None:
    """Of a name's letters each is no name."""
    edit(records, "approval_requested", 0, {"node_id": "turn-1.2"}, approvers=["c", "a", "r", "o", "l"])


@by_operator("turns", "not_signed")
def a_decision_is_unsigned_where_it_must_be_signed(records: Records) -> None:
    edit(records, "approval_requested", 0, {"node_id": "turn-1.2"}, signed=True)


# Plans.


@by_operator("run", "plan_hash_mismatch")
def a_plan_hash_is_another(records: Records) -> None:
    edit(records, "plan_generated", plan_hash=ZERO)


@by_operator("run", "plan_differs", "args_differ")
def a_plan_is_not_the_submitted_one(records: Records) -> None:
    place = at(records, "plan_generated")
    graph = body_at(records, place)["task_graph"]
    graph["nodes"][2]["args"]["tag"] = "z"
    edit(records, "plan_generated", task_graph=graph, plan_hash=digest(graph))


@by_operator("run", "plan_differs")
def a_plan_has_a_step_more(records: Records) -> None:
    place = at(records, "plan_generated")
    graph = body_at(records, place)["task_graph"]
    graph["nodes"].append({"id": "d", "kind": "tool", "tool": "poke_pure", "args": {}})
    edit(records, "plan_generated", task_graph=graph, plan_hash=digest(graph))


@by_operator("run", "plan_differs")
def a_submitted_plan_is_true_where_it_was_one(records: Records) -> None:
    place = at(records, "job_created")
    plan = body_at(records, place)["plan"]
    plan["nodes"][0]["args"]["delay_s"] = False
    edit(records, "job_created", plan=plan)


@by_operator("turns", "plan_differs")
def a_goal_is_another(records: Records) -> None:
    edit(records, "job_created", goal="pay everybody")


@by_operator("turns", "plan_differs")
def a_brief_names_another_model(records: Records) -> None:
    place = at(records, "job_created")
    brief = body_at(records, place)["brief"]
    edit(records, "job_created", brief=brief | {"model": "n"})


@by_operator("turns", "plan_differs")
def a_brief_offers_fewer_tools(records: Records) -> None:
    place = at(records, "job_created")
    brief = body_at(records, place)["brief"]
    edit(records, "job_created", brief=brief | {"tools": ["read"]})


@by_operator("run", "args_differ", "key_differs")
def the_arguments_of_a_step_are_others_in_both_plans(records: Records) -> None:
    for kind, part in (("job_created", "plan"), ("plan_generated", "task_graph")):
        place = at(records, kind)
        body = body_at(records, place)
        body[part]["nodes"][0]["args"]["tag"] = "z"
        if "plan_hash" in body:
            body["plan_hash"] = digest(body[part])
        records[place] = with_body(records[place], body)


@by_operator("run", "content_key_differs")
def what_is_volatile_is_another_in_both_plans(records: Records) -> None:
    for kind, part in (("job_created", "plan"), ("plan_generated", "task_graph")):
        place = at(records, kind)
        body = body_at(records, place)
        body[part]["tools"]["poke_idempotent"]["volatile"] = ["tag"]
        if "plan_hash" in body:
            body["plan_hash"] = digest(body[part])
        records[place] = with_body(records[place], body)


@by_operator("run", "unknown_node", "success_without_valid_start")
def a_plan_is_dropped(records: Records) -> None:
    drop(records, "plan_generated")


@by_operator("undone", "success_without_valid_start")
def a_plan_undoes_something_else(records: Records) -> None:
    place = at(records, "plan_generated", 1)
    diff = body_at(records, place)["diff"]
    diff["nodes"][0]["args"]["hold"] = "else"
    edit(records, "plan_generated", 1, diff=diff, plan_hash=digest(diff))


# Compensation.


@by_operator("undone", "unfounded_compensation")
def what_undoes_is_dropped(records: Records) -> None:
    for kind in (FINISHED, COMMITTED):
        drop(records, kind, 0, node_id="done.undo")


@by_operator("undone", "compensated_differs")
def the_end_names_nothing_as_undone(records: Records) -> None:
    edit(records, "job_failed", compensated=[])


@by_operator("undone", "compensated_differs")
def the_end_names_more_as_undone(records: Records) -> None:
    edit(records, "job_failed", compensated=["done", "refused"])


@by_operator("undone", "compensated_differs")
def the_end_has_a_text_for_what_is_undone(records: Records) -> None:
    edit(records, "job_failed", compensated="done")


@by_operator("undone", "unfounded_compensation")
def another_step_is_said_to_be_undone(records: Records) -> None:
    edit(records, "step_compensated", compensates="refused")


@by_operator("undone", "success_without_valid_start")
def a_stop_never_was(records: Records) -> None:
    drop(records, "job_stopping")
