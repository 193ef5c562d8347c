"""The prober's edge: whatever is asked is answered once; what is not answered yet is asked again by the next one."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Provenance, Standing
from aetheris.protocol.messages import envelope
from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.messages.events import JobCreated
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import load_service_key, make_installation
from aetheris.runtime.keys.records import UNSIGNED, BirthPlace, RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.sdk import NotFound
from aetheris.verifier.prober.handlers import ProberDependencies, ProberPartition
from tests.unit.verifier.test_verifier_probing import prober, question


class Appended:
    """Stands for the log and the worker: keeps what is written, and what is put aside."""

    def __init__(self) -> None:
        self.written: list[Draft] = []
        self.aside: list[int] = []

    async def append(self, groups: Sequence[Group]) -> None:
        self.written.extend(draft for group in groups for draft in group)

    def quarantine(self, record: Record, _reason: str) -> None:
        self.aside.append(record.offset)


def asked(offset: int, value: bytes | None = None) -> Record:
    draft = envelope.draft(
        Topic.VERIFICATIONS, question(), key="j", id=f"e{offset}", source="test", time="2026-01-01T00:00:00+00:00"
    )
    headers = tuple((name, data) for name, data in draft.headers)
    return Record(str(Topic.VERIFICATIONS), 0, offset, 0, b"j", headers, draft.value if value is None else value)


def partition(asks: Any, keys: RecordKeys = UNSIGNED) -> tuple[ProberPartition, Appended]:
    log = Appended()
    metrics = Metrics("prober")
    runtime: Any = SimpleNamespace(
        telemetry=Telemetry("prober", 0.0), clock=SystemClock(), withheld=log, metrics=metrics
    )
    return ProberPartition(ProberDependencies(runtime, cast("Any", log), asks, keys)), log


class Hanging:
    """Stands for a prober that nobody answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def ask(self, _question: Verification, _traceparent: bytes | None) -> None:
        self.asked.set()
        await asyncio.Event().wait()


def offsets(found: Iterable[tuple[str, int]]) -> list[int]:
    return sorted(offset for _, offset in found)


async def settled(one: ProberPartition) -> None:
    async with asyncio.timeout(10):
        while list(one.live()):  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.01)


async def test_what_was_asked_while_nobody_lived_is_asked_once_all_is_read(tmp_path: Path) -> None:
    one, log = partition(prober(tmp_path, NotFound))
    one.fold([asked(3), asked(4)])
    await asyncio.sleep(0.05)
    assert (log.written, offsets(one.live())) == ([], [3, 4])
    await one.restored()
    await one.handle({str(Topic.VERIFICATIONS): [asked(5)]})
    await settled(one)
    assert [(draft.topic, dict(draft.headers)["ce_source"]) for draft in log.written] == [
        (Topic.JOBS_EVENTS, b"aetheris/prober")
    ] * 3


@pytest.mark.parametrize("folded", [True, False])
async def test_a_question_that_is_open_when_its_partition_goes_still_holds_its_offset(*, folded: bool) -> None:
    hanging = Hanging()
    one, log = partition(hanging)
    if folded:
        one.fold([asked(7)])
        await one.restored()
    else:
        await one.handle({str(Topic.VERIFICATIONS): [asked(7)]})
    async with asyncio.timeout(10):
        await hanging.asked.wait()
    await one.close()
    await asyncio.sleep(0)
    assert (offsets(one.live()), log.written) == ([7], [])


async def test_what_is_no_question_is_put_aside_and_holds_nothing(tmp_path: Path) -> None:
    one, log = partition(prober(tmp_path, NotFound))
    await one.handle({str(Topic.VERIFICATIONS): [asked(1, b"no json"), asked(2)]})
    await settled(one)
    assert (log.aside, len(log.written)) == ([1], 1)


class SignedSystem:
    """A root and its services' keys, and a job that its planner has begun."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        parties = (Party.PLANNER, Party.LEDGER, Party.PROBER)
        self.root = make_installation(folder, parties, now - timedelta(days=1), now + timedelta(days=1))
        self.folder, self.job = folder, Provenance({self.root})
        created = JobCreated(job_id="j", tenant="t", submitted_by="ann", request_hash="h")
        plain = envelope.draft(Topic.JOBS_EVENTS, created, key="j", id="1", source="s", time=now.isoformat())
        ((birth, *_),) = self.keys(Party.PLANNER).signed([(plain,)], self.job, BirthPlace(0, -1))
        assert self.judged(birth) is Standing.COUNTS

    def keys(self, party: Party) -> RecordKeys:
        held = load_service_key(self.folder, party)
        signer = Signer(held.private_key, held.certificate)
        return RecordKeys(frozenset({self.root}), RecordSigner({party: signer}, SystemClock()))

    def judged(self, one: Draft) -> Standing:
        record = Record(str(one.topic), 0, 0, 0, one.key, one.headers, one.value)
        decoded = envelope.decode_event(record)
        assert isinstance(decoded, envelope.Envelope)
        return self.job.judge(record, decoded.body)

    def question(self, by: Party | None, born: str | None = None) -> Record:
        job = self.job.signers_of("j")
        assert job is not None
        said = question(installation=self.root, born=born or job.born)
        plain = envelope.draft(Topic.VERIFICATIONS, said, key="j", id="q", source="s", time="2026-01-01T00:00:00Z")
        one = self.keys(by).message(plain) if by is not None else plain
        return Record(str(one.topic), 0, 1, 0, b"j", one.headers, one.value)


async def test_what_the_ledger_asks_is_answered_under_the_probers_signature(tmp_path: Path) -> None:
    """Again and again: it knows nothing of what its job has, and each answer stands alone."""
    system = SignedSystem(tmp_path / "keys")
    for _ in range(2):
        one, log = partition(prober(tmp_path, NotFound), system.keys(Party.PROBER))
        await one.handle({str(Topic.VERIFICATIONS): [system.question(Party.LEDGER)]})
        await settled(one)
        (answer,) = log.written
        assert b'"certificate":' in answer.value
        assert SignedSystem(tmp_path / f"{len(answer.value)}").judged(answer) is Standing.VOID, "in another job"
        assert system.judged(answer) is Standing.COUNTS


@pytest.mark.parametrize("by", [None, Party.PLANNER, Party.PROBER])
async def test_what_the_ledger_has_not_asked_is_not_answered(tmp_path: Path, by: Party | None) -> None:
    system = SignedSystem(tmp_path / "keys")
    one, log = partition(prober(tmp_path, NotFound), system.keys(Party.PROBER))
    await one.handle({str(Topic.VERIFICATIONS): [system.question(by)]})
    await settled(one)
    assert (log.written, list(one.live()), log.aside) == ([], [], [])


async def test_an_answer_for_another_birth_is_void(tmp_path: Path) -> None:
    system = SignedSystem(tmp_path / "keys")
    one, log = partition(prober(tmp_path, NotFound), system.keys(Party.PROBER))
    await one.handle({str(Topic.VERIFICATIONS): [system.question(Party.LEDGER, born="0" * 64)]})
    await settled(one)
    assert [system.judged(answer) for answer in log.written] == [Standing.VOID]


async def test_an_answer_without_its_signature_is_void(tmp_path: Path) -> None:
    system = SignedSystem(tmp_path / "keys")
    one, log = partition(prober(tmp_path, NotFound))
    await one.handle({str(Topic.VERIFICATIONS): [system.question(Party.LEDGER)]})
    await settled(one)
    assert [system.judged(answer) for answer in log.written] == [Standing.VOID]
