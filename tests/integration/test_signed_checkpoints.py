"""A restart loads only what the service itself has signed: whatever lies in the topic, the job is as the log has it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aetheris.protocol.base.checkpoints import TYPE, UNBORN, CheckpointSpan, Piece, cut, read, write
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.revocations import Revocations, ToldRevocation
from aetheris.protocol.tables.signed_messages import PIECE_SIGNATURE
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import ROOT, load_key, load_service_key, make_installation, revoked
from aetheris.runtime.keys.records import RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.worker.checkpoints import PieceSignatures
from aetheris.runtime.worker.unsigned import HeardMessages
from aetheris.testkit.memory import MemoryLog
from tests.integration.test_streams_checkpoints import (
    DEADLINE_S,
    EVENTS,
    EVERY,
    NUMBER,
    PARTITIONS,
    PIECES,
    READS,
    CheckpointBench,
    grown,
    left_behind,
    running,
)
from tests.integration.test_streams_checkpoints import bench as bench  # noqa: PLC0414  a fixture
from tests.integration.test_streams_checkpoints import kafka as kafka  # noqa: PLC0414  a fixture

Sign = Callable[[Draft], Draft]


@dataclass(frozen=True)
class SigningInstallation:
    """A root, and the keys of its services."""

    folder: Path
    id: str

    @classmethod
    def made(cls, folder: Path) -> "SigningInstallation":
        now = datetime.now(UTC)
        times = (now - timedelta(hours=1), now + timedelta(days=1))
        return cls(folder, make_installation(folder, [Party.PLANNER, Party.LEDGER, Party.AUDITOR], *times))

    def keys(
        self, party: Party, certified_for: Party | None = None, revocations: Revocations | None = None
    ) -> RecordKeys:
        """Who signs as `party`, with a key of `certified_for`."""
        held = load_service_key(self.folder, certified_for or party)
        signer = RecordSigner({party: Signer(held.private_key, held.certificate)}, SystemClock())
        return RecordKeys(frozenset({self.id}), signer, revocations or Revocations())

    def revoking(self, party: Party) -> Revocations:
        key_id = load_service_key(self.folder, party).certificate.key_id
        said = revoked(load_key(self.folder / ROOT), key_id, datetime.now(UTC), "stolen")
        return Revocations([ToldRevocation(said, (0, 0, 0, 0))])


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> SigningInstallation:
    return SigningInstallation.made(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> SigningInstallation:
    return SigningInstallation.made(tmp_path_factory.mktemp("others"))


class Heard:
    """What a service takes for its own, and what it has refused."""

    def __init__(self, keys: RecordKeys, bench: CheckpointBench) -> None:
        self._heard = HeardMessages(keys.messages, Metrics("ledger"))
        self._prefix = bench.prefix.encode()
        self.refused: list[bytes] = []
        """Of this test's jobs: the broker is every test's."""
        self.signatures = PieceSignatures(self._counts, keys.piece)

    def _counts(self, record: Record) -> bool:
        counts = self._heard.piece_counts(record)
        if not counts and (record.key or b"").startswith(self._prefix):
            self.refused.append(record.key or b"")
        return counts


@dataclass(frozen=True)
class LeftBehind:
    """A job that waits, with whole checkpoints, and a mark far behind its birth."""

    job: bytes
    pieces: Sequence[Record]

    @property
    def creation_offset(self) -> int:
        return CheckpointSpan.of(self.pieces[0].key).creation_offset


@pytest.fixture
async def waiting(bench: CheckpointBench, ours: SigningInstallation) -> AsyncIterator[LeftBehind]:
    own = Heard(ours.keys(Party.LEDGER), bench)
    async with running(bench, pieces=own.signatures) as run:
        job = await left_behind(bench, run, "tool_invocation_started", "tool_invocation_finished", "job_waiting")
        await grown(bench, run, 4)
        await run.end()
    assert own.refused == []
    found = sorted((await bench.pieces()).values(), key=lambda one: CheckpointSpan.of(one.key).as_of)
    yield LeftBehind(job, [one for one in found if (one.key or b"").startswith(job)])
    await bench.say(job, "job_sealed")  # the broker is every test's
    await bench.appender.append([(Draft(PIECES[0], key, b"", (), NUMBER),) for key in await bench.pieces()])


def without(pieces: Sequence[Record], kind: bytes) -> list[Piece]:
    """The same pieces, whole as far as anybody can see, that lack what became of a call."""
    found, root = list[Piece](), UNBORN
    for one in pieces:
        piece = read(one, EVENTS[0])
        kept = [record for record in piece.records if kind not in (record.identity()[1] or b"")]
        found.append(cut(piece.span, root, kept))
        root = found[-1].root
    return found


def laid(piece: Piece) -> Draft:
    return Draft(PIECES[0], piece.span.key, write(piece), (("ce_type", TYPE),), NUMBER)


def elsewhere(keys: RecordKeys) -> Sign:
    """A piece that was signed for another partition, and lies in this one."""
    return lambda draft: keys.piece(draft.replaced(partition=NUMBER + 1)).replaced(partition=NUMBER)


def of_another_job(keys: RecordKeys) -> Sign:
    def sign(draft: Draft) -> Draft:
        span = replace(CheckpointSpan.of(draft.key), job_id="another")
        return keys.piece(draft.replaced(key=span.key)).replaced(key=draft.key)

    return sign


def of_other_bytes(keys: RecordKeys) -> Sign:
    return lambda draft: keys.piece(draft.replaced(value=draft.value + b"-")).replaced(value=draft.value)


def of_another_topic(keys: RecordKeys) -> Sign:
    return lambda draft: keys.piece(draft.replaced(topic=str(Topic.PLANNER_CHECKPOINTS))).replaced(topic=draft.topic)


FORGERS: dict[str, Callable[[SigningInstallation, SigningInstallation], Sign]] = {
    "nobody has signed": lambda _ours, _others: lambda draft: draft,
    "another service has signed": lambda ours, _: ours.keys(Party.LEDGER, Party.AUDITOR).piece,
    "another root's ledger has signed": lambda _, others: others.keys(Party.LEDGER).piece,
    "was signed for another partition": lambda ours, _: elsewhere(ours.keys(Party.LEDGER)),
    "was signed of another job": lambda ours, _: of_another_job(ours.keys(Party.LEDGER)),
    "was signed of other bytes": lambda ours, _: of_other_bytes(ours.keys(Party.LEDGER)),
    "the planner has signed, for itself": lambda ours, _: of_another_topic(ours.keys(Party.PLANNER)),
}


@pytest.mark.parametrize("forger", FORGERS)
async def test_a_piece_that_leaves_out_a_call_is_none(
    bench: CheckpointBench, ours: SigningInstallation, others: SigningInstallation, waiting: LeftBehind, forger: str
) -> None:
    sign = FORGERS[forger](ours, others)
    forged = [sign(laid(piece)) for piece in without(waiting.pieces, b"tool_invocation")]
    await bench.appender.append([(one,) for one in forged])
    own = Heard(ours.keys(Party.LEDGER), bench)
    async with running(bench, pieces=own.signatures) as run:
        assert run.handler.jobs[waiting.job] == await bench.all_of(waiting.job), "as the log has it"
        assert run.handler.begun[0] <= waiting.creation_offset, "read from the birth"
        assert {*own.refused} == {one.key for one in forged}
        await grown(bench, run, 4)
        await run.end()
    own = Heard(ours.keys(Party.LEDGER), bench)
    async with running(bench, pieces=own.signatures) as run:
        assert run.handler.begun[0] > waiting.creation_offset + EVERY, "its own have taken their places"
        assert run.handler.jobs[waiting.job] == await bench.all_of(waiting.job)
        await run.end()


async def test_what_its_own_key_has_signed_is_believed(
    bench: CheckpointBench, ours: SigningInstallation, waiting: LeftBehind
) -> None:
    """So the tests of forgers show that it is the signature that is missed."""
    sign = ours.keys(Party.LEDGER).piece
    await bench.appender.append([(sign(laid(one)),) for one in without(waiting.pieces, b"tool_invocation")])
    async with running(bench, pieces=Heard(ours.keys(Party.LEDGER), bench).signatures) as run:
        whole = await bench.all_of(waiting.job)
        assert 0 < len(run.handler.jobs[waiting.job]) < len(whole)
        await run.end()


async def test_what_a_revoked_key_has_signed_is_none(
    bench: CheckpointBench, ours: SigningInstallation, waiting: LeftBehind
) -> None:
    own = Heard(ours.keys(Party.LEDGER, revocations=ours.revoking(Party.LEDGER)), bench)
    async with running(bench, inputs=READS, pieces=own.signatures) as run:
        assert run.handler.jobs[waiting.job] == await bench.all_of(waiting.job)
        assert run.handler.begun[0] <= waiting.creation_offset
        assert {one.key for one in waiting.pieces} <= {*own.refused}
        await run.end()


async def left_behind_by_a_cut_log(ours: SigningInstallation) -> tuple[CheckpointBench, bytes]:
    """A job that waits, of which the log has no more than its checkpoint."""
    log = MemoryLog(PARTITIONS)
    appender = log.appender()
    await log.start()
    await appender.start()
    bench = CheckpointBench(log, appender)
    async with running(bench, pieces=Heard(ours.keys(Party.LEDGER), bench).signatures) as run:
        job = await left_behind(bench, run, "job_waiting")
        await grown(bench, run, 4)
        await run.end()
    log.delete_below(EVENTS, await bench.committed(f"{bench.prefix}-writes"))
    return bench, job


async def test_a_stranger_s_key_below_where_the_log_was_cut_keeps_nobody_from_starting(
    ours: SigningInstallation,
) -> None:
    bench, job = await left_behind_by_a_cut_log(ours)
    strange = CheckpointSpan(f"{bench.prefix}-x", 0, -1, 1).key
    await bench.appender.append([(Draft(PIECES[0], strange, b"-", (("ce_type", TYPE),), NUMBER),)])
    own = Heard(ours.keys(Party.LEDGER), bench)
    async with running(bench, pieces=own.signatures) as run:
        assert own.refused == [strange]
        assert run.handler.jobs[job][0].offset < run.handler.begun[0], "from its checkpoint"
        await run.end()


async def test_who_revokes_a_key_whose_pieces_are_all_that_is_left_starts_and_takes_nothing_away(
    ours: SigningInstallation,
) -> None:
    """The job stands still; it goes on where its pieces count again, as after a root that was left out by mistake."""
    bench, job = await left_behind_by_a_cut_log(ours)
    pieces = await bench.pieces()
    revoked = ours.keys(Party.LEDGER, revocations=ours.revoking(Party.LEDGER))
    signatures = replace(Heard(revoked, bench).signatures, sign=ours.keys(Party.LEDGER).piece)
    async with running(bench, pieces=signatures) as run:
        assert job not in run.handler.jobs
        other = await left_behind(bench, run, "job_waiting")
        await bench.say(other, "job_sealed")
        await run.until(lambda: other not in run.handler.jobs)
        async with asyncio.timeout(DEADLINE_S):
            while await bench.pieces() != pieces:  # noqa: ASYNC110 - what a log holds has no event
                await asyncio.sleep(0.05)
        await run.end()
    async with running(bench, pieces=Heard(ours.keys(Party.LEDGER), bench).signatures) as run:
        assert job in run.handler.jobs
        await run.end()


async def test_own_older_pieces_laid_there_again_say_what_is_so(
    bench: CheckpointBench, ours: SigningInstallation, waiting: LeftBehind
) -> None:
    """They are true up to where they reach, and the log is read from there: they cost time, and hide nothing."""
    first = waiting.pieces[0]
    newer = [one for one in waiting.pieces if one is not first]
    again = [Draft(PIECES[0], one.key or b"", one.value, one.headers, NUMBER) for one in (first,)]
    gone = [Draft(PIECES[0], one.key or b"", b"", (), NUMBER) for one in newer]
    await bench.say(waiting.job, "tool_invocation_started", "tool_invocation_finished")
    await bench.others(EVERY)
    await bench.appender.append([(one,) for one in [*gone, *again]])
    own = Heard(ours.keys(Party.LEDGER), bench)
    async with running(bench, inputs=READS, pieces=own.signatures) as run:
        assert run.handler.jobs[waiting.job] == await bench.all_of(waiting.job)
        assert run.handler.begun[0] == CheckpointSpan.of(first.key).as_of + 1
        await run.end()


async def test_pieces_of_a_job_that_was_sealed_since_bring_it_back_to_nobody(
    bench: CheckpointBench, ours: SigningInstallation, waiting: LeftBehind
) -> None:
    keys = ours.keys(Party.LEDGER)
    async with running(bench, pieces=Heard(keys, bench).signatures) as run:
        await bench.say(waiting.job, "wait_completed", "job_completed", "job_sealed")
        await run.until(lambda: waiting.job not in run.handler.jobs)
        await bench.no_pieces()
        await run.end()
    again = [Draft(PIECES[0], one.key or b"", one.value, one.headers, NUMBER) for one in waiting.pieces]
    await bench.appender.append([(one,) for one in again])
    own = Heard(keys, bench)
    async with running(bench, pieces=own.signatures) as run:
        assert own.refused == []
        assert waiting.job not in run.handler.jobs, "its seal is read behind them"
        await run.end()


async def test_where_no_root_is_known_pieces_are_as_before(bench: CheckpointBench, waiting: LeftBehind) -> None:
    assert all(one.header(PIECE_SIGNATURE) for one in waiting.pieces)
    bare = [Draft(PIECES[0], one.key or b"", one.value, (("ce_type", TYPE),), NUMBER) for one in waiting.pieces]
    await bench.appender.append([(one,) for one in bare])
    async with running(bench) as run:
        assert run.handler.jobs[waiting.job] == await bench.all_of(waiting.job)
        assert run.handler.begun[0] > waiting.creation_offset + EVERY
        await run.end()
