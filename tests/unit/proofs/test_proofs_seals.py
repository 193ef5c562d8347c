"""Seals: one that holds, those that lie, and what may follow one."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aetheris.proofs import seals
from aetheris.proofs.chain import EventChain, event_chain_root, event_tree_root
from aetheris.proofs.execution import outcome_hash
from aetheris.proofs.merkle import tree_root
from tests.testkit import standalone
from tests.testkit.evidence import KEY, OTHER_KEY, SEALED_AT, checked, seal, sealed, violations
from tests.testkit.proof_histories import A, Log, answer_wait, clean, digest, node


def test_a_seal_holds() -> None:
    log = clean()
    count, root = len(log.records), event_chain_root(log.records)
    seal(log)
    log.add("effect_confirmed", node_id="a", idempotency_key=A.key, resource={}, mode="warn")
    report = checked(log)
    assert report.violations == ()
    assert report.ok
    assert (report.event_count, report.event_chain_root_hash) == (count, root)
    assert report.seal.to_json() == {
        "present": True,
        "ok": True,
        "event_count": count,
        "root": root,
        "tree": event_tree_root(log.records[:count]),
        "full_root": event_chain_root(log.records),
    }


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"root": "0" * 64}, "seal_root"),
        ({"tree": "0" * 64}, "seal_tree"),
        ({"tree": None}, "seal_tree"),
        ({"chain": 1}, "seal_chain"),
        ({"chain": 2.0}, "seal_chain"),
        ({"chain": True}, "seal_chain"),
        ({"chain": None}, "seal_chain"),
        ({"execution_hash": ""}, "seal_execution_hash"),
        ({"outcome_hash": ""}, "seal_outcome_hash"),
        ({"tenant": "other"}, "seal_tenant"),
        ({"event_count": 0}, "seal_count"),
        ({"event_count": 10_000}, "seal_count"),
        ({"event_count": True}, "seal_count"),
        ({"event_count": 3}, "sealed_unfinished"),
    ],
)
def test_a_seal_that_lies(changed: dict[str, Any], rule: str) -> None:
    log = clean()
    text = seal(log, **changed)
    assert (rule, text) in violations(log)
    assert checked(log).seal.to_json()["ok"] is False
    assert not checked(log).ok


FORGED = 60


def test_seals_of_others_cost_nothing_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each over another beginning of the job; and the one that its verifier wrote."""
    log = clean()
    body = json.loads(sealed(clean(), OTHER_KEY).records[-1].value) | {"job_id": None}
    done, made = list(log.records), list[str]()
    for at in range(FORGED):
        made.append(log.add("job_sealed", **body | {"job_id": log.job, "event_count": 1 + at % len(log.records)}))
    by_key = seal(log)
    folded, hashed = list[int](), list[int]()
    whole, own, script = standalone.verify.Job.fold, outcome_hash, standalone.verify.outcome_hash
    monkeypatch.setattr(standalone.verify.Job, "fold", lambda *a: (folded.append(1), whole(*a))[1])
    monkeypatch.setattr(standalone.verify, "outcome_hash", lambda *a: (hashed.append(1), script(*a))[1])
    monkeypatch.setattr("aetheris.proofs.sealed.outcome_hash", lambda *a: (hashed.append(2), own(*a))[1])
    found = violations(log)
    assert {("seal_unknown_key", event) for event in made} <= found
    assert not [rule for rule, event in found if event == by_key]
    assert len(done) < FORGED, "some of them are over one beginning"
    assert (len(folded), hashed.count(1), hashed.count(2)) == (1, 3, 2), "of the first, of the one that holds, of all"


def test_the_root_of_each_beginning() -> None:
    hashes = [bytes([at]) * 32 for at in range(70)]
    roots = standalone.verify.trees(hashes, range(71))
    assert [roots[count] for count in range(71)] == [tree_root(hashes[:count]) for count in range(71)]
    chain = EventChain()
    for record in clean().records * 3:
        chain.add(record)
    leaves = list(chain.leaves)
    assert [chain.tree(n) for n in range(len(leaves) + 1)] == [
        tree_root(leaves[:n]).hex() for n in range(len(leaves) + 1)
    ]


def test_a_seal_by_another_key() -> None:
    log = clean()
    text = seal(log, OTHER_KEY)
    assert violations(log) == {("seal_unknown_key", text)}
    log = clean()
    text = seal(log, OTHER_KEY)
    body = json.loads(log.records[-1].value) | {"key_id": seals.key_id(KEY.public_key())}
    log.records[-1] = replace(log.records[-1], value=json.dumps(body).encode())
    assert violations(log) == {("seal_signature", text)}


