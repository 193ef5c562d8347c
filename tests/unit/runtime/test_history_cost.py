"""What reading a job costs: what lies in its partition from its birth on, however much lies before."""

from collections.abc import Mapping

import pytest

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import Place
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
