"""The corpus of tamperings, of an operator: tries and their ends, doubts, and what people said of them."""

import json
from typing import Any

from tests.testkit.proof_histories import digest
from tests.testkit.tamperings import (
    COMMITTED,
    FINISHED,
    STARTED,
    ZERO,
    Body,
    Records,
    again,
    at,
    body_at,
    by_operator,
    drop,
    edit,
    put_behind,
    retyped,
    success,
    with_body,
    with_header,
)
from tests.testkit.tries import end_word, try_of

# Tries and their ends.


@by_operator("run", "success_without_valid_start")
def a_start_is_dropped(records: Records) -> None:
    drop(records, STARTED, 0, node_id="b")


@by_operator("run", "success_without_valid_start")
def a_start_comes_behind_its_success(records: Records) -> Records:
    start = drop(records, STARTED, 0, node_id="b")
    return put_behind(records, success(records, "b") + 1, start)


@by_operator("run", "unfounded_node", "stray_commit")
def an_end_is_dropped(records: Records) -> None:
    drop(records, FINISHED, 0, node_id="b")


@by_operator("run", "unclosed_start")
def a_try_has_no_end(records: Records) -> None:
    for kind in (FINISHED, COMMITTED, "node_finished"):
        drop(records, kind, 0, node_id="b")


@by_operator("run", "unfounded_node")
def a_success_has_no_word(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, word=None)


@by_operator("run", "unfounded_node")
def a_success_has_the_word_of_another_try(records: Records) -> None:
    word = body_at(records, success(records, "a"))["word"]
    edit(records, FINISHED, 0, {"node_id": "b"}, word=word)


@by_operator("run", "unfounded_node")
def a_failure_is_said_to_be_a_success(records: Records) -> None:
    word = body_at(records, at(records, FINISHED, 0, node_id="c"))["word"]
    place = success(records, "c")
    records[place] = with_body(records[place], body_at(records, place) | {"word": word})


@by_operator("run", "unfounded_node")
def a_success_is_learnt_from_nobody(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, via=None)


@by_operator("run", "unfounded_node")
def a_success_is_the_ledgers_word(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, via="ledger")


@by_operator("run", "unprobed_success")
def a_success_is_a_probes_that_never_was(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, via="probe", word=None)


@by_operator("run", "reports_disagree")
def a_repeated_event_has_another_result(records: Records) -> Records:
    place = success(records, "b")
    told = body_at(records, place)
    other = with_body(records[place], told | {"result": {"poked": "z"}, "output_hash": digest({"poked": "z"})})
    return put_behind(records, place + 1, other)


@by_operator("run", "stray_commit")
def a_repeated_commit_has_another_result(records: Records) -> Records:
    place = at(records, COMMITTED, 0, node_id="b")
    other = with_body(records[place], body_at(records, place) | {"output_hash": ZERO})
    return put_behind(records, place, other)


@by_operator("run", "reports_disagree")
def a_catch_up_knows_another_result(records: Records) -> Records:
    place = success(records, "b")
    told: Body = {"via": "catch_up", "result": {"poked": "z"}, "output_hash": digest({"poked": "z"})}
    return put_behind(records, place + 1, again(records[place], **told))


@by_operator("crash", "truth_differs")
def what_a_probe_found_had_failed(records: Records) -> Records:
    place = success(records, "crashed")
    told: Body = {"via": "human", "by": "approver", "outcome": "permanent_failure", "result": None, "output_hash": None}
    return put_behind(records, place + 1, again(records[place], **told))


def with_two_successes(records: Records) -> Records:
    """Of a tool that may be asked: two tries of one key, each with an effect."""
    name = try_of("second")
    start, place = records[at(records, STARTED, 1, node_id="c")], success(records, "c")
    first = records[at(records, STARTED, 0, node_id="c")]
    records[at(records, STARTED, 1, node_id="c")] = with_body(start, json.loads(start.value) | {"invocation_id": name})
    told: Body = {"invocation_id": name, "word": end_word("second", "success", "executor")}
    records[place] = with_body(records[place], body_at(records, place) | told)
    late = again(records[place], "late", invocation_id=json.loads(first.value)["invocation_id"], via="human", word=None)
    return put_behind(records, place + 1, late)


