"""Facts that come behind a seal: an amendment covers them, and what else lies there is no part of the job."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aetheris.cli.seal_audit import Books
from aetheris.proofs import RawRecord, bundle
from aetheris.proofs.chain import event_chain_root
from aetheris.proofs.claims import Claim, against_claims
from aetheris.proofs.due_amendments import due_amendment
from aetheris.proofs.evidence import BadEvidence, judge
from aetheris.proofs.trust import SEAL, keyring
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from tests.testkit.evidence import KEY, OTHER_KEY, TRUSTED, amend, evidence_of, seal, sealed, signer
from tests.testkit.forged_bundles import named, opinions, statement_in
from tests.testkit.proof_histories import Log, clean


def unsure() -> Log:
    """A job that failed with a call of which nobody heard any more."""
    log = Log()
    log.start("n1")
    log.permanent("n1", "ledger")
    log.done("a", "permanent_failure")
    log.add("job_failed", error="a")
    return sealed(log)


def due(log: Log) -> bool:
    return due_amendment(log.records, TRUSTED, None) is not None


def bundled(log: Log) -> bytes:
    return bundle.build(evidence_of(log.records), [judge(log.records, TRUSTED, {}.__getitem__)], signer(KEY))


def told(log: Log) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both readers' reports on the job's bundle: they agree."""
    own, other = opinions(bundled(log))
    for kind in ("seal", "ok", "event_chain_root_hash", "event_tree_root_hash", "event_count", "outcome_hash"):
        assert own[kind] == other[kind], kind
    assert named(own) == named(other)
    for kind in ("after_seal", "unproven"):
        assert [(one["event_id"], one["offset"]) for one in own[kind]] == [
            (one["event_id"], one["offset"]) for one in other[kind]
        ]
    return own, other


def test_a_late_success_is_amended_and_what_was_sealed_stands_beside_it() -> None:
    log = unsure()
    before = judge(log.records, TRUSTED, {}.__getitem__).report
    log.finish("n1", via="late")
    assert due(log)
    amended = amend(log)
    own, other = told(log)
    assert own["amended"] is not None
    for one in (own["amended"], other["amended"]):
        assert (one["event_count"], one["root"], one["tree"]) == (
            before.event_count,
            before.event_chain_root_hash,
            before.event_tree_root_hash,
        )
        assert (one["ok"], one["amendments"]) == (True, 1)
    shows = {(one["rule"], one["event_id"]) for one in own["amended"]["shows"]}
    assert shows == {(one["rule"], one["event_id"]) for one in other["amended"]["shows"]} == named(own)
    assert "truth_differs" in {rule for rule, _ in shows}
    assert (own["ok"], own["seal"]["ok"], own["seal"]["event_count"]) == (False, True, len(log.records) - 1)
    assert own["after_seal"] == []
    statement = statement_in(bundled(log))
    assert statement["predicate"]["amended"]["event_count"] == before.event_count
    assert amended == log.records[-1].header("ce_id").decode()


def made_up(log: Log) -> None:
    log.add("approval_decided", node_id="a", idempotency_key="k-a", request_id="r", decision="approve", by="the CFO")


def garbage(log: Log) -> None:
    made_up(log)
    log.records[-1] = replace(log.records[-1], value=b"\xff")


def a_strangers_seal(log: Log) -> None:
    seal(log, OTHER_KEY)


def told_by_nobody(log: Log) -> None:
    log.finish("n1", via="human")


def without_a_word(log: Log) -> None:
    log.finish("n1", via="late", word="0" * 64)


def a_start(log: Log) -> None:
    log.start("n7", token=2)


JUNK: dict[str, Callable[[Log], None]] = {
    one.__name__: one for one in (made_up, garbage, a_strangers_seal, told_by_nobody, without_a_word, a_start)
}


@pytest.mark.parametrize("name", JUNK)
def test_what_nobody_proves_makes_nothing_due(name: str) -> None:
    log = unsure()
    JUNK[name](log)
    assert not due(log)


@pytest.mark.parametrize("name", JUNK)
def test_and_is_no_part_of_an_amendment_that_is_over_it(name: str) -> None:
    clear = unsure()
    clear.finish("n1", via="late")
    amend(clear)
    expected = {rule for rule, _ in named(told(clear)[0])}
    log = unsure()
    count = len(log.records)
    JUNK[name](log)
    more = len(log.records) - count
    log.finish("n1", via="late")
    amend(log)
    own, _ = told(log)
    assert {rule for rule, _ in named(own)} == expected
    assert len(own["after_seal"]) == more
    assert own["unproven"] == []
    assert "the CFO" not in str(statement_in(bundled(log))["predicate"]["approvals"])


