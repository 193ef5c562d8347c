"""Which hidden values were erased, as lines of the log of seals show; no other line says anything."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs.claims import line_leaf
from aetheris.proofs.erasures import BadErasures, Erasure, erased_values, read_erasures
from aetheris.proofs.log_lines import erased_payload, sign_line
from aetheris.proofs.merkle import Tree
from aetheris.proofs.notes import InclusionProof, sign_checkpoint
from aetheris.proofs.records import RawRecord
from aetheris.proofs.trust import LOG, SEAL, TrustedKey
from aetheris.protocol.base.hidden_values import hidden, joint_key

SEALS, LOGS = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
KEYS = [TrustedKey(SEALS.public_key(), use=SEAL), TrustedKey(LOGS.public_key(), use=LOG)]
NOW = datetime(2026, 6, 1, tzinfo=UTC)
ANN, BOB = "a" * 32, "b" * 32
SUBJECTS = {ANN: bytes(32), BOB: bytes(range(32))}


def value_of(value: Any, *pseudonyms: str) -> dict[str, Any]:
    k, key = joint_key({name: SUBJECTS[name] for name in pseudonyms})
    return hidden(key, k, "acme", "job-1", value).json()


def record(*values: Any) -> RawRecord:
    return RawRecord(0, b"job-1", (), json.dumps({"values": values}, separators=(",", ":")).encode())


RECORDS = [record(value_of("x", ANN), value_of("y", BOB)), record(value_of("x", ANN), value_of("both", ANN, BOB))]


def logged(whose: str, *, key: Ed25519PrivateKey = SEALS, log: Ed25519PrivateKey = LOGS, **more: Any) -> dict[str, str]:
    at = "2026-05-01T00:00:01+00:00"
    payload = erased_payload(pseudonym=whose, erased_at="2026-05-01T00:00:00+00:00", at=at, salt="0" * 32)
    line = json.dumps(sign_line(payload | more, key), separators=(",", ":"))
    tree = Tree()
    tree.append(line_leaf(b"before"))
    tree.append(line_leaf(line.encode()))
    note = sign_checkpoint("origin", 2, tree.root(2), log)
    return {"line": line, "proof": InclusionProof(1, tuple(tree.inclusion(1, 2)), note).dumps()}


def test_who_was_erased_closes_what_is_his_and_what_is_also_his() -> None:
    found = erased_values(RECORDS, [logged(ANN), logged("c" * 32), logged(ANN)], KEYS, NOW)
    assert (found.erased, found.wrong) == (2, ())
    assert found.erasures == (Erasure(ANN, "2026-05-01T00:00:00+00:00", "2026-05-01T00:00:01+00:00", 2),)
    assert erased_values(RECORDS, [logged(ANN), logged(BOB)], KEYS, NOW).erased == 3
    assert erased_values(RECORDS, [], KEYS, NOW).erased == 0


@pytest.mark.parametrize(
    "shown",
    [
        logged(ANN, key=Ed25519PrivateKey.generate()),
        logged(ANN, log=Ed25519PrivateKey.generate()),
        logged(ANN, key=LOGS),
        {**logged(ANN), "proof": logged(BOB)["proof"]},
        {**logged(ANN), "line": logged(ANN)["line"].replace("2026-05-01T00:00:00", "2020-05-01T00:00:00")},
        {**logged(ANN), "proof": ""},
        logged(ANN, pseudonym=7),
    ],
)
def test_a_line_that_is_not_signed_or_not_logged_says_nothing(shown: dict[str, str]) -> None:
    found = erased_values(RECORDS, [shown, logged(BOB)], KEYS, NOW)
    assert (found.wrong, [one.pseudonym for one in found.erasures]) == ((0,), [BOB])


@pytest.mark.parametrize("data", [b"", b"[]", b'{"lines": {}}', b'{"lines": [{"line": 1, "proof": ""}]}', b"[" * 9999])
def test_what_is_no_file_of_lines_is_refused(data: bytes) -> None:
    with pytest.raises(BadErasures):
        read_erasures(data)
    assert read_erasures(json.dumps({"lines": [logged(ANN)]}).encode()) == [logged(ANN)]
