"""The evidence bundle: what others' tools say of it, and that no part of it can be changed without notice."""

import base64
import importlib
import io
import json
import os
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Sequence
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
from aetheris.proofs import RawRecord, bundle, bundle_zip, seals, verify
from aetheris.proofs.canonical import canonical
from aetheris.proofs.evidence import CHAIN, PREDICATE_TYPE, BadEvidence, dumps, judge
from aetheris.proofs.records import EVENT_TYPES
from aetheris.proofs.trust import TrustedKey, moment, write_keys
from tests.testkit import refused, standalone
from tests.testkit.evidence import KEY, OTHER_KEY, SEALED_AT, TRUSTED, bundle_of, evidence_of, inclusion, sealed, signer
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


def opinions(data: bytes, keys: Sequence[TrustedKey] | None = TRUSTED) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both implementations' reports."""
    own: dict[str, Any]
    try:
        own = bundle.judge(data, keys)
    except BadEvidence as error:
        own = {"ok": False, "violations": [{"rule": error.rule, "event_id": ""}]}
    script = standalone.verify
    trusted = None if keys is None else {key.key_id: script.Key(key.to_json()) for key in keys}
    try:
        other = script.check_bundle(data, trusted)
    except script.Bad as error:
        other = {"ok": False, "violations": [{"rule": error.args[0], "event_id": ""}]}
    return own, other


def named(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(broken["rule"], broken["event_id"]) for broken in report["violations"]}


def test_a_bundle_holds() -> None:
    data = bundle_of(sealed(rich()).records)
    own, other = opinions(data)
    assert (own["ok"], other["ok"]) == (True, True)
    assert {**own, "notes": None} == {**other, "notes": None}
    assert bundle_of(sealed(rich()).records) == data, "the same evidence gives the same bytes"


