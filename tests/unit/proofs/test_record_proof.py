"""One record of a sealed job is proved without any other, and nothing else can be proved in its place."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.proofs import record_proof, seals
from aetheris.proofs.chain import EventChain
from aetheris.proofs.merkle import consistency_holds
from aetheris.proofs.record_proof import check, make
from aetheris.proofs.sealed_leaves import BadRecordProof
from aetheris.proofs.trust import TrustedKey, keys_of
from tests.testkit.evidence import KEY, OTHER_KEY, SEALED_AT, TRUSTED, bundle_of, inclusion, sealed
from tests.testkit.proof_histories import JOB, clean

RECORDS = sealed(clean()).records
COUNT = len(RECORDS) - 1
SEAL = RECORDS[-1]


def proof(at: int = 3, **options: Any) -> bytes:
    return make(RECORDS[:-1], at, SEAL, inclusion(SEAL.value), **options)


def changed(**parts: Any) -> bytes:
    return json.dumps({**json.loads(proof()), **parts}).encode()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("at", range(COUNT))
@pytest.mark.parametrize("hash_only", [True, False])
def test_each_record_is_proved_alone(at: int, hash_only: bool) -> None:
    given = proof(at, hash_only=hash_only)
    found = check(given, TRUSTED)
    assert (found.job_id, found.index, found.event_count, found.is_logged) == (JOB, at, COUNT, True)
    assert found.value == (None if hash_only else RECORDS[at].value)
    assert found.headers["ce_id"] == RECORDS[at].header("ce_id")
    others = [one.value for one in RECORDS[:-1] if one.value != RECORDS[at].value]
    assert not any(text(other) in given.decode() for other in others)
    assert not hash_only or text(RECORDS[at].value) not in given.decode()


def test_nor_is_the_seal_or_what_lies_behind_it() -> None:
    for at in (COUNT, -1):
        with pytest.raises(BadRecordProof):
            make(RECORDS, at, SEAL)


def other_seal(**said: Any) -> str:
    body = {name: value for name, value in json.loads(SEAL.value).items() if name not in ("signature", "key_id")}
    return text(json.dumps(seals.sign({**body, **said}, KEY)).encode())


HEADERS = {name: text(value) for name, value in RECORDS[3].named.items() if name in ("ce_id", "ce_type")}


@pytest.mark.parametrize(
    ("rule", "parts"),
    [
        ("not_sealed", {"value": text(RECORDS[3].value + b" ")}),
        ("not_sealed", {"index": 4}),
        ("not_sealed", {"index": -1}),
        ("not_sealed", {"index": True}),
        ("not_sealed", {"index": 3.0}),
        ("not_sealed", {"path": []}),
        ("not_sealed", {"path": ["00" * 32] * 4}),
        ("not_sealed", {"headers": HEADERS | {"ce_time": text(b"2019-01-01T00:00:00Z")}}),
        ("not_sealed", {"headers": HEADERS | {"ce_source": text(b"the CFO")}}),
        ("not_sealed", {"headers": {}}),
        ("not_sealed", {"seal": other_seal(tree="00" * 32), "inclusion": ""}),
        ("not_sealed", {"seal": other_seal(tree=7), "inclusion": ""}),
        ("not_sealed", {"seal": other_seal(event_count=10**12), "inclusion": ""}),
        ("not_sealed", {"seal": other_seal(event_count=True), "inclusion": ""}),
        ("other_job", {"seal": other_seal(job_id="another"), "inclusion": ""}),
        ("seal_chain", {"seal": other_seal(chain=1), "inclusion": ""}),
        ("bad_proof", {"seal": other_seal(job_id=None), "inclusion": ""}),
        ("seal_unknown_key", {"seal": text(b"{}")}),
        ("seal_signature", {"seal": text(SEAL.value.replace(b'"event_count": ', b'"event_count": 1'))}),
        ("not_included", {"seal": other_seal(salt="5b" * 16)}),
        ("bad_proof", {"inclusion": "x"}),
        ("bad_proof", {"inclusion": 1}),
        ("bad_proof", {"path": "x"}),
        ("bad_proof", {"path": ["zz" * 32]}),
        ("bad_proof", {"path": [1]}),
        ("bad_proof", {"path": ["00" * 32] * 65}),
        ("bad_proof", {"headers": {"ce_subject": text(b"x")}}),
        ("bad_proof", {"headers": []}),
        ("bad_proof", {"headers": {"ce_id": 1}}),
        ("bad_proof", {"value": "!"}),
        ("bad_proof", {"value_sha256": "00" * 32}),
        ("bad_proof", {"version": 2}),
        ("bad_proof", {"format": "x"}),
    ],
)
def test_what_is_no_proof_is_refused(rule: str, parts: dict[str, Any]) -> None:
    with pytest.raises(BadRecordProof) as refused:
        check(changed(**parts), TRUSTED)
    assert refused.value.rule == rule


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"a":1,"a":1}', b" " * (1 << 25)])
def test_nor_is_what_cannot_be_read(data: bytes) -> None:
    with pytest.raises(BadRecordProof) as refused:
        check(data, TRUSTED)
    assert refused.value.rule == "bad_proof"


def test_a_key_that_was_revoked_before_or_is_nobodys_vouches_for_nothing() -> None:
    (revoked,) = keys_of([{**TRUSTED[0].to_json(), "revoked_at": SEALED_AT}])
    (of_log,) = keys_of([{**TRUSTED[0].to_json(), "use": "log"}])
    other = TrustedKey(OTHER_KEY.public_key())
    for keys, rule in (([revoked], "seal_revoked_key"), ([other], "seal_unknown_key"), ([of_log], "seal_unknown_key")):
        with pytest.raises(BadRecordProof) as refused:
            check(proof(), keys)
        assert refused.value.rule == rule


def test_a_void_record_is_not_proved_as_if_it_said_something() -> None:
    log = clean()
    log.records[3] = replace(log.records[3], headers=(*log.records[3].headers, ("ce_time", b"1"), ("ce_time", b"2")))
    sealed(log)
    with pytest.raises(BadRecordProof) as refused:
        make(log.records[:-1], 3, log.records[-1])
    assert refused.value.rule == "repeated_header"


@pytest.mark.parametrize("old", range(COUNT + 1))
def test_that_a_longer_prefix_begins_with_a_shorter_is_proved_without_records(old: int) -> None:
    chain = EventChain()
    for record in RECORDS[:-1]:
        chain.add(record)
    before, after = (bytes.fromhex(chain.tree(count)) for count in (old, COUNT))
    path = chain.consistency(old, COUNT)
    assert consistency_holds(old, COUNT, path, before, after)
    if 0 < old < COUNT:
        assert not consistency_holds(old, COUNT, path, after, before)
        assert not consistency_holds(old, COUNT, path[:-1], before, after)


def test_from_a_bundle_to_a_file_and_back(tmp_path: Path) -> None:
    whole, keys, one = tmp_path / "job.zip", tmp_path / "keys.json", tmp_path / "record.json"
    whole.write_bytes(bundle_of(RECORDS))
    keys.write_text(json.dumps({"keys": [key.to_json() for key in TRUSTED]}))
    event = RECORDS[3].header("ce_id").decode()

    def run(argv: list[str]) -> Any:
        return CliRunner().invoke(app, ["seals", *argv, "--data", str(tmp_path)])

    assert run(["prove", str(whole), "--event", event, "--out", str(one)]).exit_code == 0
    good = run(["check", str(one), "--public-key", str(keys), "--json"])
    assert (good.exit_code, json.loads(good.output)["id"]) == (0, event)
    assert json.loads(good.output)["says"] == json.loads(RECORDS[3].value)
    assert run(["check", str(one), "--public-key", str(keys)]).exit_code == 0
    one.write_bytes(changed(index=4))
    assert run(["check", str(one), "--public-key", str(keys)]).exit_code == 1
    assert run(["prove", str(whole), "--event", "no such"]).exit_code == 1
    assert record_proof.of_event(whole.read_bytes(), event, hash_only=True) == proof(hash_only=True)
