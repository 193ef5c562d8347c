"""A running system says in jobs.index where a sealed job lies, and what came behind its seal; both are shown."""

import asyncio

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.job_lines import JobLine, JobLines, line_of
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.table import Table
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import poke
from tests.testkit.system import System

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(180)]


async def lies(system: System, job_id: str) -> tuple[JobLine, list[int]]:
    """The job's line in the index, and the offsets of all records that the log has of it."""
    log = KafkaLog(system.state().kafka)
    await log.start()
    history = JobLogReader(log)
    try:
        table = Table(log, Topic.JOBS_INDEX, JobLines())
        await table.load()
        line = line_of(table.get, job_id)
        assert line is not None
        partition = partition_of(job_id, await log.partitions(Topic.JOBS_EVENTS))
        records = await history.read_job(job_id, partition, line.birth)
    finally:
        await history.close()
        await log.stop()
    return line, [record.offset for record in records]


def test_the_index_says_where_a_sealed_job_lies_and_what_came_behind(system: System) -> None:
    job_id = system.submit(poke("one", fresh("lies")), poke("two", fresh("lies"), "one"))
    seal = system.wait_sealed(job_id)
    reported: list[tuple[JobLine, list[int]]] = []

    def is_told() -> bool:
        reported[:] = [asyncio.run(lies(system, job_id))]
        return bool(reported[0][0].stretches)

    until(is_told, 30)
    line, offsets = reported[0]
    assert line.stretches == ((offsets[0], offsets[-1] + 1),)
    assert len(offsets) == seal["event_count"] + 1
    before = system.verified(job_id)
    system.append(ev.ViolationFound(job_id=job_id, rule="r", event_id="e", offset=0, message="m"), "somebody")

    def is_behind() -> bool:
        reported[:] = [asyncio.run(lies(system, job_id))]
        return bool(reported[0][0].behind)

    until(is_behind, 30)
    line, offsets = reported[0]
    assert line.behind == ((offsets[-1], offsets[-1] + 1),)
    until(lambda: system.types(job_id)[-1] == "violation_found", 30)
    assert system.verified(job_id)["seal"]["root"] == before["seal"]["root"]
    system.kill("planner-0")
    system.wait_ready()
    line, _ = asyncio.run(lies(system, job_id))
    assert line == reported[0][0]
    assert system.verified(job_id)["seal"]["root"] == before["seal"]["root"]
