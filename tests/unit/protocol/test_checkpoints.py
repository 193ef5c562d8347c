"""A checkpoint is what was cut out of the log, or nothing: however it was cut, by whom, and whatever came of it."""

import random
import secrets
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from aetheris.cli import streamfile
from aetheris.proofs import RawRecord
from aetheris.proofs.chain import event_chain_root
from aetheris.protocol.base.checkpoints import (
    MAX_PIECE_BYTES,
    TYPE,
    UNBORN,
    BadPiece,
    Chain,
    CheckpointSpan,
    Piece,
    cut,
    read,
    write,
)
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.worker.checkpointer import drafts_of
from tests.testkit.golden import FOLDER

JOB = "job-1"
BIRTH = 7
PLACE = (str(Topic.LEDGER_CHECKPOINTS), 3)
STREAMS = sorted(FOLDER.glob("*/*.jsonl"))


def record(offset: int, kind: str = "node_finished", value: bytes = b"{}") -> Record:
    headers = (("ce_id", f"e{offset}".encode()), ("ce_type", f"io.aetheris.{kind}.v1".encode()))
    return Record(Topic.JOBS_EVENTS, PLACE[1], offset, 1_700_000_000_000 + offset, JOB.encode(), headers, value)


def history(*offsets: int) -> list[Record]:
    return [record(BIRTH, "job_created"), *(record(offset) for offset in offsets)]


def within(records: list[Record], after: int, as_of: int, before: bytes = UNBORN) -> Piece:
    held = [one for one in records if after < one.offset <= as_of]
    return cut(CheckpointSpan(JOB, records[0].offset, after, as_of), before, held)


def laid(piece: Piece, offset: int = 0, **changed: bytes) -> Record:
    """A piece as it lies in its topic."""
    key, value = changed.get("key", piece.span.key), changed.get("value", write(piece))
    return Record(*PLACE, offset, 0, key, (("ce_id", b"-"), ("ce_type", changed.get("type", TYPE))), value)


def taken(*pieces: Piece) -> Chain:
    chain = Chain(JOB, BIRTH)
    for piece in pieces:
        chain.put(read(laid(piece), Topic.JOBS_EVENTS))
    return chain


def golden(stream: int) -> list[Record]:
    raw = list(streamfile.read(STREAMS[stream]).raw())
    job = raw[0].key
    return [Record(Topic.JOBS_EVENTS, PLACE[1], one.offset, 5, job, one.headers, one.value) for one in raw]


@pytest.mark.parametrize("stream", range(len(STREAMS)), ids=[path.stem for path in STREAMS])
def test_what_was_cut_is_what_lies_in_the_log(stream: int) -> None:
    records = golden(stream)
    job, creation_offset = (records[0].key or b"").decode(), records[0].offset
    seed = secrets.randbits(32)
    rng = random.Random(seed)  # noqa: S311 - a seeded test
    bounds = sorted(rng.sample(range(creation_offset, records[-1].offset + 5), k=min(4, len(records))))
    after, root, back = creation_offset - 1, UNBORN, list[Record]()
    for as_of in bounds:
        piece = cut(
            CheckpointSpan(job, creation_offset, after, as_of),
            root,
            [one for one in records if after < one.offset <= as_of],
        )
        back += read(laid(piece), Topic.JOBS_EVENTS).records
        after, root = as_of, piece.root
    kept = [one for one in records if one.offset <= bounds[-1]]
    assert back == kept, f"seed {seed}"
    raw = [RawRecord(one.offset, one.key, one.headers, one.value) for one in kept]
    assert root.hex() == event_chain_root(raw), "the state_hash is the chain's own root"


def test_a_settled_step_takes_little() -> None:
    records = golden(next(n for n, path in enumerate(STREAMS) if path.stem == "a-run"))
    whole = cut(CheckpointSpan("j", records[0].offset, records[0].offset - 1, records[-1].offset), UNBORN, records)
    assert len(write(whole)) < sum(len(one.value) for one in records) / 2


