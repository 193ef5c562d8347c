"""The vectors that every implementation of the proofs must give, byte for byte."""

import base64
import hashlib
import json
import struct
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs import RawRecord, seals
from aetheris.proofs.chain import ChainHead, event_chain_root, event_tree_root, record_leaf
from aetheris.proofs.execution import execution_hash, outcome_hash
from aetheris.proofs.history import History
from aetheris.proofs.merkle import Tree
from aetheris.proofs.records import read
from aetheris.proofs.validity import Validity
from aetheris.protocol.base import record_tree
from aetheris.protocol.base.records import Record
from tests.testkit.standalone import verify

CHAIN_ROOT = "0e973b594e8c314aa90cb005006a68b58e00f770df372e0d15b10e535d77778a"
TREE_ROOT = "272e4566a1010622a39aaf0d6678197674278368242473d4c02003fcc0f7cfc1"
EMPTY_GRAPH_HASH = "acf2fa57"
SEAL_SIGNATURE = "DtyM281QuIl2kan4rLdRN56Sst/9Oc3RiF9JxDVLiTeg5iUJlIwx1aqxKGHMpahQhDD2mHDSFJAqrQP9BgDvAA=="
EXECUTION_HASH = "795df6120c51cacde03330c9a36a06996fde0a24040dcdd819b9d10a511129f1"


def _record(event_id: str, kind: str, value: str) -> RawRecord:
    headers = (("ce_id", event_id.encode()), ("ce_type", f"io.aetheris.{kind}.v1".encode()))
    return RawRecord(0, b"job", headers, value.encode())


def _history(*events: tuple[str, str, dict[str, Any]]) -> History:
    records = [_record(event_id, kind, json.dumps(body)) for event_id, kind, body in events]
    return History(read(record, at)[0] for at, record in enumerate(records))


def test_chain() -> None:
    records = [_record("1", "job_created", "{}"), _record("2", "job_completed", "{}")]
    assert event_chain_root(records) == CHAIN_ROOT
    head = ChainHead()
    for record in records:
        head.update(record)
    assert (head.hexdigest(), head.count) == (CHAIN_ROOT, 2)


def test_chain_by_hand() -> None:
    """root_1 with an empty root before it, and missing headers as empty text."""
    value = b"\x00\xff"
    expected = hashlib.sha256(b"\n  " + base64.b64encode(value)).hexdigest()
    assert event_chain_root([RawRecord(0, None, (), value)]) == expected
    assert event_chain_root([]) == ""