@pytest.mark.parametrize(
    "name",
    [
        "tenant",
        "job_id",
        "event_count",
        "root",
        "chain",
        "tree",
        "execution_hash",
        "outcome_hash",
        "sealed_at",
        "salt",
        "key_id",
    ],
)
def test_a_signature_covers_every_field(name: str) -> None:
    sealed = seals.sign(
        seals.seal_payload(
            tenant="t",
            job_id="j",
            event_count=1,
            root="r",
            tree="t",
            execution_hash="e",
            outcome_hash="o",
            sealed_at=SEALED_AT,
            salt="5a" * 16,
        ),
        KEY,
    )
    assert seals.verify(sealed, KEY.public_key())
    assert not seals.verify({**sealed, name: "x"}, KEY.public_key())
    assert not seals.verify({key: value for key, value in sealed.items() if key != name}, KEY.public_key())
    assert not seals.verify({**sealed, "more": 1}, KEY.public_key())


@pytest.mark.parametrize("signature", [None, "", "!", base64.b64encode(b"\0" * 64).decode(), "AA=="])
def test_a_signature_that_is_none(signature: object) -> None:
    sealed = {**seals.sign({"tenant": "t"}, KEY), "signature": signature}
    assert not seals.verify(sealed, KEY.public_key())


@pytest.mark.parametrize("at", range(11))
def test_a_sealed_history_can_not_be_changed(at: int) -> None:
    log = clean()
    seal(log)
    record = log.records[at]
    log.records[at] = replace(record, value=record.value[:-1] + b',"x":1}')
    assert "seal_root" in {rule for rule, _ in violations(log)}
    assert not checked(log).ok


@pytest.mark.parametrize("name", ["ce_time", "ce_source"])
@pytest.mark.parametrize("at", range(11))
def test_nor_who_wrote_it_when(at: int, name: str) -> None:
    """Chain version 1 has neither, and so does not see it."""
    log = clean()
    seal(log)
    record = log.records[at]
    log.records[at] = replace(record, headers=(*record.headers, (name, b"2019-01-01T00:00:00Z")))
    assert {rule for rule, _ in violations(log)} == {"seal_tree"}
    assert not checked(log).ok


@pytest.mark.parametrize("name", ["ce_id", "ce_type", "ce_time", "ce_source"])
def test_a_record_that_is_known_by_two_of_a_header_says_nothing(name: str) -> None:
    log = clean()
    start = next(at for at, record in enumerate(log.records) if b"tool_invocation_started" in record.header("ce_type"))
    record = replace(log.records[start], headers=(*log.records[start].headers, ("ce_time", b"t"), ("ce_source", b"s")))
    log.records[start] = replace(record, headers=(*record.headers, (name, b"2")))
    found = violations(log)
    assert ("repeated_header", record.header("ce_id").decode()) in found
    assert "success_without_valid_start" in {rule for rule, _ in found}


def test_behind_a_seal_no_record_becomes_one_of_no_word_or_of_one() -> None:
    log = clean()
    log.records[-2] = replace(log.records[-2], headers=(*log.records[-2].headers, ("ce_time", b"a"), ("ce_time", b"b")))
    seal(log)
    twice = log.records[-3]
    assert [name for name, _ in twice.headers].count("ce_time") == 2
    log.records[-3] = replace(twice, headers=twice.headers[:-1])
    assert "seal_tree" in {rule for rule, _ in violations(log)}


def _unsettled_then_ended() -> Log:
    log = Log()
    log.start("n1")
    log.done("a", "permanent_failure")
    log.add("job_cancelled", by="me")
    seal(log)
    return log


@pytest.mark.parametrize(
    "late",
    [
        lambda log: log.finish("n1"),
        lambda log: log.permanent("n1", "ledger"),
        lambda log: log.retryable("n1"),
        lambda log: log.reopen("n1"),
        lambda log: log.about("invocation_parked", "n1"),
        lambda log: log.revise(1, node("b")),
        lambda log: log.done("a", "compensated"),
        lambda log: log.add("step_compensated", node_id="a", compensates="a"),
    ],
)
def test_what_must_not_follow_a_seal(late: Callable[[Log], str]) -> None:
    log = _unsettled_then_ended()
    text = late(log)
    assert ("after_seal", text) in violations(log)


def test_a_late_end_of_an_answered_wait_may_follow_a_seal() -> None:
    log = Log({"id": "w", "kind": "wait", "depends_on": []})
    answer_wait(log, "wait_completed")
    log.done("w", "success", output_hash=digest(None))
    log.complete()
    seal(log)
    log.about("invocation_rejected", name="w", reason="cancelled")
    assert checked(log).ok


@pytest.mark.parametrize(
    "late",
    [
        lambda log: log.start("n9"),
        lambda log: log.permanent("n9", "executor"),
        lambda log: log.reopen("n9"),
        lambda log: log.add("confirmation_failed", node_id="a", idempotency_key=A.key, resource={}, mode="warn"),
        lambda log: log.add("job_failed", error="e"),
        lambda log: log.add("something_new"),
        lambda log: log.add("plan_generated", revision=0, task_graph=log.graph, plan_hash=digest(log.graph)),
        seal,
    ],
)
def test_what_may_follow_a_seal(late: Callable[[Log], str]) -> None:
    log = clean()
    seal(log)
    late(log)
    assert violations(log) == set()
    assert checked(log).ok