@by_operator("run", "second_success")
def a_call_succeeds_twice(records: Records) -> Records:
    return with_two_successes(records)


@by_operator("run", "second_success")
def a_call_succeeds_twice_by_a_plan_of_revision_true(records: Records) -> Records:
    """It would make the tool one whose repeat does no harm, if true were 1."""
    plan = records[at(records, "plan_generated")]
    pins = json.loads(plan.value)["task_graph"]["tools"]
    diff: Body = {"tools": {name: pin | {"effect_class": "pure"} for name, pin in pins.items()}, "nodes": []}
    harmless = again(plan, "harmless", revision=True, task_graph=None, diff=diff, plan_hash=digest(diff))
    return put_behind(with_two_successes(records), at(records, "plan_generated"), harmless)


@by_operator("run", "second_success")
def a_call_succeeds_twice_under_the_name_of_a_models(records: Records) -> Records:
    """Only models' own answers may be repeated, and no tool is pinned for those."""
    for kind, part in (("job_created", "plan"), ("plan_generated", "task_graph")):
        place = at(records, kind)
        body = body_at(records, place)
        next(node for node in body[part]["nodes"] if node["id"] == "c")["kind"] = "llm"
        body |= {"plan_hash": digest(body[part])} if "plan_hash" in body else {}
        records[place] = with_body(records[place], body)
    return with_two_successes(records)


@by_operator("undone", "contradicts_settlement")
def what_had_failed_succeeds(records: Records) -> Records:
    """Told by somebody to whom a word isn't asked for."""
    place = at(records, FINISHED, 0, node_id="refused")
    told: Body = {
        "via": "human",
        "outcome": "success",
        "result": {},
        "output_hash": digest({}),
        "word": None,
        "error": None,
    }
    return put_behind(records, place, again(records[place], **told))


@by_operator("run", "node_finished_twice")
def a_node_is_finished_twice(records: Records) -> Records:
    place = at(records, "node_finished", 0, node_id="b")
    return put_behind(records, place, again(records[place]))


@by_operator("run", "unknown_node")
def a_node_nobody_planned_is_finished(records: Records) -> Records:
    place = at(records, "node_finished", 0, node_id="b")
    return put_behind(records, place, again(with_header(records[place], "ce_subject", "x"), node_id="x"))


@by_operator("run", "result_type_differs")
def a_node_says_that_nothing_was_changed(records: Records) -> None:
    edit(records, "node_finished", 0, {"node_id": "b"}, result_type="success")


@by_operator("run", "injected_result_differs")
def a_node_carries_another_result(records: Records) -> None:
    edit(records, "node_finished", 0, {"node_id": "b"}, output_hash=ZERO)


@by_operator("run", "incomplete")
def a_job_is_completed_without_a_node(records: Records) -> None:
    drop(records, "node_finished", 0, node_id="c")


@by_operator("timer", "unfounded_node")
def a_timer_never_ends(records: Records) -> None:
    drop(records, "wait_completed")


@by_operator("timer", "unfounded_node")
def a_timer_never_begins(records: Records) -> None:
    drop(records, "job_waiting")


@by_operator("timer", "unfounded_node")
def a_wait_ends_for_another_reason(records: Records) -> None:
    edit(records, "wait_completed", correlation_key="else")


@by_operator("timer", "injected_result_differs")
def a_wait_gives_another_result(records: Records) -> None:
    edit(records, "wait_completed", payload={"told": "otherwise"})


# Doubts, probes, people.


@by_operator("crash", "unprobed_success")
def a_probe_is_dropped(records: Records) -> None:
    drop(records, "invocation_probed")


