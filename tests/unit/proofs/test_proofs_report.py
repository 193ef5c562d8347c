"""The whole report: replay proof, outcome, headers; what is broken is named, what is allowed is not."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from aetheris.proofs import Audit, RawRecord, verify
from aetheris.proofs.chain import ChainHead, event_chain_root, event_tree_root
from tests.testkit.evidence import TRUSTED, checked, seal, violations
from tests.testkit.proof_histories import JOB, A, Log, answer_wait, clean, digest, gone_on, node, raw, tool
from tests.testkit.standalone import assert_agrees


def test_the_report_always_has_the_four_proofs() -> None:
    report = verify([]).to_json()
    assert report["execution_hash"] == report["event_chain_root_hash"] == report["outcome_hash"] == ""
    assert report["tool_invocation_ledger_proof"]["pending_idempotency_keys"] == []
    assert report["replay_proof_result"] == {"ok": True, "error": ""}
    assert report["ok"] is False
    assert [broken["rule"] for broken in report["violations"]] == ["no_history"]


def test_the_report_of_a_clean_job() -> None:
    log = clean()
    report = checked(log).to_json()
    assert report["ok"] is True
    assert report["event_chain_root_hash"] == event_chain_root(log.records)
    assert report["event_tree_root_hash"] == event_tree_root(log.records)
    assert report["event_count"] == len(log.records)
    assert report["seal"] == {
        "present": False,
        "ok": False,
        "event_count": 0,
        "root": "",
        "tree": "",
        "full_root": event_chain_root(log.records),
    }
    assert json.loads(json.dumps(report)) == report


# The replay proof.


def test_a_success_is_committed() -> None:
    log = Log()
    log.start("n1")
    text = log.finish("n1")
    log.records.pop()
    assert checked(log).replay.to_json()["ok"] is True, "the rest of the batch is still to come"
    log.done()
    assert violations(log) == {("not_committed", text)}
    assert checked(log).to_json()["replay_proof_result"] == {
        "ok": False,
        "error": f"key {A.key} succeeded, but no command_committed says the same",
    }


def test_a_commit_has_its_finished() -> None:
    log = Log()
    log.start("n1")
    text = log.about("command_committed", command_id="a", output_hash="x")
    assert ("stray_commit", text) in violations(log)


def test_the_planner_injects_what_was_settled() -> None:
    log = Log()
    log.start("n1")
    log.finish("n1")
    text = log.done(output_hash="x")
    assert violations(log) == {("injected_result_differs", text)}


def test_a_node_is_not_done_before_its_invocation() -> None:
    log = Log()
    log.start("n1")
    text = log.done()
    log.finish("n1")
    assert violations(log) == {("unfounded_node", text)}


@pytest.mark.parametrize(
    ("effect_class", "result_type", "allowed"),
    [
        ("opaque", "side_effect_committed", True),
        ("opaque", "success", False),
        ("opaque", "permanent_failure", False),
        ("pure", "success", True),
        ("pure", "side_effect_committed", False),
    ],
)
def test_the_result_type_follows_from_the_tool(effect_class: str, result_type: str, allowed: bool) -> None:
    log = Log(tools={"refund": tool(effect_class)})
    log.start("n1")
    log.finish("n1")
    text = log.done(result_type=result_type)
    assert violations(log) == (set() if allowed else {("result_type_differs", text)})


def test_a_node_is_finished_once_and_may_then_be_compensated() -> None:
    log = Log()
    log.step("n1")
    log.records.append(replace(log.records[-1], offset=1000))
    assert violations(log) == set(), "a writer that repeats itself repeats the event_id"
    log = Log()
    log.step("n1")
    text = log.done()
    assert violations(log) == {("node_finished_twice", text)}


def test_a_node_is_planned() -> None:
    log = Log()
    text = log.done("z", "permanent_failure")
    assert violations(log) == {("unknown_node", text)}


def test_a_model_goes_on_without_a_call_that_surely_took_no_effect_and_that_nothing_needs() -> None:
    assert violations(gone_on()) == set()
    needs: list[dict[str, Any]] = [{"args": {"x": [{"$ref": "a#/x"}]}}, {"depends_on": ["a"]}]
    for log in (gone_on("graph"), gone_on(via="ledger"), *(gone_on(**one) for one in needs)):
        assert {rule for rule, _ in violations(log)} - {"args_differ", "key_differs"} == {"incomplete"}


def test_a_completed_job_is_complete() -> None:
    log = Log(node("a"), node("b"))
    log.step("n1")
    text = log.complete()
    assert violations(log) == {("incomplete", text)}


def test_a_wait_ends_without_an_invocation() -> None:
    log = Log({"id": "w", "kind": "timer", "depends_on": []})
    early = log.done("w", "success")
    assert violations(log) == {("unfounded_node", early)}
    log = Log({"id": "w", "kind": "timer", "depends_on": []})
    answer_wait(log, "wait_completed")
    log.done("w", "success", output_hash=digest(None))
    log.complete()
    assert checked(log).ok


def test_a_kind_that_is_no_text_ends_by_no_wait() -> None:
    log = Log(node("a", kind=["timer"]))
    text = log.done()
    assert ("unfounded_node", text) in violations(log)


def test_a_wait_ends_once_and_with_its_own_payload() -> None:
    expired_first = Log({"id": "w", "kind": "wait", "depends_on": []})
    answer_wait(expired_first, "invocation_rejected", "wait_completed")
    text = expired_first.done("w", "success", output_hash=digest(None))
    assert violations(expired_first) == {("unfounded_node", text)}
    other = Log({"id": "w", "kind": "wait", "depends_on": []})
    answer_wait(other, "wait_completed")
    text = other.done("w", "success", output_hash=digest({"forged": True}))
    assert violations(other) == {("injected_result_differs", text)}


@pytest.mark.parametrize("other", [{"correlation_key": "other"}, {"wait_type": "timer"}, {"idempotency_key": "k-x"}])
def test_only_an_end_that_names_the_wait_ends_it(other: dict[str, str]) -> None:
    named = {"node_id": "w", "idempotency_key": "k-w", "wait_type": "signal", "correlation_key": "go"}
    log = Log({"id": "w", "kind": "wait", "depends_on": []})
    log.add("job_waiting", **named)
    log.add("wait_completed", **{**named, **other}, output_hash=digest(None))
    text = log.done("w", "success", output_hash=digest(None))
    assert violations(log) == {("unfounded_node", text)}


# The outcome hash.


def test_outcome_is_the_same_after_trouble() -> None:
    troubled = Log(node("a"), node("b", "refund", "a"), tools={"refund": tool(volatile=["at"])})
    troubled.start("x1")
    troubled.retryable("x1")
    troubled.start("x2", token=2, attempt_id=1)
    troubled.finish("x2", via="catch_up", result={"paid": 1, "at": "noon", "external_id": "r-9"})
    troubled.done()
    calm = Log(node("a"), node("b", "refund", "a"), tools={"refund": tool(volatile=["at"])})
    calm.start("y")
    calm.finish("y", result={"paid": 1, "at": "midnight", "external_id": "r-1"})
    calm.done()
    assert checked(troubled).outcome_hash == checked(calm).outcome_hash
    assert checked(troubled).event_chain_root_hash != checked(calm).event_chain_root_hash


@pytest.mark.parametrize("result", [{"paid": 2}, {"paid": 1, "more": 1}, [], None])
def test_outcome_sees_another_result(result: Any) -> None:
    hashes: set[str] = set()
    for value in ({"paid": 1}, result):
        log = Log()
        log.start("n")
        log.finish("n", result=value)
        log.done()
        assert checked(log).violations == ()
        hashes.add(checked(log).outcome_hash)
    assert len(hashes) == 2


def _with_blob(result: Any) -> tuple[Log, bytes, str]:
    blob = rfc8785.dumps(result)
    log = Log()
    log.start("n1")
    ref = {"sha256": hashlib.sha256(blob).hexdigest(), "size": len(blob)}
    text = log.finish("n1", result=None, output_hash=digest(result), result_ref=ref)
    log.done()
    return log, blob, text


def test_a_result_by_reference_counts_as_one_in_place() -> None:
    log, blob, _ = _with_blob({"paid": 1})
    inline = Log()
    inline.start("n1")
    inline.finish("n1", result={"paid": 1})
    inline.done()
    report = checked(log, load_blob=lambda sha256: {hashlib.sha256(blob).hexdigest(): blob}[sha256])
    assert report.ok
    assert report.outcome_hash == checked(inline).outcome_hash


def _gone(sha256: str) -> bytes:
    raise FileNotFoundError(sha256)


@pytest.mark.parametrize(
    ("load", "rule"),
    [
        (None, "missing_blob"),
        (_gone, "missing_blob"),
        (lambda _: b"other", "blob_mismatch"),
    ],
)
def test_a_blob_that_is_not_there_is_never_ok(load: Callable[[str], bytes] | None, rule: str) -> None:
    log, _, text = _with_blob({"paid": 1})
    report = checked(log, load_blob=load)
    assert [(broken.rule, broken.event_id) for broken in report.violations] == [(rule, text)]
    assert (report.ok, report.outcome_hash) == (False, "")


def test_a_blob_has_the_recorded_hash() -> None:
    blob = b'{"paid":1}'
    log = Log()
    log.start("n1")
    ref = {"sha256": hashlib.sha256(blob).hexdigest(), "size": len(blob)}
    text = log.finish("n1", result=None, output_hash=digest({"paid": 2}), result_ref=ref)
    log.done()
    assert violations(log, load_blob=lambda _: blob) == {("output_hash_mismatch", text)}


def test_a_plan_has_its_hash() -> None:
    log = Log()
    text = log.add("plan_generated", revision=1, diff={"nodes": [node("b")]}, plan_hash="x")
    assert violations(log) == {("plan_hash_mismatch", text)}


# The records themselves.


def _bare(**headers: str) -> RawRecord:
    return raw(1000, "x", "retry_scheduled", {"job_id": JOB, "node_id": "a"}, **headers)


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        (replace(_bare(), key=b"job-2"), "key_mismatch"),
        (_bare(ce_subject="b"), "subject_mismatch"),
        (_bare(ce_type="io.aetheris.retry_scheduled.v2"), "unknown_version"),
        (_bare(ce_id="x y"), "ambiguous_header"),
        (replace(_bare(), value=b"{"), "undecodable"),
        (replace(_bare(), value=b'{"job_id":"job-1","job_id":"job-1"}'), "undecodable"),
        (replace(_bare(), value=b"[]"), "undecodable"),
        (replace(_bare(), offset=0), "out_of_order"),
        (raw(1000, "x", "retry_scheduled", {"job_id": "job-2"}, ce_subject="job-2"), "foreign_record"),
        (raw(1000, "x", "job_created", {"job_id": JOB}), "born_twice"),
    ],
)
def test_a_bad_record(record: RawRecord, rule: str) -> None:
    log = Log()
    log.records.append(record)
    assert rule in {name for name, _ in violations(log)}


@pytest.mark.parametrize(
    "record",
    [
        _bare(),
        _bare(ce_subject=JOB),
        replace(_bare(), key=None),
        _bare(ce_type="io.aetheris.new_thing.v3"),
        _bare(ce_type="x"),
    ],
)
def test_a_good_or_unknown_record(record: RawRecord) -> None:
    log = Log()
    log.records.append(record)
    assert violations(log) == set()


def test_a_history_begins_with_its_birth() -> None:
    log = clean()
    log.records.pop(0)
    assert "not_born" in {rule for rule, _ in violations(log)}


# The incremental auditor is the whole, at every prefix.

_RECORDS = st.lists(
    st.builds(
        lambda event_id, kind, value: RawRecord(
            0, b"j", (("ce_id", event_id), ("ce_type", b"io.aetheris." + kind + b".v1")), value
        ),
        st.binary(max_size=8),
        st.sampled_from([b"job_created", b"tool_invocation_started", b"x"]),
        st.binary(max_size=40),
    ),
    max_size=12,
)


@given(_RECORDS, st.integers(0, 12))
def test_chain_in_two_parts_is_the_whole(records: list[RawRecord], cut: int) -> None:
    first = ChainHead()
    for record in records[:cut]:
        first.update(record)
    second = ChainHead(first.root, first.count)
    for record in records[cut:]:
        second.update(record)
    assert second.hexdigest() == event_chain_root(records)
    assert second.count == len(records)


@given(_RECORDS)
def test_no_record_breaks_the_auditor(records: list[RawRecord]) -> None:
    report = verify(records)
    assert not report.ok
    assert_agrees(report, records)


def test_the_audit_reports_at_any_time() -> None:
    log = clean()
    seal(log)
    audit = Audit()
    for count, record in enumerate(log.records, 1):
        audit.add(record)
        live = audit.report(keys=TRUSTED)
        assert live == verify(log.records[:count], keys=TRUSTED)
        assert live.violations == ()


@pytest.mark.parametrize(
    ("hides", "as_of", "is_true"),
    [(0, 0, True), (0, 3, True), (1, 0, False), (0, -10, False), (0, 10_000, True), (0, "30", False), (0, None, False)],
)
def test_a_checkpoint_is_the_chain_up_to_where_it_says(hides: int, as_of: Any, is_true: bool) -> None:
    log = Log()
    log.step("n1")
    before = list(log.records)
    reported = as_of + before[-1].offset if isinstance(as_of, int) and as_of >= 0 else as_of
    told = log.add("state_checkpointed", state_hash=event_chain_root(before[: len(before) - hides]), as_of=reported)
    log.complete()
    assert violations(log) == (set() if is_true else {("checkpoint_differs", told)})