def test_what_was_said_before_makes_nothing_due() -> None:
    log = sealed(clean())
    log.finish("n2", name="b")
    assert not due(log)
    late = unsure()
    late.finish("n1", via="late")
    amend(late)
    assert not due(late)
    late.finish("n1", via="late")
    assert not due(late)


def test_a_second_amendment_amends_the_first() -> None:
    log = unsure()
    log.finish("n1", via="late")
    amend(log)
    log.finish("n1", via="late", result={"ok": "otherwise"})
    amend(log)
    own, _ = told(log)
    assert own["amended"]["amendments"] == 2
    assert own["seal"]["event_count"] == len(log.records) - 1


@pytest.mark.parametrize("changed", [{"consistency": []}, {"consistency": ["0" * 64]}, {"consistency": None}])
def test_an_amendment_proves_that_the_tree_only_grew(changed: dict[str, Any]) -> None:
    log = unsure()
    log.finish("n1", via="late")
    amend(log, **changed)
    report = judge(log.records, TRUSTED, {}.__getitem__).report
    assert "seal_consistency" in {one.rule for one in report.violations}
    with pytest.raises(BadEvidence):
        bundled(log)


@pytest.mark.parametrize("changed", [{"amends": "0" * 64}, {"amends": 1}, {"event_count": 3}, {"root": "0" * 64}])
def test_what_amends_no_seal_of_the_job_amends_nothing(changed: dict[str, Any]) -> None:
    log = unsure()
    log.finish("n1", via="late")
    amend(log, **changed)
    report = judge(log.records, TRUSTED, {}.__getitem__).report
    assert (report.ok, report.amended) == (True, None)
    assert len(report.after_seal) == 3, "the report, its commit and the seal"


def test_an_amendment_dropped_leaves_what_was_sealed() -> None:
    """That it is missing only the log of seals says."""
    log = unsure()
    count = len(log.records)
    log.finish("n1", via="late")
    amend(log)
    records: list[RawRecord] = log.records[:count]
    assert judge(records, TRUSTED, {}.__getitem__).report.ok


def test_a_seal_of_what_breaks_a_rule_is_not_exported_whatever_amends_it() -> None:
    log = Log()
    log.start("n1")
    log.add("job_failed", error="a")
    sealed(log)
    log.finish("n1", via="late")
    amend(log)
    with pytest.raises(BadEvidence):
        bundled(log)


def against(log: Log, *claims: Claim) -> set[str]:
    return {one.rule for one in against_claims(log.records, claims)}


def claim(log: Log, leaf: int, count: int, *, amends: bool = False) -> Claim:
    return Claim(leaf, log.job, count, event_chain_root(log.records[:count]), amends=amends)


def test_of_two_lines_that_seal_other_records_one_must_amend_the_other() -> None:
    log = unsure()
    count = len(log.records) - 1
    assert against(log, claim(log, 0, count), claim(log, 1, count)) == set(), "the same twice is one seal"
    assert against(log, claim(log, 0, count), claim(log, 1, count - 1)) == {"sealed_otherwise"}
    log.finish("n1", via="late")
    amend(log)
    amended = claim(log, 1, len(log.records) - 1, amends=True)
    assert against(log, claim(log, 0, count), amended) == set()


def test_a_stream_without_what_amends_its_seal_misses_records() -> None:
    log = unsure()
    count = len(log.records) - 1
    log.finish("n1", via="late")
    amend(log)
    claims = claim(log, 0, count), claim(log, 1, len(log.records) - 1, amends=True)
    log.records.pop()
    assert against(log, *claims) == {"records_missing"}
    del log.records[count + 1 :]
    assert against(log, *claims) == {"records_missing"}


def test_the_audit_of_the_log_of_seals_names_what_was_sealed_otherwise() -> None:
    log = unsure()
    first = log.records[-1].value
    log.records.pop()
    log.add("command_committed", node_id="a", command_id="a")
    other = sealed(log).records[-1].value
    for lines, rules in (((first, first), set[str]()), ((first, other), {"sealed_otherwise"})):
        books = Books(keyring(TRUSTED, SEAL))
        for offset, line in enumerate(lines):
            books.take_seal(Record(Topic.JOBS_SEALS, 0, offset, 0, log.job.encode(), (), line), claims=False)
        assert {rule for rule, _ in books.violations(None)} == rules
