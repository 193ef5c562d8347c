"""Requests as aiokafka's own structures read them, answers as those write them."""

import io
from typing import Any

import pytest
from aiokafka.protocol import admin as theirs_admin
from aiokafka.protocol import fetch as theirs_fetch
from aiokafka.protocol import produce as theirs_produce
from aiokafka.protocol import transaction as theirs_transaction

from aetheris.protocol.base.records import Draft
from aetheris.runtime.kafka import wire
from aetheris.runtime.kafka.batches import Damaged, pack, unpack
from aetheris.runtime.kafka.wire import FetchLimits, Session

PLACES = {("a", 0): 5, ("b", 7): 2**40, ("a", 3): 0}


def test_a_fetch_says_what_moved_and_what_was_left() -> None:
    raw = wire.fetch(Session(17, 3), PLACES, [("c", 1), ("c", 2)], FetchLimits(250))
    read: Any = theirs_fetch.FetchRequest_v10.decode(io.BytesIO(raw))
    assert (read.replica_id, read.max_wait_time, read.min_bytes, read.isolation_level) == (-1, 250, 1, 0)
    assert (read.session_id, read.session_epoch) == (17, 3)
    topics = {topic: [(part, offset) for part, _, offset, _, _ in parts] for topic, parts in read.topics}
    assert topics == {"a": [(0, 5), (3, 0)], "b": [(7, 2**40)]}
    assert [(topic, list(parts)) for topic, parts in read.forgotten_topics_data] == [("c", [1, 2])]


def test_an_answer_to_a_fetch_is_read_whole() -> None:
    parts = [(0, 0, 9, 9, 0, [(4, 5), (6, 7)], b"batch"), (1, 1, -1, -1, -1, None, None)]
    raw = theirs_fetch.FetchResponse_v10(0, 71, 42, [("a", parts), ("b", [(2, 0, 1, 1, 0, [], b"")])]).encode()
    code, number, found = wire.fetched(raw)
    assert (code, number) == (71, 42)
    assert [(one.place, one.error, one.batches) for one in found] == [
        (("a", 0), 0, b"batch"),
        (("a", 1), 1, b""),
        (("b", 2), 0, b""),
    ]
    for end in range(14, len(raw)):
        with pytest.raises(wire.Malformed):
            wire.fetched(raw[:end])


def test_a_produce_waits_for_all_in_sync() -> None:
    raw = wire.produce({("a", 1): b"one", ("b", 0): b"", ("a", 2): b"two"}, 1500)
    read: Any = theirs_produce.ProduceRequest_v7.decode(io.BytesIO(raw))
    assert (read.transactional_id, read.required_acks, read.timeout) == (None, -1, 1500)
    assert [(topic, [tuple(part) for part in parts]) for topic, parts in read.topics] == [
        ("a", [(1, b"one"), (2, b"two")]),
        ("b", [(0, b"")]),
    ]
    raw = theirs_produce.ProduceResponse_v7([("a", [(1, 0, 5, -1, 0), (2, 6, -1, -1, -1)])], 0).encode()
    assert wire.produced(raw) == {("a", 1): wire.Produced(0, first=5), ("a", 2): wire.Produced(6)}


def test_a_producer_id_is_asked_for_without_a_transaction() -> None:
    read: Any = theirs_transaction.InitProducerIdRequest_v0.decode(io.BytesIO(wire.init_producer_id()))
    assert read.transactional_id is None
    assert wire.producer_id(theirs_transaction.InitProducerIdResponse_v0(0, 0, 2**33, 4).encode()) == (0, 2**33, 4)


def test_a_session_counts_on_while_the_broker_remembers_it() -> None:
    session = Session()
    session.follow(9)
    assert (session.number, session.epoch) == (9, 1)
    session.epoch = 2**31 - 1
    session.follow(9)
    assert session.epoch == 1
    session.follow(0)
    assert (session.number, session.epoch) == (0, 0)


def test_a_damaged_batch_is_never_read() -> None:
    drafts = [Draft("a", b"k", b"value", (("h", b"v"),)), Draft("a", b"k", b"")]
    raw = pack(drafts, 1000, 1, 0, 0)
    ((records, following),) = unpack(raw, ("a", 0), 0)
    assert [(one.offset, one.key, one.value, one.headers) for one in records] == [
        (0, b"k", b"value", (("h", b"v"),)),
        (1, b"k", b"", ()),
    ]
    assert following == 2
    assert [records for records, _ in unpack(raw, ("a", 0), 1)] == [records[1:]]
    assert list(unpack(raw, ("a", 0), 2)) == []
    assert list(unpack(raw[:-1], ("a", 0), 0)) == []
    for at in range(21, len(raw)):  # what lies before is no part of the checksum
        torn = bytearray(raw)
        torn[at] ^= 1
        with pytest.raises(Damaged):
            list(unpack(bytes(torn), ("a", 0), 0))


def test_a_batch_that_is_too_small_says_so() -> None:
    with pytest.raises(ValueError, match="full"):
        pack([Draft("a", b"k", b"x" * 500_000)] * 2, 0, 1, 0, 0)


def _versions(*ranges: tuple[int, int, int], code: int = 0) -> bytes:
    return theirs_admin.ApiVersionResponse_v0(code, list(ranges)).encode()


def test_what_a_broker_does_not_take_is_named() -> None:
    all_taken = [(0, 3, 13), (1, 4, 17), (22, 0, 5), (17, 0, 1), (36, 0, 2)]
    assert wire.unspoken(_versions(*all_taken), login=True) == []
    assert wire.unspoken(_versions(*all_taken[:3]), login=False) == []
    assert wire.unspoken(_versions((0, 9, 13), (1, 4, 9)), login=False) == [
        "Produce 7 (it has 9 to 13)",
        "Fetch 10 (it has 4 to 9)",
        "InitProducerId 1 (it has none)",
    ]
    assert wire.unspoken(_versions(*all_taken[:4]), login=True) == ["SaslAuthenticate 1 (it has none)"]
    for refused in (_versions(code=35), b"", _versions(*all_taken)[:-1]):
        with pytest.raises(wire.Malformed):
            wire.unspoken(refused, login=True)
