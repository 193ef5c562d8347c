"""Long jobs are read once, and answered as if they were read anew each time, whatever is asked in which order."""

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.gateway import long_jobs
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.long_jobs import LongJobs
from aetheris.gateway.views import Row
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import fold_event, logged_events
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import draft
from aetheris.views.standing import job_view
from tests.testkit import histories as h

SEEDS = range(12)


class PartitionWithOthers:
    """A partition in which a job's records lie between those of others; what of it was read is counted."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.line: object | None = None
        self.known = 0
        """Up to where `line` tells of the job's records."""
        self.read = 0

    def put(self, *records: Record) -> None:
        for one in records:
            self.log.append(Record(one.topic, 0, len(self.log), 0, one.key, one.headers, one.value))

    @property
    def of_job(self) -> list[Record]:
        return [one for one in self.log if one.key == h.JOB.encode()]

    async def end(self, _job_id: str) -> int:
        return len(self.log)

    async def between(self, _job_id: str, start: int, end: int) -> list[Record]:
        self.read += end - start
        return [one for one in self.of_job if start <= one.offset < end]

    async def records(self, row: Row, end: int) -> list[Record]:
        assert row.first_offset is not None
        until = end if self.line is None else self.known
        return await self.between(row.job_id, row.first_offset, until)

    def sealed_line(self, _row: Row) -> object | None:
        return self.line


def made(number: int) -> Record:
    """A record of the job: now and then one that nobody may take for its event, by what it says."""
    if number == 0:
        body: Any = h.created()
    elif number == 1:
        body = h.planned(h.graph({"id": "pay", "tool": "pay", "args": {}}, pay={}))
    else:
        body = ev.JobPaused(job_id=h.JOB, number=number, by="ann", reason=str(number))
    one = draft(Topic.JOBS_EVENTS, body, key=h.JOB, id=f"e-{number}", source="t", time="2026-01-01T00:00:00Z")
    value = one.value if number % 7 != 5 else b"{"
    return Record(one.topic, 0, 0, 0, one.key, one.headers, value)


def other() -> Record:
    return Record(str(Topic.JOBS_EVENTS), 0, 0, 0, b"another", (), b"{}")


def row_of(partition: PartitionWithOthers) -> Row:
    born = partition.of_job[0].offset
    return cast("Row", SimpleNamespace(job_id=h.JOB, first_offset=born))


@pytest.mark.parametrize("seed", SEEDS)
async def test_it_answers_as_if_it_read_anew(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)  # noqa: S311  a repeatable test
    for name, most in (("LONG", 20), ("_MOST_KEPT", 60), ("_FIRST", 40), ("_BREATH", 9)):
        monkeypatch.setattr(long_jobs, name, dice.randint(1, most))
    partition = PartitionWithOthers()
    partition.put(*(other() for _ in range(dice.randint(0, 5))), made(0))
    long, number = LongJobs(cast("JobReader", partition)), 1
    for _ in range(60):
        for _ in range(dice.randint(0, 6)):
            again = dice.random() < 0.1
            partition.put(made(dice.randrange(number) if again else number))
            partition.put(*(other() for _ in range(dice.randint(0, 4))))
            number += not again
        if dice.random() < 0.2:
            partition.line, partition.known = object(), len(partition.log)
        plain = list(logged_events(partition.of_job))
        if dice.random() < 0.3 and partition.line is None:
            state = None
            for one in plain:
                state, _ = fold_event(state, one.event, one.record.offset)
            found = await long.state(row_of(partition))
            assert (state is None) == (found is None)
            if state is not None and found is not None:
                assert job_view(found, "") == job_view(state, "")
        after, limit = dice.randint(0, number + 3), dice.randint(1, 30)
        wanted = [(one.sequence, one.record, one.is_void) for one in plain if (one.sequence or 0) > after]
        events = [tuple(one) for one in await long.events(row_of(partition), after, limit)]
        if partition.line is None or partition.known == len(partition.log):
            assert events == wanted[:limit]
        else:
            assert events == wanted[: len(events)], "what the index does not tell of yet may be missing, and no other"


async def test_what_comes_behind_a_seal_before_the_index_tells_of_it_is_told_once_it_does() -> None:
    partition = PartitionWithOthers()
    partition.put(*(made(number) for number in range(1_200)))
    partition.line, partition.known = object(), 1_200
    long = LongJobs(cast("JobReader", partition))
    assert len(await long.events(row_of(partition), 0, 10_000)) == 1_200
    partition.put(*(other() for _ in range(30_000)), made(1_200))
    assert len(await long.events(row_of(partition), 0, 10_000)) == 1_200
    partition.line, partition.known = object(), len(partition.log)
    assert [one.sequence for one in await long.events(row_of(partition), 1_200, 10)] == [1_201]


async def test_a_page_of_a_long_job_reads_no_more_than_the_page() -> None:
    partition = PartitionWithOthers()
    partition.put(*(made(number) for number in range(12_000)))
    long, row = LongJobs(cast("JobReader", partition)), row_of(partition)
    assert len(await long.events(row, 0, 1_000)) == 1_000
    assert partition.read <= 4_000, "the first page is there before the job is read"
    await long.state(row)
    partition.read = 0
    for after in (0, 5_000, 11_000):
        assert [one.sequence for one in await long.events(row, after, 1_000)] == [*range(after + 1, after + 1_001)]
    await long.state(row)
    assert partition.read == 3_000
