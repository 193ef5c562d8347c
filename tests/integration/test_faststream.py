"""A FastStream application on a real broker: each fact at least once and in order, whatever becomes of the process."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import JobCompleted
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

DEADLINE_S = 60.0
APPLICATION = """
import asyncio, json, os, sys
from faststream import FastStream
from faststream.kafka import KafkaBroker
from aetheris.sdk.faststream import job_events
from aetheris.sdk.received import Received

kafka, group, out, own, fails = sys.argv[1:]
broker = KafkaBroker(kafka)
failed = set()

@job_events(broker, group)
async def happened(fact: Received) -> None:
    if not fact.job_id.startswith(own):
        return
    with open(out, "a") as file:
        print(json.dumps({"job": fact.job_id, "id": fact.id, "pid": os.getpid()}), file=file)
    if fact.id == fails and fact.id not in failed:
        failed.add(fact.id)
        raise RuntimeError("not today")

asyncio.run(FastStream(broker).run())
"""


@asynccontextmanager
async def application(kafka: str, group: str, out: Path, own: str, fails: str = "-") -> AsyncGenerator[int]:
    """A process that writes a line for each fact; its pid."""
    log = out.with_suffix(".log").open("ab")
    argv = (sys.executable, "-c", APPLICATION, kafka, group, str(out), own, fails)
    process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        log.close()


def told(out: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


async def heard(out: Path, ids: set[str]) -> None:
    await asyncio.to_thread(until, lambda: {one["id"] for one in told(out)} >= ids, DEADLINE_S)


async def write(kafka: str, job: str, numbers: range) -> set[str]:
    """Facts of a job, JOB-N each, behind one whose headers are no text."""
    odd = Draft(Topic.JOBS_EVENTS, job.encode(), b"{", (("ce_type", b"\xff\xfe"), ("odd", b"\xff")))
    time = "2026-01-01T00:00:00Z"
    bodies = [(f"{job}-{number}", JobCompleted(job_id=job, result=number)) for number in numbers]
    drafts = [draft(Topic.JOBS_EVENTS, body, key=job, id=one, source="test", time=time) for one, body in bodies]
    log = KafkaLog(kafka)
    await log.start()
    appender = log.appender()
    await appender.start()
    await appender.append([(one,) for one in (odd, *drafts)])
    await appender.stop()
    await log.stop()
    return {one for one, _ in bodies}


async def test_each_fact_at_least_once_in_order_through_kill_and_error(kafka: str, tmp_path: Path) -> None:
    await ensure_topics(kafka, 4)
    own, out = fresh("stream"), tmp_path / "facts"
    jobs = [f"{own}-{number}" for number in range(4)]
    first = set[str]().union(*[await write(kafka, job, range(20)) for job in jobs])
    fails = f"{jobs[1]}-7"
    async with application(kafka, own, out, own, fails) as pid:
        await heard(out, first)
        second = await write(kafka, jobs[0], range(20, 40))
        await asyncio.to_thread(until, lambda: len(told(out)) > len(first) + 5, DEADLINE_S)
        os.kill(pid, signal.SIGKILL)
    async with application(kafka, own, out, own):
        third = await write(kafka, jobs[1], range(20, 25))
        await heard(out, first | second | third)
    lines = told(out)
    assert sum(one["id"] == fails for one in lines) == 2, "what failed comes again"
    for job in jobs:
        numbers = [int(one["id"].rsplit("-", 1)[1]) for one in lines if one["job"] == job and one["id"]]
        steps = [after - before for before, after in pairwise(numbers)]
        assert numbers[0] == 0
        assert max(steps) <= 1, "in order, none left out"
    assert {one["job"] for one in lines if not one["id"]} == set(jobs), "what can't be read comes as well"
    pids = {one["pid"] for one in lines}
    again = sum(len({one["pid"] for one in lines if one["id"] == name}) == 2 for name in first)
    assert len(pids) == 2
    assert again <= 1, "a restart goes on after what was handled"


async def test_a_gap_is_an_error_and_never_a_jump(tmp_path: Path) -> None:
    own, out = fresh("stream"), tmp_path / "facts"
    own_broker = broker_in(install(lambda _part, _message: None), tmp_path, Ports(tmp_path))
    with running_broker(own_broker, tmp_path / "kafka.log") as kafka:
        await ensure_topics(kafka, 1)
        before = await write(kafka, own, range(5))
        async with application(kafka, own, out, own):
            await heard(out, before)
            assert "ERROR" not in out.with_suffix(".log").read_text(), "a new group begins without a word"
        lost = await write(kafka, own, range(5, 10))
        await forget(kafka, own, 9)
        async with application(kafka, own, out, own):
            log = out.with_suffix(".log")
            await asyncio.to_thread(until, lambda: "FactsMissing" in log.read_text(), DEADLINE_S)
        assert not {one["id"] for one in told(out)} & lost


async def forget(kafka: str, job: str, before: int) -> None:
    """The broker no longer has what lies before that offset of the job's partition."""
    admin = AIOKafkaAdminClient(**client_options(kafka))
    await admin.start()
    place = TopicPartition(Topic.JOBS_EVENTS, partition_of(job, 1))
    await admin.delete_records({place: RecordsToDelete(before_offset=before)})
    await admin.close()
