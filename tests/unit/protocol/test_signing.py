"""Batches of signed records: every leaf of every size has a path, and no other."""

import hashlib
from dataclasses import asdict

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from aetheris.proofs.merkle import Tree, leaf_hash
from aetheris.protocol.base import signing
from aetheris.protocol.base.signing import RecordSignature, SignedPlace

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize("size", [*range(1, 18), 33, 100])
def test_a_batch_is_the_tree_of_the_seals(size: int) -> None:
    reported = [b"statement %d" % index for index in range(size)]
    root, paths = signing.batch([signing.leaf(one) for one in reported])
    tree = Tree()
    for one in reported:
        tree.append(leaf_hash(one))
    assert root == tree.root()
    for index, one in enumerate(reported):
        assert list(paths[index]) == tree.inclusion(index, size)
        way = RecordSignature("k", b"", index, size, paths[index])
        assert signing.root_of(one, way) == root
        assert signing.root_of(b"another", way) != root
        longer = RecordSignature("k", b"", index, size, (*paths[index], hashlib.sha256(b"").digest()))
        assert signing.root_of(one, longer) is None


@pytest.mark.parametrize(("index", "size"), [(-1, 1), (1, 1), (0, 0), (5, 4)])
def test_no_leaf_lies_outside_of_its_batch(index: int, size: int) -> None:
    assert signing.root_of(b"one", RecordSignature("k", b"", index, size, ())) is None


def test_a_batch_has_a_leaf() -> None:
    with pytest.raises(ValueError, match="from one to a million"):
        signing.batch([])


@pytest.mark.parametrize(
    "payload", [b'{"a":"x,\\"sig\\":{}"}', b'{"sig":{"key":"k","value":"v"}}', b'{"a":{"b":1,"sig":{}}}']
)
def test_the_payload_is_what_stands_before_the_last_member(payload: bytes) -> None:
    signature = RecordSignature("0" * 64, bytes(64), 1, 2, (bytes(32),))
    assert signing.read_signed(signing.signed_value(payload, signature)) == (payload, signature)


@pytest.mark.parametrize("size", [1, 2])
def test_a_signature_is_written_in_one_way(size: int) -> None:
    """Another last letter before its padding says the same bytes."""
    path = (bytes(32),) if size == 2 else ()
    value = signing.signed_value(b'{"a":1}', RecordSignature("0" * 64, bytes(64), 0, size, path))
    for mark, padding in ((b'"value"', b"=="), (b'"path"', b"="))[:size]:
        begin = value.index(b"A" + padding + b'"', value.index(mark))
        assert signing.read_signed(value[:begin] + b"B" + value[begin + 1 :]) is None
    assert signing.read_signed(value) is not None


def test_no_place_and_payload_read_as_another() -> None:
    one = signing.statement(SignedPlace("i", "t", "x", "k"), b'{"a":1}')
    assert one.count(b"\n") == 1
    assert signing.statement(SignedPlace("i", "t", "x", 'k"}\n{'), b"") not in (one, b"")


@given(st.builds(SignedPlace, TEXTS, TEXTS, TEXTS, TEXTS, st.none() | TEXTS, st.none() | st.integers(0, 2**53 - 1)))
@example(SignedPlace("a" * 64, "aetheris.jobs.events.v1", "job_created", "job_01-A:2", "b" * 64, 2**53 - 1))
def test_a_place_is_said_in_canonical_form(place: SignedPlace) -> None:
    line = rfc8785.dumps(asdict(place))
    assert signing.statement(place, b"{}") == signing.pae(signing.RECORD, line + b"\n{}")


@pytest.mark.parametrize("reported", [None, [], {}, {"service": "planner"}, {"service": 1, "root": "x"}])
def test_what_is_no_certificate(reported: object) -> None:
    assert signing.read_certificate(reported) is None
