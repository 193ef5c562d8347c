"""The evidence bundle: what others' tools say of it, and that no part of it can be changed without notice."""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey  # pyright: ignore[reportPrivateImportUsage]  it is their public name
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.proofs import RawRecord, bundle, verify
from aetheris.proofs.canonical import canonical
from aetheris.proofs.evidence import CHAIN, PREDICATE_TYPE, BadEvidence, judge
from aetheris.proofs.records import EVENT_TYPES
from aetheris.proofs.trust import TrustedKey, moment, write_keys
from tests.testkit import refused, standalone
from tests.testkit.evidence import KEY, OTHER_KEY, SEALED_AT, TRUSTED, bundle_of, evidence_of, inclusion, sealed, signer
from tests.testkit.forged_bundles import envelope_of, named, opinions, resigned
from tests.testkit.proof_histories import Log, clean, node

Records = list[RawRecord]
REPOSITORY = Path(__file__).parent.parent.parent.parent
WITHIN_CPU_S = 2.0
SLACK = 3
"""Other tests run on the same cores."""


def rich() -> Log:
    """A job with an approval, a second try and a human's word."""
    log = Log(node("a"), node("b", "refund", "a"))
    log.start("n1")
    log.retryable("n1")
    log.start("n2", token=2, attempt_id=1)
    log.finish("n2")
    log.done()
    log.start("n3", "b", after=[{"invocation_id": "n2", "result_hash": log.hashes["a"]}])
    log.about("invocation_parked", "n3", "b")
    log.finish("n3", name="b", via="human")
    log.done("b")
    log.complete()
    return log


def pem(path: Path, key: Ed25519PrivateKey) -> Path:
    path.write_text(TrustedKey(key.public_key()).to_json()["public_key"])
    return path


def test_a_bundle_holds() -> None:
    data = bundle_of(sealed(rich()).records)
    own, other = opinions(data)
    assert (own["ok"], other["ok"]) == (True, True)
    assert {**own, "notes": None} == {**other, "notes": None}
    assert bundle_of(sealed(rich()).records) == data, "the same evidence gives the same bytes"


def test_other_tools_can_read_it() -> None:
    """securesystemslib checks the signature, in-toto's library the statement."""
    data = bundle_of(sealed(rich()).records)
    envelope = Envelope.from_dict(envelope_of(data))
    key = SSlibKey.from_crypto(KEY.public_key(), keyid=TRUSTED[0].key_id)
    assert list(envelope.verify([key], 1)) == [TRUSTED[0].key_id]
    other = SSlibKey.from_crypto(OTHER_KEY.public_key(), keyid=TRUSTED[0].key_id)
    with pytest.raises(Exception, match="signatures"):
        envelope.verify([other], 1)
    parsed = json.loads(envelope.payload)
    protobuf: Any = importlib.import_module("in_toto_attestation.v1.statement_pb2")
    Statement.copy_from_pb(ParseDict(parsed, protobuf.Statement())).validate()
    assert parsed["predicateType"] == PREDICATE_TYPE


def with_value(records: Records, at: int, **changed: Any) -> Records:
    body = json.loads(records[at].value) | changed
    return [*records[:at], replace(records[at], value=json.dumps(body).encode()), *records[at + 1 :]]


def with_header(records: Records, at: int, name: str, value: bytes) -> Records:
    headers = tuple((key, value if key == name else was) for key, was in records[at].headers)
    return [*records[:at], replace(records[at], headers=headers), *records[at + 1 :]]


def swapped_with_another_job(records: Records) -> Records:
    other = [replace(record, value=record.value.replace(b"job-1", b"job-2"), key=b"job-2") for record in records]
    return [*records[:4], other[4], *records[5:]]


def resealed_by_another(records: Records) -> Records:
    return sealed(replace_log(records[:-1]), OTHER_KEY).records


def replace_log(records: Records) -> Log:
    log = clean()
    log.records = list(records)
    return log


