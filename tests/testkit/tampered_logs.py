"""The corpus of tamperings, of an operator: records as such, in their order."""

import hashlib
from typing import Any

import rfc8785

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
    history,
    kind_of,
    put_behind,
    raw_text,
    renumbered,
    retyped,
    with_body,
    with_header,
)

# Records as such.


@by_operator("run", "not_born")
def a_birth_is_dropped(records: Records) -> None:
    del records[0]


@by_operator("run", "born_twice")
def a_job_is_born_twice(records: Records) -> Records:
    return put_behind(records, 5, again(records[0]))


@by_operator("run", "foreign_record")
def a_record_of_another_job_is_spliced_in(records: Records) -> Records:
    return put_behind(records, 5, history("human")[3])


@by_operator("run", "foreign_record", "success_without_valid_start")
def the_records_of_another_job_follow(records: Records) -> Records:
    return renumbered([*records, *history("human")[1:]])


@by_operator("run", "key_mismatch")
def a_record_has_another_key(records: Records) -> None:
    records[4] = with_body(records[4], body_at(records, 4))
    record = records[4]
    records[4] = type(record)(record.offset, b"else", record.headers, record.value)


@by_operator("run", "foreign_record", "key_mismatch")
def a_record_names_another_job(records: Records) -> None:
    edit(records, "retry_scheduled", job_id="else")


@by_operator("run", "subject_mismatch")
def a_subject_is_another(records: Records) -> None:
    place = at(records, STARTED, 0, node_id="b")
    records[place] = with_header(records[place], "ce_subject", "c")


@by_operator("run", "ambiguous_header")
def an_id_holds_a_space(records: Records) -> None:
    records[4] = with_header(records[4], "ce_id", "two words")


@by_operator("run", "ambiguous_header", "success_without_valid_start")
def a_type_holds_a_line(records: Records) -> None:
    place = at(records, STARTED, 0, node_id="b")
    records[place] = with_header(records[place], "ce_type", "io.aetheris.tool_invocation_started.v1\n")


@by_operator("run", "unknown_version")
def a_type_has_a_version_of_its_own(records: Records) -> None:
    place = at(records, STARTED, 0, node_id="b")
    records[place] = retyped(records[place], STARTED, 2)


@by_operator("run", "success_without_valid_start")
def a_type_is_none(records: Records) -> None:
    place = at(records, STARTED, 0, node_id="b")
    records[place] = with_header(records[place], "ce_type", "started")


@by_operator("run", "success_without_valid_start")
def a_type_header_comes_twice(records: Records) -> None:
    """The first counts."""
    place = at(records, STARTED, 0, node_id="b")
    record = records[place]
    first = ("ce_type", b"io.aetheris.retry_scheduled.v1")
    records[place] = type(record)(record.offset, record.key, (first, *record.headers), record.value)


@by_operator("run", "undecodable")
def a_value_is_no_json(records: Records) -> None:
    records[4] = type(records[4])(records[4].offset, records[4].key, records[4].headers, b"{")


@by_operator("run", "undecodable")
def a_value_is_a_list(records: Records) -> None:
    records[4] = type(records[4])(records[4].offset, records[4].key, records[4].headers, b"[]")


@by_operator("run", "undecodable")
def a_name_comes_twice(records: Records) -> None:
    records[4] = raw_text(records[4], '"job_id"', '"via": "x", "via": "y", "job_id"')


@by_operator("run", "undecodable")
def a_number_is_infinite(records: Records) -> None:
    records[4] = raw_text(records[4], '"job_id"', '"x": Infinity, "job_id"')


@by_operator("run", "undecodable")
def a_value_is_no_utf8(records: Records) -> None:
    record = records[4]
    value = record.value.replace(b'"job_id"', b'"\xff": 1, "job_id"', 1)
    records[4] = type(record)(record.offset, record.key, record.headers, value)


@by_operator("run", "undecodable")
def a_value_is_empty(records: Records) -> None:
    records[4] = type(records[4])(records[4].offset, records[4].key, records[4].headers, b"")


@by_operator("run", "out_of_order")
def two_records_change_places(records: Records) -> None:
    records[8], records[9] = records[9], records[8]


