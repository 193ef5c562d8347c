"""The corpus of tamperings, of an operator: what calls are, and what came of them."""

import hashlib

from tests.testkit.tamperings import (
    COMMITTED,
    FINISHED,
    STARTED,
    ZERO,
    Records,
    again,
    at,
    body_at,
    by_operator,
    drop,
    edit,
    other_result,
    put_behind,
    raw_text,
    success,
    with_body,
)

# Results, and what is said of them.


@by_operator("run", "output_hash_mismatch")
def a_result_is_edited(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, result={"poked": "z"})


@by_operator("run", "output_hash_mismatch", "injected_result_differs", "not_committed")
def a_result_hash_is_edited(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, output_hash=ZERO)


@by_operator("run", "output_hash_mismatch")
def a_result_is_true_where_it_was_one(records: Records) -> None:
    other_result(records, "b", {"poked": 1})
    place = success(records, "b")
    records[place] = with_body(records[place], body_at(records, place) | {"result": {"poked": True}})


@by_operator("run", "args_differ", "key_differs")
def a_result_is_another_than_what_was_built_on_it(records: Records) -> None:
    other_result(records, "a", {"tag": "z"})


@by_operator("run", "args_differ")
def a_result_lacks_what_was_built_on(records: Records) -> None:
    other_result(records, "a", {"other": "a"})


@by_operator("run", "bad_reference", "output_hash_mismatch")
def a_text_stands_for_a_large_result(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, result=None, result_ref="x")


@by_operator("run", "bad_reference", "output_hash_mismatch")
def a_number_stands_for_a_large_result(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, result=None, result_ref=1)


@by_operator("run", "bad_reference")
def a_large_result_has_a_short_hash(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, result=None, result_ref={"sha256": "ab", "size": 1})


@by_operator("run", "bad_reference")
def a_large_result_has_true_for_a_size(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, result=None, result_ref={"sha256": ZERO, "size": True})


@by_operator("run", "bad_reference")
def a_result_stands_beside_a_large_one(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, result_ref={"sha256": ZERO, "size": 1})


@by_operator("run", "missing_blob")
def a_large_result_is_nowhere(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, result=None, result_ref={"sha256": ZERO, "size": 1})


@by_operator("run", "output_hash_mismatch")
def a_result_has_no_canonical_form(records: Records) -> None:
    edit(records, FINISHED, 0, {"node_id": "b"}, result=2**60)


@by_operator("run", "output_hash_mismatch")
def a_result_is_infinite(records: Records) -> None:
    """As every reader of floats takes 1e999; its hash is that of what no JSON may say."""
    place = success(records, "b")
    old, new = body_at(records, place)["output_hash"], hashlib.sha256(b'{"poked":Infinity}').hexdigest()
    records[place] = with_body(records[place], body_at(records, place) | {"result": {"poked": "infinite"}})
    records[place] = raw_text(records[place], '"infinite"', "1e999")
    records[:] = [raw_text(record, old, new) for record in records]


@by_operator("run", "not_committed")
def a_commit_is_dropped(records: Records) -> None:
    drop(records, COMMITTED, 0, node_id="b")


@by_operator("run", "stray_commit", "not_committed")
def a_commit_is_of_another_result(records: Records) -> None:
    edit(records, COMMITTED, 0, {"node_id": "b"}, output_hash=ZERO)


@by_operator("run", "input_hash_differs")
def a_commit_is_of_other_arguments(records: Records) -> None:
    edit(records, COMMITTED, 0, {"node_id": "b"}, input_hash=ZERO)


@by_operator("run", "input_hash_differs")
def a_commit_has_no_arguments(records: Records) -> None:
    edit(records, COMMITTED, 0, {"node_id": "b"}, input_hash=None)


@by_operator("run", "stray_commit")
def a_commit_moves_to_another_key(records: Records) -> Records:
    commit = records[at(records, COMMITTED, 0, node_id="b")]
    return put_behind(records, at(records, COMMITTED, 0, node_id="b"), again(commit, idempotency_key=ZERO))


# Who a call is.


@by_operator("run", "key_differs")
def a_key_is_another_everywhere(records: Records) -> None:
    old = body_at(records, at(records, STARTED, 0, node_id="b"))["idempotency_key"]
    records[:] = [raw_text(record, old, "ab" * 32) for record in records]


@by_operator("run", "args_differ")
def an_args_hash_is_another_everywhere(records: Records) -> None:
    for kind, name in ((STARTED, "args_hash"), (COMMITTED, "input_hash")):
        edit(records, kind, 0, {"node_id": "b"}, **{name: ZERO})


@by_operator("run", "args_differ")
def a_start_has_no_args_hash(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, args_hash=None)


@by_operator("run", "content_key_differs")
def a_content_key_is_another(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, content_key=ZERO)


@by_operator("run", "content_key_differs")
def a_start_has_no_content_key(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, content_key=None)


@by_operator("run", "content_key_differs")
def the_tenant_is_another(records: Records) -> None:
    edit(records, "job_created", tenant="somebody")


@by_operator("run", "occurrence_differs")
def an_occurrence_is_another(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, occurrence=2)


@by_operator("run", "occurrence_differs")
def an_occurrence_is_true(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, occurrence=True)


@by_operator("run", "occurrence_differs")
def an_occurrence_is_a_fraction(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, occurrence=1.0)


@by_operator("run", "success_without_valid_start")
def an_external_key_is_another(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, external_key="aetheris:else:b:0")


@by_operator("run", "success_without_valid_start")
def an_external_attempt_is_another(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, attempt_id=1)


@by_operator("run", "success_without_valid_start")
def an_attempt_is_false(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, attempt_id=False)


@by_operator("run", "success_without_valid_start")
def a_token_is_true(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, token=True)


@by_operator("run", "success_without_valid_start")
def a_token_is_a_fraction(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, token=1.0)


@by_operator("run", "success_without_valid_start")
def a_token_is_a_text(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, token="1")  # noqa: S106  no password


@by_operator("run", "success_without_valid_start")
def a_token_is_far_ahead(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, token=7)


@by_operator("run", "derivations_differ")
def a_next_token_is_derived_otherwise(records: Records) -> None:
    edit(records, "invocation_reopened", next_token=3)


@by_operator("run", "derivations_differ")
def a_next_token_is_a_fraction(records: Records) -> None:
    edit(records, "invocation_reopened", next_token=2.0)


@by_operator("run", "success_without_valid_start")
def a_revision_is_false(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, revision=False)


@by_operator("run", "success_without_valid_start")
def a_revision_is_not_there_yet(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, revision=1)


@by_operator("run", "other_tool")
def a_tool_is_another(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, tool_name="poke_pure")


@by_operator("run", "other_tool")
def a_tool_has_another_version(records: Records) -> None:
    edit(records, STARTED, 0, {"node_id": "b"}, tool_version="2")


@by_operator("run", "key_moved")
def a_retry_names_another_tool(records: Records) -> None:
    edit(records, STARTED, 1, {"node_id": "c"}, tool_name="poke_pure")


@by_operator("run", "key_moved", "args_differ")
def a_retry_has_other_arguments(records: Records) -> None:
    edit(records, STARTED, 1, {"node_id": "c"}, args_hash=ZERO)


@by_operator("run", "nonce_reused")
def a_try_has_the_name_of_an_earlier_one(records: Records) -> None:
    used = body_at(records, at(records, STARTED, 0, node_id="b"))["invocation_id"]
    for kind in (STARTED, FINISHED):
        edit(records, kind, 0, {"node_id": "c"}, invocation_id=used)