TAMPERINGS: dict[str, tuple[Callable[[Records], Records], str]] = {
    "edit": (lambda r: with_value(r, 3, outcome="permanent_failure"), "seal_root"),
    "delete": (lambda r: [*r[:4], *r[5:]], "seal_count"),
    "reorder": (lambda r: [*r[:3], r[4], r[3], *r[5:]], "out_of_order"),
    "drop the tail": (lambda r: r[:-2], "not_sealed"),
    "swap between jobs": (swapped_with_another_job, "foreign_record"),
    "repeat": (lambda r: [*r[:4], r[3], *r[4:]], "out_of_order"),
    "a header that repeats a field": (lambda r: with_header(r, 3, "ce_subject", b"b"), "subject_mismatch"),
    "sealed again with another key": (resealed_by_another, "seal_unknown_key"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_history_is_found_and_its_event_named(name: str, tmp_path: Path) -> None:
    """In the stream, by both implementations alike; the rule is the one that says what was done."""
    change, rule = TAMPERINGS[name]
    records = change(sealed(clean()).records)
    report = verify(records, keys=TRUSTED)
    standalone.assert_agrees(report, records, TRUSTED)
    assert report.ok == (rule == "not_sealed"), "only that it is whole can't be seen without a seal"
    path = tmp_path / "s.jsonl"
    refused.write(path, records, TRUSTED)  # it announces as many records as it has
    shown = CliRunner().invoke(app, ["verify", str(path), "--self-signed", "--json"])
    found = [broken for broken in json.loads(shown.stdout)["violations"] if broken["rule"] == rule]
    assert (shown.exit_code, bool(found)) == (1, True)
    assert all(broken["event_id"] for broken in found)


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_bundle_is_found_even_if_it_was_signed_again(name: str, tmp_path: Path) -> None:
    change, rule = TAMPERINGS[name]
    good = bundle_of(sealed(clean()).records)
    records = change(sealed(clean()).records)

    def put(statement: dict[str, Any]) -> None:
        statement["predicate"]["records"] = [refused.record_json(record) for record in records]

    own, other = opinions(resigned(good, put))
    assert rule in {broken["rule"] for broken in own["violations"]}
    assert (own["ok"], named(own)) == (other["ok"], named(other)) == (False, named(own))
    path, script = tmp_path / "b.zip", tmp_path / "verify.py"
    path.write_bytes(resigned(good, put, OTHER_KEY))
    script.write_bytes(bundle.script())
    public = pem(tmp_path / "key.pem", KEY)
    shown = CliRunner().invoke(app, ["verify", str(path), "--public-key", str(public), "--json"])
    assert (shown.exit_code, json.loads(shown.stdout)["violations"][0]["rule"]) == (1, "envelope_unknown_key")
    command = [sys.executable, "-I", str(script), str(path), "--public-key", str(public)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["violations"][0]["rule"]) == (1, "envelope_unknown_key")


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(statement: dict[str, Any]) -> None:
        place: Any = statement
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return change


LIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another subject": (put("subject", value=[{"name": "job-2", "digest": {CHAIN: "0" * 64}}]), "subject_differs"),
    "another job": (put("predicate", "job_id", value="job-2"), "other_job"),
    "a ledger row left out": (lambda s: s["predicate"]["ledger"].pop(), "derived_differs"),
    "an approval made up": (lambda s: s["predicate"]["approvals"].append({}), "derived_differs"),
    "another planner": (put("predicate", "provenance", "submitted_by", value="you"), "derived_differs"),
    "another outcome": (put("predicate", "report", "outcome_hash", value="0" * 64), "derived_differs"),
    "another type": (put("predicateType", value="urn:other:v1"), "bad_statement"),
    "another statement": (put("_type", value="https://in-toto.io/Statement/v0.1"), "bad_statement"),
    "no records": (put("predicate", "records", value=[]), "no_history"),
    "records of another form": (put("predicate", "records", value=[{"offset": "1"}]), "bad_statement"),
    "another seal's proof": (put("predicate", "inclusion", value=inclusion(b"other")), "not_included"),
    "a proof that is none": (put("predicate", "inclusion", value="c2sp.org/tlog-proof@v1\nindex x\n\n"), "bad_proof"),
    "another log's checkpoint": (
        put("predicate", "inclusion", value=inclusion(sealed(rich()).records[-1].value, OTHER_KEY)),
        "checkpoint_unknown_key",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_statement_that_says_what_its_records_don_t_is_refused(name: str) -> None:
    change, rule = LIES[name]
    own, other = opinions(resigned(bundle_of(sealed(rich()).records), change))
    assert rule in {broken["rule"] for broken in own["violations"]}
    assert named(own) == named(other)
    assert (own["ok"], other["ok"]) == (False, False)


def test_what_does_not_hold_is_no_evidence() -> None:
    broken = clean()
    text = broken.finish("never-started", name="a")
    for log, rule in ((broken, "success_without_valid_start"), (clean(), "not_sealed")):
        evidence = evidence_of(log.records)
        judged = judge(log.records, TRUSTED, evidence.blobs.__getitem__)
        with pytest.raises(BadEvidence) as error:
            bundle.build(evidence, [judged], signer(KEY))
        assert error.value.rule == rule
        assert rule == "not_sealed" or f"event {text} at offset" in error.value.message


# Keys and their times.

EARLIER, LATER = "2025-06-01T00:00:00+00:00", "2026-06-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("times", "rule"),
    [
        ({"valid_from": EARLIER, "valid_until": LATER}, None),
        ({"valid_until": LATER}, None),
        ({"revoked_at": LATER}, None),
        ({"valid_until": SEALED_AT}, "seal_key_time"),
        ({"valid_from": LATER}, "seal_key_time"),
        ({"revoked_at": SEALED_AT}, "seal_revoked_key"),
        ({"revoked_at": EARLIER}, "seal_revoked_key"),
    ],
)
def test_a_key_counts_in_its_time(times: dict[str, str], rule: str | None) -> None:
    key = replace(TRUSTED[0], **{name: moment(at) for name, at in times.items()})
    records = sealed(clean()).records
    report = verify(records, keys=[key])
    standalone.assert_agrees(report, records, [key])
    assert [broken.rule for broken in report.violations] == ([rule] if rule else [])


def test_a_seal_without_a_time_needs_a_key_without_times() -> None:
    records = sealed(clean(), sealed_at="some day").records
    assert verify(records, keys=TRUSTED).ok
    bounded = replace(TRUSTED[0], valid_from=moment(EARLIER))
    assert [broken.rule for broken in verify(records, keys=[bounded]).violations] == ["seal_time"]


def test_a_revoked_key_vouches_for_no_bundle(tmp_path: Path) -> None:
    """What it sealed before stays good, but under evidence that another key signs."""
    data = bundle_of(sealed(clean()).records)
    revoked = replace(TRUSTED[0], revoked_at=moment(LATER))
    own, other = opinions(data, [revoked])
    assert named(own) == named(other) == {("envelope_revoked_key", "")}
    keys = tmp_path / "keys.json"
    keys.write_text(write_keys([revoked, TrustedKey(OTHER_KEY.public_key())]))
    (tmp_path / "b.zip").write_bytes(data)
    command = ["verify", str(tmp_path / "b.zip"), "--public-key", str(keys)]
    assert CliRunner().invoke(app, command).exit_code == 1


def test_a_retired_key_vouches_for_nothing_that_says_no_time() -> None:
    """Who has it could have signed that just now; what it sealed in its time stays good, under another's."""
    records = sealed(clean()).records
    data = bundle_of(records)
    retired, leaving = (replace(TRUSTED[0], valid_until=moment(at)) for at in (LATER, "9999-01-01T00:00:00+00:00"))
    for keys, rules in (
        ([retired], {("envelope_retired_key", "")}),
        ([leaving], set[tuple[str, str]]()),
        ([replace(retired, revoked_at=moment(LATER))], {("envelope_revoked_key", "")}),
    ):
        own, other = opinions(data, keys, moment("2026-06-02T00:00:00+00:00"))
        assert named(own) == named(other) == rules
        own, other = opinions(data, keys, moment(SEALED_AT))
        assert named(own) == named(other) == rules - {("envelope_retired_key", "")}
    other_key = TrustedKey(OTHER_KEY.public_key())
    of_old = resigned(data, lambda _: None, OTHER_KEY)
    of_new = resigned(data, put("predicate", "inclusion", value=inclusion(records[-1].value, OTHER_KEY)), OTHER_KEY)
    for one, rules in ((of_old, {("checkpoint_retired_key", "")}), (of_new, set[tuple[str, str]]())):
        own, other = opinions(one, [retired, other_key])
        assert named(own) == named(other) == rules
        assert own["ok"] == other["ok"] == (not rules)


# The script.


def test_its_hash_is_published() -> None:
    assert bundle.script_sha256() in (REPOSITORY / "docs" / "evidence.md").read_text()


def test_it_knows_every_event() -> None:
    assert standalone.verify.EVENT_TYPES == EVENT_TYPES


def test_it_needs_the_standard_library_and_cryptography_alone() -> None:
    names = {
        line.split()[1].split(".")[0]
        for line in bundle.script().decode().splitlines()
        if line.startswith(("import ", "from "))
    }
    assert names - sys.stdlib_module_names == {"cryptography"}


NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_its_canonical_json_is_that_of_rfc8785(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        assert standalone.verify.json_hash(value) == ""
        return
    assert standalone.verify.canonical(value).encode() == expected == canonical(value)


def test_a_long_job_is_checked_in_seconds() -> None:
    """20,000 events: the stream and its bundle in less than two seconds each, where nothing else runs."""
    log = Log(*(node(f"n{at}") for at in range(4000)))
    for at in range(4000):
        log.start(f"x{at}", f"n{at}")
        log.finish(f"x{at}", name=f"n{at}")
        log.add("state_changed", node_id=f"n{at}", changes=[])
        log.done(f"n{at}")
    log.complete()
    records = sealed(log).records
    assert len(records) > 20_000
    began = time.process_time()
    assert verify(records, keys=TRUSTED).ok
    verified = time.process_time()
    data = bundle_of(records)
    built = time.process_time()
    assert bundle.judge(data, TRUSTED)["ok"]
    judged = time.process_time()
    assert standalone.verify.check_bundle(data, None)["ok"]
    by_script = time.process_time()
    took = {"verify": verified - began, "bundle": judged - built, "script": by_script - judged}
    print({name: f"{seconds:.2f} s" for name, seconds in took.items()}, f"{len(data)} bytes")  # noqa: T201  the figure
    assert max(took.values()) < WITHIN_CPU_S * SLACK
