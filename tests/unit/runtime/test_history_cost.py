"""What reading a job costs: what lies in its partition from its birth on; of a sealed one its own records.

What the index says of where they lie is no authority: whatever it says, no job is shown shorter than it is.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from aetheris.protocol.base.record_tree import tree_over
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.stretches import Stretch
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import Place
from aetheris.runtime.log.job_lines import JobLine
from aetheris.testkit.memory import MemoryLog, MemoryReader

PLACE: Place = (Topic.JOBS_EVENTS, 0)
JOB = 10


class CountingLog(MemoryLog):
    """Counts what its readers are given to read."""

    def __init__(self) -> None:
        super().__init__(partitions=1)
        self.begun_at: list[int] = []
        self.given = 0

    def reader(self, max_wait_s: float = 0.1) -> MemoryReader:
        reader = super().reader(max_wait_s)
        poll, assign = reader.poll, reader.assign

        async def counted(timeout_s: float, max_records: int = 2000) -> Mapping[Place, list[object]]:
            batch = await poll(timeout_s, max_records)
            self.given += sum(len(records) for records in batch.values())
            return batch  # pyright: ignore[reportReturnType]

        def noted(positions: Mapping[Place, int]) -> None:
            self.begun_at += positions.values()
            assign(positions)

        reader.poll, reader.assign = counted, noted  # pyright: ignore[reportAttributeAccessIssue]
        return reader


async def written(log: MemoryLog, key: bytes, count: int) -> None:
    appender = log.appender()
    await appender.start()
    await appender.append([(Draft(Topic.JOBS_EVENTS, key, b"x", partition=0),) for _ in range(count)])
    await appender.stop()


@pytest.mark.parametrize("before", [0, 100, 10_000])
@pytest.mark.parametrize("behind", [0, 1_000, 2_000])
async def test_a_job_costs_what_lies_in_its_partition_from_its_birth_on(before: int, behind: int) -> None:
    log = CountingLog()
    await written(log, b"others", before)
    await written(log, b"job", JOB)
    await written(log, b"later", behind)
    history = JobLogReader(log)
    found = await history.read_job("job", 0, before)
    assert len(found) == JOB
    assert log.begun_at == [before]
    assert log.given == JOB + behind
    await history.close()


BEFORE, BETWEEN, BEHIND = 300, 5_000, 3_000
NAMES = ("job_created", "node_finished", "job_completed")


class SealedJob:
    """A sealed job among others' records: two lie together, its end and its seal behind `BETWEEN` others' records."""

    def __init__(self) -> None:
        self.log = CountingLog()
        self.history = JobLogReader(self.log)
        self.records: list[Record] = []

    async def say(self, name: str, value: bytes = b"{}") -> int:
        headers = (("ce_id", name.encode()), ("ce_type", f"io.aetheris.{name}.v1".encode()))
        draft = Draft(PLACE[0], b"job", value, headers, partition=0)
        appender = self.log.appender()
        await appender.start()
        await appender.append([(draft,)])
        await appender.stop()
        end = (await self.log.end_offsets([PLACE]))[PLACE]
        self.records.append(Record(PLACE[0], 0, end - 1, 0, draft.key, headers, value))
        return end - 1

    async def seal(self, covers: int | None = None, **lying: Any) -> int:
        covered = self.records[: len(self.records) if covers is None else covers]
        names = ("tenant", "root", "execution_hash", "outcome_hash", "sealed_at", "signature", "key_id")
        body = {
            "job_id": "job",
            "event_count": len(covered),
            "chain": 2,
            "tree": tree_over(covered).hex(),
            **dict.fromkeys(names, ""),
        }
        return await self.say("job_sealed", json.dumps(body | lying).encode())

    async def read(self, *stretches: Stretch, behind: tuple[Stretch, ...] = ()) -> list[bytes | None]:
        """What is read, by its names; what that took is in `log.given`."""
        self.log.given = 0
        lies = JobLine(BEFORE, "r", "completed", stretches=stretches, behind=behind)
        found = await self.history.read_all("job", 0, lies, 30.0)
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        return [record.header("ce_id") for record in found]

    def named(self) -> list[bytes | None]:
        return [record.header("ce_id") for record in self.records]


@pytest.fixture
async def sealed() -> AsyncGenerator[SealedJob]:
    job = SealedJob()
    await written(job.log, b"others", BEFORE)
    for name in NAMES[:2]:
        await job.say(name)
    await written(job.log, b"others", BETWEEN)
    await job.say(NAMES[2])
    await job.seal()
    await written(job.log, b"later", BEHIND)
    yield job
    await job.history.close()


FIRST: Stretch = (BEFORE, BEFORE + 2)
END = BEFORE + 2 + BETWEEN
LAST: Stretch = (END, END + 2)
EVERYTHING = END + 2 + BEHIND - BEFORE


async def test_a_sealed_job_costs_what_it_is_long_whatever_lies_within_and_behind(sealed: SealedJob) -> None:
    assert await sealed.read(FIRST, LAST) == sealed.named()
    assert sealed.log.given == 4
    assert await sealed.read((BEFORE, END + 2)) == sealed.named()
    assert sealed.log.given == END + 2 - BEFORE


async def test_what_came_behind_the_seal_costs_no_more_than_itself(sealed: SealedJob) -> None:
    late = await sealed.say("effect_confirmed")
    await written(sealed.log, b"later", BEHIND)
    assert await sealed.read(FIRST, LAST, behind=((late, late + 1),)) == sealed.named()
    assert sealed.log.given == 5


@pytest.mark.parametrize(
    ("stretches", "behind"),
    [
        pytest.param((), (), id="no line yet, or an old one"),
        pytest.param((FIRST,), (), id="an end that is too low"),
        pytest.param((FIRST, (END, END + 1)), (), id="the seal left out"),
        pytest.param(((BEFORE, BEFORE + 1), LAST), (), id="the middle left out"),
        pytest.param((FIRST, (END + 1, END + 2)), (), id="the end left out"),
        pytest.param(((BEFORE, 10**9),), (), id="an end that is too high"),
        pytest.param(((BEFORE, END + 3 + BEHIND),), (), id="an end just too high"),
        pytest.param(((BEFORE + 100, BEFORE + 200), (END + 5, END + 6)), (), id="another job's, or partition's"),
        pytest.param((LAST, FIRST), (), id="out of order"),
        pytest.param((FIRST, LAST), ((BEFORE, BEFORE + 1),), id="behind lies before"),
        pytest.param((FIRST, LAST), ((10**9, 10**9 + 1),), id="behind lies beyond the log"),
    ],
)
async def test_a_line_that_lies_shortens_nothing(
    sealed: SealedJob, stretches: tuple[Stretch, ...], behind: tuple[Stretch, ...]
) -> None:
    late = await sealed.say("violation_found")
    assert late == END + 2 + BEHIND
    assert await asyncio.wait_for(sealed.read(*stretches, behind=behind), 20) == sealed.named()
    assert sealed.log.given >= EVERYTHING


@pytest.mark.parametrize(
    "lying",
    [{"tree": ""}, {"tree": "00" * 32}, *({"event_count": count} for count in (-1, 0, 2, 4, 99)), {"tenant": 1}],
)
async def test_a_seal_that_does_not_fit_what_lies_before_it_ends_nothing(lying: dict[str, Any]) -> None:
    job = SealedJob()
    await written(job.log, b"others", BEFORE)
    for name in NAMES:
        await job.say(name)
    at = await job.seal(**lying)
    await written(job.log, b"later", BEHIND)
    await job.seal(covers=3)
    assert await job.read((BEFORE, at + 1)) == job.named()
    assert job.log.given >= BEHIND
    await job.history.close()


async def test_a_seal_of_a_job_that_has_not_ended_ends_nothing() -> None:
    job = SealedJob()
    await written(job.log, b"others", BEFORE)
    await job.say(NAMES[0])
    await job.seal()
    await job.say(NAMES[2])
    assert await job.read((BEFORE, BEFORE + 2)) == job.named()
    await job.history.close()
