"""What lies behind a seal is no part of what was sealed: it is named, it breaks nothing, and nothing shows it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.proofs import RawRecord, bundle, seals
from aetheris.proofs.evidence import judge, judge_whole
from tests.testkit import refused
from tests.testkit.evidence import (
    KEY,
    OTHER_KEY,
    SALT,
    SEALED_AT,
    TRUSTED,
    evidence_of,
    inclusion,
    seal,
    sealed,
    signer,
)
from tests.testkit.forged_bundles import named, opinions, statement_in
from tests.testkit.proof_histories import Log, clean


def garbage(log: Log) -> None:
    log.add("effect_confirmed", node_id="a", idempotency_key="k-a", resource={}, mode="warn")
    log.records[-1] = replace(log.records[-1], value=b"\xff")


def made_up(log: Log) -> None:
    log.add("approval_decided", node_id="a", idempotency_key="k-a", request_id="r", decision="approve", by="the CFO")


def again(log: Log) -> None:
    log.start("n77")
    log.finish("n77")


def undone(log: Log) -> None:
    log.done("a", "compensated")


def by_another(log: Log) -> None:
    said: dict[str, Any] = {"tenant": log.tenant, "job_id": log.job, "event_count": 3, "sealed_at": SEALED_AT}
    claimed = seals.seal_payload(**said, root="0", tree="0", execution_hash="", outcome_hash="", salt=SALT)
    body = seals.sign(claimed, OTHER_KEY)
    log.add("job_sealed", **{name: value for name, value in body.items() if name != "job_id"})


TAILS: dict[str, Callable[[Log], None]] = {
    "a byte that is nothing": garbage,
    "a yes that nobody said": made_up,
    "a second success": again,
    "a step undone": undone,
    "a seal by another key": by_another,
}


def bundled(records: list[RawRecord], seal_record: RawRecord) -> bytes:
    evidence = replace(evidence_of(records), inclusion=inclusion(seal_record.value))
    return bundle.build(evidence, [judge(records, TRUSTED, evidence.blobs.__getitem__)], signer(KEY))


@pytest.mark.parametrize("name", TAILS)
def test_what_lies_behind_is_named_and_nothing_else_changes(name: str) -> None:
    log = sealed(clean())
    alone, count = judge(log.records, TRUSTED, {}.__getitem__).report, len(log.records)
    assert (alone.ok, alone.after_seal) == (True, ())
    TAILS[name](log)
    report = judge(log.records, TRUSTED, {}.__getitem__).report
    assert [one.offset for one in report.after_seal] == [record.offset for record in log.records[count:]]
    seal_report = replace(report.seal, full_root=alone.seal.full_root)
    assert replace(report, after_seal=(), seal=seal_report) == alone
    data = bundled(log.records, log.records[count - 1])
    own, other = opinions(data)
    assert (own["ok"], other["ok"]) == (True, True)
    places = [[(one["event_id"], one["offset"]) for one in said["after_seal"]] for said in (own, other)]
    assert places[0] == places[1]
    assert len(places[0]) == len(log.records) - count
    for kind in ("seal", "event_chain_root_hash", "event_count", "outcome_hash", "execution_hash", "ended"):
        assert own[kind] == other[kind]
    predicate = statement_in(data)["predicate"]
    assert not any("the CFO" in str(predicate[part]) for part in ("approvals", "ledger", "provenance"))


@pytest.mark.parametrize("name", TAILS)
def test_nor_what_lies_between_the_sealed_records_and_the_seal(name: str) -> None:
    """Whoever may append can be quicker than the verifier."""
    log = sealed(clean())
    count = len(log.records) - 1
    TAILS[name](log)
    moved = [*log.records[count + 1 :], log.records[count]]
    places = [record.offset for record in log.records[count:]]
    records = [*log.records[:count], *(replace(one, offset=at) for one, at in zip(moved, places, strict=True))]
    report = judge(records, TRUSTED, {}.__getitem__).report
    assert (report.ok, report.seal.at, len(report.after_seal)) == (True, len(records) - 1, len(moved) - 1)
    own, other = opinions(bundled(records, records[-1]))
    assert (own["ok"], named(own)) == (other["ok"], named(other)) == (True, set())
    assert len(own["after_seal"]) == len(other["after_seal"]) == len(moved) - 1


def test_who_watches_judges_it_all_the_same() -> None:
    log = sealed(clean())
    again(log)
    assert judge_whole(log.records, TRUSTED, {}.__getitem__).report.violations


def test_a_seal_that_no_trusted_key_signed_ends_nothing() -> None:
    log = clean()
    seal(log, OTHER_KEY)
    garbage(log)
    report = judge(log.records, TRUSTED, {}.__getitem__).report
    assert (report.ok, report.after_seal) == (False, ())
    assert {"undecodable", "seal_unknown_key"} <= {one.rule for one in report.violations}


@pytest.mark.parametrize("name", TAILS)
def test_the_commands_say_so_and_show_it_nowhere(name: str, tmp_path: Path) -> None:
    log = sealed(clean())
    count = len(log.records)
    TAILS[name](log)
    stream, zipped = tmp_path / "s.jsonl", tmp_path / "b.zip"
    refused.write(stream, log.records, TRUSTED)
    zipped.write_bytes(bundled(log.records, log.records[count - 1]))
    for path in (stream, zipped):
        shown = CliRunner().invoke(app, ["verify", str(path), "--self-signed"])
        assert shown.exit_code == 0, shown.output
        assert "after the seal" in shown.stdout
        for view in ("trace", "ledger", "effects", "replay"):
            seen = CliRunner().invoke(app, [view, str(path), "--json"])
            assert "the CFO" not in seen.stdout
            assert "n77" not in seen.stdout
            assert "not part of it" in " ".join(seen.stderr.split())