@by_operator("run", "out_of_order")
def an_offset_comes_twice(records: Records) -> None:
    record = records[9]
    records[9] = type(record)(records[8].offset, record.key, record.headers, record.value)


@by_operator("run", "out_of_order")
def an_offset_is_negative(records: Records) -> None:
    record = records[0]
    records[0] = type(record)(-5, record.key, record.headers, record.value)


@by_operator("run", "sealed_unfinished")
def an_end_of_the_job_is_dropped(records: Records) -> None:
    drop(records, "job_completed")


@by_operator("run", "sealed_unfinished")
def all_but_the_beginning_is_dropped(records: Records) -> None:
    del records[12:]


@by_operator("run", "job_result_differs")
def a_job_ends_with_another_result(records: Records) -> None:
    given = body_at(records, at(records, "job_completed"))["result"]
    edit(records, "job_completed", result=dict.fromkeys(given, "paid nothing"))


@by_operator("run", "job_result_differs")
def a_job_ends_with_a_result_of_no_step(records: Records) -> None:
    given = body_at(records, at(records, "job_completed"))["result"]
    edit(records, "job_completed", result=given | {"nowhere": {"paid": 1}})


@by_operator("run", "job_result_differs")
def a_job_ends_with_a_text_for_results(records: Records) -> None:
    edit(records, "job_completed", result="all is well")


@by_operator("run", "incomplete", "stray_commit")
def a_job_ends_before_its_calls(records: Records) -> Records:
    end = drop(records, "job_completed")
    return put_behind([record for record in records if kind_of(record) != FINISHED], 4, end)


@by_operator("undone", "incomplete")
def a_job_that_failed_is_completed(records: Records) -> None:
    place = at(records, "job_failed")
    records[place] = retyped(with_body(records[place], body_at(records, place) | {"error": None}), "job_completed")


@by_operator("run", "checkpoint_differs")
def a_checkpoint_says_another_root(records: Records) -> Records:
    place = at(records, "retry_scheduled")
    told: Body = {"state_hash": ZERO, "as_of": records[3].offset, "node_id": None}
    checkpoint = with_header(again(records[place], **told), "ce_subject", body_at(records, 0)["job_id"])
    return put_behind(records, place, retyped(checkpoint, "state_checkpointed"))


@by_operator("turns", "activation_differs")
def an_activation_is_of_another_policy(records: Records) -> None:
    edit(records, "approval_requested", 0, activation=3, policy_hash="h1")
    edit(records, "approval_requested", 1, activation=3, policy_hash="h2")


def key_of(job: str, node: str, tool: str, args: dict[str, Any]) -> str:
    return hashlib.sha256(f"{job}\0{node}\0{tool}\0".encode() + rfc8785.dumps(args)).hexdigest()


@by_operator("run", "args_differ")
def arguments_are_those_of_a_reference_that_was_never_followed(records: Records) -> None:
    """A step's key and hash are made of the reference itself, not of what it leads to."""
    job = body_at(records, 0)["job_id"]
    args = {"tag": {"$ref": "a#/tag"}, "delay_s": 0, "hold": ""}
    old = body_at(records, at(records, STARTED, 0, node_id="b"))
    records[:] = [
        raw_text(record, old["idempotency_key"], key_of(job, "b", "poke_idempotent", args)) for record in records
    ]
    edit(records, STARTED, 0, {"node_id": "b"}, args_hash=digest(args))
    edit(records, COMMITTED, 0, {"node_id": "b"}, input_hash=digest(args))


@by_operator("run", "success_without_valid_start")
def a_call_builds_on_another_result(records: Records) -> None:
    place = at(records, STARTED, 0, node_id="c")
    after = body_at(records, place)["after"]
    edit(records, STARTED, 0, {"node_id": "c"}, after=[after[0] | {"result_hash": ZERO}])
    drop(records, FINISHED, 0, node_id="c")
    drop(records, STARTED, 1, node_id="c")
    last = body_at(records, at(records, STARTED, 0, node_id="c"))["invocation_id"]
    edit(records, FINISHED, 0, {"node_id": "c"}, invocation_id=last, via="human", word=None)