def lp(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _known(*headers: tuple[str, str], value: bytes = b"{}") -> RawRecord:
    return RawRecord(0, b"job", tuple((name, text.encode()) for name, text in headers), value)


WHOLE = _known(
    ("ce_specversion", "1.0"),
    ("ce_id", "1"),
    ("ce_source", "aetheris/planner"),
    ("ce_type", "io.aetheris.job_created.v1"),
    ("ce_subject", "job"),
    ("ce_time", "2026-01-01T00:00:00+00:00"),
)
BARE = RawRecord(0, None, (), b"\x00\xff")
ODD = _known(("ce_id", ""), ("ce_type", "x"), ("ce_time", "a b"), ("ce_source", "\n"))
TWICE = _known(("ce_time", "1"), ("ce_id", "i"), ("ce_time", "2"), ("ce_type", "x"))
LEAVES = [
    (WHOLE, "eff7b2a9892a16e2e385e35b5b1462bb872cbd7018ec892070f78b04812e142a"),
    (BARE, "36cf12e74c22603e5f8124bf6915b5c1671ad541a81e650bc469a24867b61b80"),
    (ODD, "ac449751a31f91d09a8b2221561e059779aaea22fbd3f3cad53c694943d6c013"),
    (TWICE, "d78915f1c18ba2ba0f39a74d55ef3f83c4cf210de6290716e0db9ece3e37e7b0"),
]


def test_leaves_by_hand() -> None:
    """By its definition: what is absent is FFFFFFFF, what comes twice FFFFFFFE, and every other part has its length."""
    end = lp(hashlib.sha256(b"{}").digest())
    said = (b"1", b"io.aetheris.job_created.v1", b"2026-01-01T00:00:00+00:00", b"aetheris/planner")
    assert record_leaf(WHOLE) == hashlib.sha256(b"\0" + b"".join(map(lp, said)) + end).digest()
    bare = b"\0" + b"\xff\xff\xff\xff" * 4 + lp(hashlib.sha256(b"\x00\xff").digest())
    assert record_leaf(BARE) == hashlib.sha256(bare).digest()
    odd = b"".join(map(lp, (b"", b"x", b"a b", b"\n")))
    assert record_leaf(ODD) == hashlib.sha256(b"\0" + odd + end).digest()
    twice = lp(b"i") + lp(b"x") + b"\xff\xff\xff\xfe" + b"\xff\xff\xff\xff"
    assert record_leaf(TWICE) == hashlib.sha256(b"\0" + twice + end).digest()


@pytest.mark.parametrize(("record", "leaf"), LEAVES)
def test_leaves(record: RawRecord, leaf: str) -> None:
    """Of proofs, script and services."""
    mine = Record("t", 0, 0, 0, record.key, record.headers, record.value)
    (other,) = verify.leaves([verify.Record(0, 0, record.key, list(record.headers), record.value)])
    assert record_leaf(record).hex() == other.hex() == record_tree.record_leaf(mine).hex() == leaf


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 100])
def test_tree(count: int) -> None:
    """RFC 9162's, of proofs, script and services."""
    records = [_record(str(at), "job_created", "{}") for at in range(count)]
    theirs = [Record("t", 0, 0, 0, one.key, one.headers, one.value) for one in records]
    built = Tree()
    for record in records:
        built.append(record_leaf(record))
    root = built.root().hex()
    assert event_tree_root(records) == verify.tree(list(map(record_leaf, records))).hex() == root
    assert record_tree.tree_over(theirs).hex() == root


def test_tree_vector() -> None:
    assert event_tree_root([_record("1", "job_created", "{}"), _record("2", "job_completed", "{}")]) == TREE_ROOT
    assert event_tree_root([]) == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("name", ["ce_id", "ce_type", "ce_time", "ce_source"])
def test_the_tree_sees_what_is_known_of_a_record(name: str) -> None:
    """Changed, moved to its neighbour, empty, gone, twice the same."""
    given = [(key, value) for key, value in WHOLE.headers if key != name]
    value = WHOLE.header(name)
    others = [((name, value + b"x"),), ((name, b""),), (), ((name, value), (name, value)), ((name.upper(), value),)]
    found = {record_leaf(RawRecord(0, b"job", (*given, *other), b"{}")) for other in others}
    assert record_leaf(WHOLE) not in found
    assert len(found) == 4, "under another name it is gone"


@pytest.mark.parametrize(
    "changed",
    [
        [("2", "job_completed", "{}"), ("1", "job_created", "{}")],
        [("1", "job_created", "{}")],
        [("1", "job_created", "{}"), ("2", "job_completed", "{} ")],
        [("1", "job_created", "{}"), ("3", "job_completed", "{}")],
        [("1", "job_created", "{}"), ("2", "job_failed", "{}")],
        [("1", "job_created", "{}"), ("2", "job_completed", "{}"), ("2", "job_completed", "{}")],
    ],
    ids=["order", "removed", "payload byte", "event id", "type", "repeated"],
)
def test_chain_sees_every_change(changed: list[tuple[str, str, str]]) -> None:
    assert event_chain_root(_record(*event) for event in changed) != CHAIN_ROOT