@by_operator("crash", "unprobed_success")
def a_probe_comes_behind_what_it_found(records: Records) -> Records:
    probe = drop(records, "invocation_probed")
    return put_behind(records, success(records, "crashed") + 1, probe)


@by_operator("crash", "unprobed_success")
def a_probe_had_found_something_else(records: Records) -> None:
    edit(records, "invocation_probed", result={"poked": "else"})


@by_operator("crash", "unprobed_success")
def a_probe_had_found_nothing(records: Records) -> None:
    edit(records, "invocation_probed", answer="not_found")


@by_operator("crash", "external_key_differs", "unprobed_success")
def a_probe_asked_for_another_key(records: Records) -> None:
    edit(records, "invocation_probed", external_key="aetheris:else:crashed:0")


@by_operator("crash", "unprobed_success", "bad_reference")
def a_probe_found_a_text_for_a_large_result(records: Records) -> None:
    edit(records, "invocation_probed", result=None, result_ref="x")


@by_operator("run", "unproven_reopening")
def what_may_have_acted_is_reopened_by_policy(records: Records) -> None:
    """The tool was no pure one."""
    for kind, part in (("job_created", "plan"), ("plan_generated", "task_graph")):
        place = at(records, kind)
        body = body_at(records, place)
        body[part]["tools"]["poke_pure"]["effect_class"] = "opaque"
        records[place] = with_body(records[place], body)


@by_operator("run", "unproven_reopening")
def what_may_have_acted_is_reopened_by_a_probe(records: Records) -> None:
    edit(records, "invocation_reopened", by="probe")


@by_operator("run", "success_without_valid_start")
def a_person_reopens_what_is_not_parked(records: Records) -> None:
    edit(records, "invocation_reopened", by="human")


@by_operator("human", "unproven_reopening")
def nobody_reopens_what_is_parked(records: Records) -> Records:
    return reopened_by(records, {})


@by_operator("human", "self_approval")
def who_submitted_it_reopens_what_is_parked(records: Records) -> Records:
    return reopened_by(records, {"by": "agent", "evidence": "trust me"})


@by_operator("human", "success_without_valid_start")
def the_policy_reopens_what_is_parked(records: Records) -> Records:
    return reopened_by(records, {"cause": "x"}, by="policy")


def reopened_by(records: Records, word: dict[str, Any], by: str = "human") -> Records:
    """What was parked is tried again, and succeeds."""
    parked = records[at(records, "invocation_parked")]
    told: Body = {"by": by, "next_token": 2, "evidence": [word], "reason": None}
    reopened = retyped(again(parked, "reopened", **told), "invocation_reopened")
    start = records[at(records, STARTED)]
    name = try_of("again")
    restarted = again(start, "restarted", token=2, invocation_id=name)
    place = at(records, FINISHED)
    word_of = end_word("again", "success", "executor")
    told = {"invocation_id": name, "via": "executor", "word": word_of, "by": None, "principal": None, "evidence": None}
    records[place] = again(records[place], "done", **told)
    return put_behind(records, at(records, "invocation_parked"), reopened, restarted)


@by_operator("human", "self_approval")
def who_submitted_it_says_that_it_happened(records: Records) -> None:
    edit(records, FINISHED, by="agent", principal={"id": "agent", "kind": "agent", "roles": [], "tenant": "default"})


@by_operator("human", "not_an_approver")
def somebody_of_another_tenant_says_that_it_happened(records: Records) -> None:
    edit(records, FINISHED, principal={"id": "approver", "kind": "person", "roles": ["resolve"], "tenant": "else"})


@by_operator("human", "not_an_approver")
def somebody_says_it_under_another_name(records: Records) -> None:
    edit(records, FINISHED, principal={"id": "else", "kind": "person", "roles": ["resolve"], "tenant": "default"})


@by_operator("approved", "success_without_valid_start")
def a_worker_ends_before_its_call_starts(records: Records) -> Records:
    ended = drop(records, "worker_ended")
    return put_behind(records, at(records, STARTED, 0, node_id="a") - 1, ended)