def envelope_of(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return json.loads(archive.read(bundle_zip.ENVELOPE))


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


def resigned(data: bytes, change: Callable[[dict[str, Any]], object], key: Ed25519PrivateKey = KEY) -> bytes:
    """As somebody who holds a key would change it."""
    statement = json.loads(base64.b64decode(envelope_of(data)["payload"]))
    change(statement)
    payload = dumps(statement)
    signature = dict(signer(key)(seals.pae(bundle.PAYLOAD_TYPE, payload)))
    return bundle_zip.pack(bundle.envelope(payload, [signature]))


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


def changed_envelope(**changed: Any) -> bytes:
    return bundle_zip.pack(dumps(envelope_of(bundle_of(sealed(clean()).records)) | changed))


def test_an_envelope_is_signed_as_a_whole() -> None:
    good = envelope_of(bundle_of(sealed(clean()).records))
    one = good["signatures"][0]
    forged = {**one, "sig": base64.b64encode(bytes(64)).decode()}
    wrong = {
        "bad_envelope": changed_envelope(payloadType="application/json"),
        "envelope_signature": changed_envelope(signatures=[forged]),
        "envelope_unknown_key": changed_envelope(signatures=[{**one, "keyid": "0" * 16}]),
    }
    wrong |= {"none": changed_envelope(signatures=[])}
    for rule, data in wrong.items():
        own, other = opinions(data)
        expected = "envelope_unknown_key" if rule == "none" else rule
        assert (named(own), named(other)) == ({(expected, "")}, {(expected, "")})
    own, other = opinions(changed_envelope(signatures=[{"keyid": "else", "sig": "AAAA"}, one]))
    assert (own["ok"], other["ok"]) == (True, True), "a signature of somebody unknown is passed over"


def test_an_envelope_has_one_form() -> None:
    """Else what is signed had to be looked for in what nobody signed."""
    good = envelope_of(bundle_of(sealed(clean()).records))
    whole = dumps(good)
    strange = {
        "not JSON": b"{",
        "nothing": b"",
        "an array": b"[]",
        "another order": dumps(dict(reversed(good.items()))),
        "something beside": dumps(good | {"note": "hello"}),
        "a payload twice": whole[:-1] + b',"payload":"AAAA"}',
        "more space": json.dumps(good).encode(),
        "an escape in the payload": whole.replace(b"A", b"\\u0041", 1),
        "too much beside": dumps(good | {"signatures": [*good["signatures"], {"keyid": "x" * bundle.MAX_BESIDE}]}),
        "signatures that are none": dumps(good | {"signatures": {}}),
        "nested without end": whole[:-1] + b"[" * 50_000,
    }
    for name, data in strange.items():
        own, other = opinions(bundle_zip.pack(data))
        assert (named(own), named(other)) == ({("bad_envelope", "")}, {("bad_envelope", "")}), name


def swollen(extra: bytes, key: Ed25519PrivateKey) -> bytes:
    """A good bundle whose predicate has a field more, which nobody asks for."""
    good = base64.b64decode(envelope_of(bundle_of(sealed(clean()).records))["payload"])
    payload = good[:-2] + b',"extra":' + extra + b"}}"
    signature = dict(signer(key)(seals.pae(bundle.PAYLOAD_TYPE, payload)))
    return bundle_zip.pack(bundle.envelope(payload, [signature]))


def test_what_no_trusted_key_signed_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """47 kB that become 700 MB of lists: they are refused as bytes."""
    lists = b"[" + b"[]," * 4_000_000 + b"[]]"
    data = swollen(lists, OTHER_KEY)

    def parses(*_: object, **__: object) -> None:
        raise AssertionError("it was parsed")

    with monkeypatch.context() as patched:
        patched.setattr("aetheris.proofs.bundle.read_statement", parses)
        patched.setattr(standalone.verify, "read_keys", parses)
        tracemalloc.start()
        own, other = opinions(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert named(own) == named(other) == {("envelope_unknown_key", "")}
    assert peak < 8 * len(lists)
    for keys in (None, TRUSTED):
        own, other = opinions(swollen(lists, KEY), keys)
        assert named(own) == named(other) == {("bad_statement", "")}, "nor, whoever signed it, more than it may have"


@pytest.mark.parametrize("keys", [None, TRUSTED], ids=["its own keys", "a given key"])
@pytest.mark.parametrize("levels", [bundle.MAX_DEPTH - 1, 900, 5_000, 100_000])
def test_a_statement_that_nests_too_deep_is_none(keys: Sequence[TrustedKey] | None, levels: int) -> None:
    own, other = opinions(swollen(b"[" * levels + b"]" * levels, KEY), keys)
    assert named(own) == named(other) == {("bad_statement", "")}


def test_a_statement_may_nest_as_deep_as_its_records() -> None:
    own, other = opinions(swollen(b"[" * (bundle.MAX_DEPTH - 2) + b"]" * (bundle.MAX_DEPTH - 2), KEY))
    assert (own["ok"], other["ok"]) == (True, True)


def zipped(*entries: tuple[str, bytes], comment: bytes = b"", **options: Any) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", **options) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content, options.get("compression"))
        archive.comment = comment
    return target.getvalue()


def streamed(name: str, content: bytes) -> bytes:
    """As a zip that is written to a pipe: sizes follow the data."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    target = Pipe()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
        file.write(content)
    return target.getvalue()


def with_extra(name: str, content: bytes, extra: bytes) -> bytes:
    entry = zipfile.ZipInfo(name)
    entry.extra = extra
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(entry, content)
    return target.getvalue()


def with_bytes_between(good: bytes, added: bytes) -> bytes:
    """Behind the data and before the directory, whose place is put right."""
    at = good.rindex(b"PK\1\2")
    place = int.from_bytes(good[-6:-2], "little") + len(added)
    return good[:at] + added + good[at:-6] + place.to_bytes(4, "little") + good[-2:]


def before(good: bytes, other: bytes) -> bytes:
    """A second zip before the first, whose offsets are put right, so that zip tools read it."""
    directory, place = good.rindex(b"PK\1\2"), int.from_bytes(good[-6:-2], "little") + len(other)
    entry = good[directory : directory + 42] + len(other).to_bytes(4, "little") + good[directory + 46 : -22]
    return other + good[:directory] + entry + good[-22:-6] + place.to_bytes(4, "little") + good[-2:]


def changed_at(data: bytes, *places: int, by: int = 1) -> bytes:
    changed = bytearray(data)
    for at in places:
        changed[at] ^= by
    return bytes(changed)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_has_the_envelope_and_not_a_byte_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    good = bundle_of(sealed(clean()).records)
    envelope = (bundle_zip.ENVELOPE, dumps(envelope_of(good)))
    monkeypatch.setattr(bundle_zip, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(standalone.verify, "MAX_BYTES", 1_000_000)
    deflated = zipfile.ZIP_DEFLATED
    strange = {
        "nothing": b"",
        "no zip": b"PK\x03\x04 and so on",
        "something before it": b"#!/bin/sh\n" + good,
        "a second zip before it": before(good, good),
        "a second zip behind it": good + good,
        "something behind it": good + b"x" * 22,
        "something between": with_bytes_between(good, b"hidden"),
        "cut off": good[:-30],
        "a verifier of its own": zipped(envelope, ("verify.py", b"print('holds')"), compression=deflated),
        "traversal": zipped(envelope, ("../../etc/x", b"")),
        "one entry twice": zipped(envelope, envelope),
        "another instead": zipped((bundle_zip.ENVELOPE.upper(), envelope[1]), compression=deflated),
        "a name of the same length": good.replace(b"bundle.dsse.json", b"../../../dsse.js"),
        "a comment": zipped(envelope, compression=deflated, comment=b"hello"),
        "sizes behind the data": streamed(*envelope),
        "zip64": with_extra(*envelope, b"\1\0\x10\0" + bytes(16)),
        "another extra field": with_extra(*envelope, b"\x55\x54\1\0x"),
        "encrypted": changed_at(good, 6, good.rindex(b"PK\1\2") + 8),
        "an unusual packing": zipped(envelope, compression=zipfile.ZIP_LZMA),
        "another checksum": changed_at(good, 14, good.rindex(b"PK\1\2") + 16),
        "another time": changed_at(good, 10, good.rindex(b"PK\1\2") + 12),
        "on another disk": changed_at(good, len(good) - 18),
        "data that is none": changed_at(good, 60, by=0xFF),
        "a bomb": deflated_by_hand(bytes(900_000), 900_000),
        "too much": deflated_by_hand(os.urandom(1_100_000), 1_100_000),
        "more than it says": deflated_by_hand(envelope[1], len(envelope[1]) - 1),
        "less than it says": deflated_by_hand(envelope[1], len(envelope[1]) + 1),
        "more behind the packed data": deflated_by_hand(envelope[1], len(envelope[1]), b"hidden"),
    }
    for name, data in strange.items():
        own, other = opinions(data)
        assert (named(own), named(other)) == ({("bad_zip", "")}, {("bad_zip", "")}), name
    assert deflated_by_hand(envelope[1], len(envelope[1])) == good


def deflated_by_hand(content: bytes, size: int, behind: bytes = b"") -> bytes:
    """A zip in the bundle's form with what its writer would not put there."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    packed = deflater.compress(content) + deflater.flush() + behind
    form = bundle_zip.pack(b"")
    directory = form.rindex(b"PK\1\2")
    about = struct.pack("<HHHIII", 8, 0, 33, zlib.crc32(content), len(packed), size)
    local = form[:8] + about + form[26:46]
    central = form[directory : directory + 10] + about + form[directory + 28 : -22]
    return local + packed + central + form[-22:-6] + struct.pack("<IH", len(local) + len(packed), 0)


def test_what_packs_very_tight_is_stored() -> None:
    """So a small file never becomes a large one, and no honest result is refused for what it is."""
    for content in (b"", b"x", b"x" * 1_000_000, os.urandom(10_000)):
        data = bundle_zip.pack(content)
        assert bundle_zip.unpack(data) == standalone.verify.unzip(data) == content
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert (archive.namelist(), archive.testzip()) == ([bundle_zip.ENVELOPE], None)
            assert archive.read(bundle_zip.ENVELOPE) == content


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