def _plan(event_id: str = "p", **graph: Any) -> tuple[str, str, dict[str, Any]]:
    return event_id, "plan_generated", {"revision": 0, "task_graph": graph or {"nodes": []}}


def _finished(event_id: str, name: str, result_type: str) -> tuple[str, str, dict[str, Any]]:
    return event_id, "node_finished", {"node_id": name, "result_type": result_type}


STEPS = (_finished("f1", "n1", "success"), _finished("f2", "n2", "side_effect_committed"))


def test_execution_hash() -> None:
    assert hashlib.sha256(b'{"nodes":[]}').hexdigest().startswith(EMPTY_GRAPH_HASH)
    assert execution_hash(_history(_plan(), *STEPS)) == EXECUTION_HASH


def test_execution_hash_counts_an_event_once() -> None:
    assert execution_hash(_history(_plan(), STEPS[0], STEPS[0], STEPS[1], STEPS[0])) == EXECUTION_HASH


def test_execution_hash_takes_the_first_plan() -> None:
    assert execution_hash(_history(_plan(), _plan("q", nodes=[1]), *STEPS)) == EXECUTION_HASH


@pytest.mark.parametrize(
    "events",
    [
        (_plan(), STEPS[1], STEPS[0]),
        (_plan(), STEPS[0]),
        (_plan(nodes=[1]), *STEPS),
        (_plan(), _finished("f1", "n1", "permanent_failure"), STEPS[1]),
    ],
    ids=["order", "missing", "plan", "result type"],
)
def test_execution_hash_sees_every_change(events: tuple[tuple[str, str, dict[str, Any]], ...]) -> None:
    assert execution_hash(_history(*events)) != EXECUTION_HASH


@pytest.mark.parametrize("events", [["decision_snapshot", "job_created"], ["job_created"]])
def test_execution_hash_without_a_plan(events: list[str]) -> None:
    body = {"goal": events[0]}
    named = [(kind, kind, {"goal": kind}) for kind in reversed(events)]
    canonical = hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).hexdigest()
    assert execution_hash(_history(*named)) == hashlib.sha256(canonical.encode()).hexdigest()


def test_outcome_hash() -> None:
    """By hand: b needs c, so Kahn gives a, c, b; what never finished is empty."""
    nodes = [{"id": "b", "depends_on": ["c"]}, {"id": "c"}, {"id": "a"}]
    history = _history(_plan(nodes=nodes), _finished("f", "c", "success"))
    rows = '[["a","",""],["c","success",""],["b","",""]]'
    expected = hashlib.sha256(rows.encode()).hexdigest()
    assert outcome_hash(Validity(history)).value == expected


def test_outcome_hash_orders_ties_by_bytes() -> None:
    """U+FF5E sorts before U+1F600 in UTF-8, but after it in UTF-16."""
    history = _history(_plan(nodes=[{"id": "\U0001f600"}, {"id": "\uff5e"}]))
    rows = json.dumps([["\uff5e", "", ""], ["\U0001f600", "", ""]], ensure_ascii=False, separators=(",", ":"))
    assert outcome_hash(Validity(history)).value == hashlib.sha256(rows.encode()).hexdigest()


def test_pae() -> None:
    """The example of the DSSE specification."""
    assert seals.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_seal_signature() -> None:
    """RFC 8032 §7.1's first key over a fixed payload."""
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = Ed25519PrivateKey.from_private_bytes(secret)
    payload = seals.seal_payload(
        tenant="acme",
        job_id="job-1",
        event_count=2,
        root=CHAIN_ROOT,
        tree=TREE_ROOT,
        execution_hash=EXECUTION_HASH,
        outcome_hash="",
        sealed_at="2026-01-01T00:00:00+00:00",
        salt="5a" * 16,
    )
    sealed = seals.sign(payload, key)
    assert sealed["key_id"] == "21fe31dfa154a261"
    assert sealed["signature"] == SEAL_SIGNATURE
    assert seals.verify(sealed, key.public_key())
