"""A job is known to the verifier as soon as anybody can know of it: its index is behind the log, and is waited for."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.events import JobCreated
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.table import Table
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.memory import MemoryLog
from aetheris.verifier.proofs import KNOWN_WITHIN_S, Proofs, StillReading, UnknownJob

JOB = "job-1"
LINE = JobIndexEntry(
    job_id=JOB, birth=0, request_hash="r", status="completed", tenant="t", submitted_by="me", created_at="now"
)
BIRTH = JobCreated(job_id=JOB, tenant="t", submitted_by="me", request_hash="r").model_dump_json().encode()
UNUSED = cast("Any", None)
DEADLINE_S = 30.0


async def _no_claims(_job_id: str) -> tuple[()]:
    return ()


class UnlistedJob:
    """A job whose events are in the log, and a verifier's table of jobs that lacks its line."""

    def __init__(self) -> None:
        self.log = MemoryLog(partitions=1)
        self.index = Table(self.log, Topic.JOBS_INDEX)
        self.clock = VirtualClock()
        parts = cast("Any", SimpleNamespace(clock=self.clock, settings=SimpleNamespace(partitions=1)))
        seals = cast("Any", SimpleNamespace(claims=_no_claims))
        self.proofs = Proofs(parts, self.index, JobLogReader(self.log), UNUSED, seals, DEADLINE_S)

    async def write(self, topic: Topic, value: bytes) -> None:
        appender = self.log.appender()
        await appender.start()
        await appender.append([(Draft(topic, JOB.encode(), value),)])


@pytest.fixture
async def unlisted() -> UnlistedJob:
    unlisted = UnlistedJob()
    await unlisted.write(Topic.JOBS_EVENTS, BIRTH)
    return unlisted


async def test_a_job_whose_line_comes_late_is_known(unlisted: UnlistedJob) -> None:
    await unlisted.index.load()
    asked = asyncio.create_task(unlisted.proofs.stream(JOB, "t"))
    await unlisted.clock.advance(KNOWN_WITHIN_S / 2)
    assert not asked.done()
    arrived = asyncio.Event()
    unlisted.index.on_change(lambda _key, _value: arrived.set())
    following = asyncio.create_task(unlisted.index.run())
    await unlisted.write(Topic.JOBS_INDEX, LINE.model_dump_json().encode())
    await asyncio.wait_for(arrived.wait(), DEADLINE_S)
    await unlisted.clock.advance(KNOWN_WITHIN_S / 2)
    assert [record.value for record in await asked] == [BIRTH]
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


async def test_a_job_that_was_never_born_is_unknown_after_a_while(unlisted: UnlistedJob) -> None:
    await unlisted.index.load()
    asked = asyncio.create_task(unlisted.proofs.stream("nobody", "t"))
    await asyncio.sleep(0)
    await unlisted.clock.advance(KNOWN_WITHIN_S + 1)
    with pytest.raises(UnknownJob):
        await asked


async def test_nothing_is_said_before_the_index_is_read(unlisted: UnlistedJob) -> None:
    with pytest.raises(StillReading):
        await unlisted.proofs.stream(JOB, "t")


async def test_the_job_of_another_tenant_is_unknown(unlisted: UnlistedJob) -> None:
    await unlisted.write(Topic.JOBS_INDEX, LINE.model_dump_json().encode())
    await unlisted.index.load()
    assert len(await unlisted.proofs.stream(JOB, "t")) == 1
    for ask in (unlisted.proofs.stream, unlisted.proofs.verify, unlisted.proofs.evidence, unlisted.proofs.inclusion):
        with pytest.raises(UnknownJob):
            await ask(JOB, "other")