BROKEN = {
    "cut short": lambda piece: laid(piece, value=write(piece)[:-3]),
    "no value to speak of": lambda piece: laid(piece, value=b"x"),
    "no roots": lambda piece: laid(piece, value=write(piece)[:40]),
    "another root": lambda piece: laid(piece, value=bytes(32) + b"\1" * 32 + write(piece)[64:]),
    "not from its birth": lambda piece: laid(piece, value=b"\1" * 32 + write(piece)[32:]),
    "other bytes": lambda piece: laid(piece, value=write(piece)[:64] + zlib.compress(b"nothing of the kind")),
    "bytes behind it": lambda piece: laid(piece, value=write(piece) + b"more"),
    "a bomb": lambda piece: laid(piece, value=write(piece)[:64] + zlib.compress(bytes(70_000_000), 1)),
    "a later version": lambda piece: laid(piece, type=b"io.aetheris.checkpoint.v2"),
    "more than it names": lambda piece: laid(piece, key=CheckpointSpan(JOB, BIRTH, BIRTH - 1, 9).key),
    "another birth": lambda piece: laid(piece, key=CheckpointSpan(JOB, 6, 5, 20).key),
    "no span": lambda piece: laid(piece, key=b"job-1"),
    "a span that ends before it begins": lambda piece: laid(piece, key=b"job-1:7:20:9"),
    "no number": lambda piece: laid(piece, key=b"job-1:7:6:99999999999999999999"),
    "no birth": lambda piece: laid(cut(piece.span, UNBORN, [record(BIRTH, "plan_generated")])),
    "nothing at all": lambda piece: laid(cut(piece.span, UNBORN, [])),
    "out of order": lambda piece: laid(cut(piece.span, UNBORN, piece.records[::-1])),
    "twice": lambda piece: laid(cut(piece.span, UNBORN, [*piece.records, piece.records[-1]])),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_not_what_it_says_is_no_piece(broken: Callable[[Piece], Record]) -> None:
    piece = within(history(9, 11, 12), BIRTH - 1, 20)
    assert read(laid(piece), Topic.JOBS_EVENTS) == piece
    with pytest.raises(BadPiece):
        read(broken(piece), Topic.JOBS_EVENTS)


def test_any_byte_that_changes_is_noticed() -> None:
    value = write(within(history(9, 11, 12), BIRTH - 1, 20))
    piece = within(history(9, 11, 12), BIRTH - 1, 20)
    for at in range(len(value)):
        with pytest.raises(BadPiece):
            read(laid(piece, value=value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]), Topic.JOBS_EVENTS)


def test_pieces_lead_from_the_birth_as_far_as_they_follow_each_other() -> None:
    records = history(9, 30, 31)
    base = within(records, BIRTH - 1, 20)
    delta = within(records, 20, 40, base.root)
    tail = within(records, 40, 60, delta.root)
    assert taken(delta, tail).reached() is None
    reached = taken(tail, delta, base).reached()
    assert reached is not None
    assert (reached.as_of, reached.filled, reached.root) == (60, 40, delta.root)
    assert [span.as_of for span in reached.path] == [20, 40, 60]
    beyond = taken(base, delta, tail).reached(end=60)
    assert beyond is not None
    assert beyond.as_of == 40, "what lies behind the log's end is no one's to say"


def test_who_wakes_up_late_takes_nothing_away() -> None:
    records = history(9, 30, 31)
    base = within(records, BIRTH - 1, 20)
    late = [within(records, BIRTH - 1, 15), within(records, 20, 25, base.root), within(records, 20, 35, base.root)]
    chain = taken(base, within(records, 20, 40, base.root), *late)
    reached = chain.reached()
    assert reached is not None
    assert reached.as_of == 40
    assert taken(base, within(records, 20, 25, base.root)).superseded() == []
    assert chain.superseded() == [late[1].span], "of what says that there is nothing, only what another covers"
    for span in chain.superseded():
        chain.drop(span)
    assert chain.reached() == reached


def test_pieces_that_contradict_each_other_are_worth_nothing() -> None:
    records = history(9, 30)
    base = within(records, BIRTH - 1, 20)
    other = cut(base.span, UNBORN, [records[0]])
    hides = cut(CheckpointSpan(JOB, BIRTH, BIRTH - 1, 15), UNBORN, [records[0]])
    assert taken(base, within(records, 20, 40, other.root)).reached() is None
    assert taken(base, hides, within(records, 15, 40, base.root)).reached() is None
    chain = taken(base)
    chain.distrust(base.span)
    assert chain.reached() is None
    assert chain.spans() == [base.span], "and yet it is known that there is one: the job is read from its birth"


def test_a_long_history_is_written_in_pieces_that_follow_each_other() -> None:
    noise = random.Random(1)  # noqa: S311 - a seeded test
    long = [record(BIRTH, "job_created"), *(record(n, value=noise.randbytes(30_000)) for n in range(10, 60))]
    written = drafts_of(within(long, BIRTH - 1, 80), PLACE)
    assert len(written) > 1
    assert all(len(one.value) <= MAX_PIECE_BYTES for one in written)
    chain, back = Chain(JOB, BIRTH), list[Record]()
    for draft in written:
        piece = read(Record(*PLACE, 0, 0, draft.key, draft.headers, draft.value), Topic.JOBS_EVENTS)
        back += piece.records
        chain.put(piece)
    reached = chain.reached()
    assert back == long
    whole = taken(within(long, BIRTH - 1, 80)).reached()
    assert reached is not None
    assert whole is not None
    assert replace(reached, path=()) == replace(whole, path=())
