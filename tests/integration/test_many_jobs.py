"""The index of jobs, as long as it becomes: loaded however long that takes, in little memory, and asked for any job.

AETHERIS_INDEX_LINES says how many jobs (100,000 if it is not set); what it took is printed.
"""

import asyncio
import hashlib
import os
import time
import uuid
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.stretches import Stretch
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.log.job_lines import JobLine, JobLines, read_line
from aetheris.runtime.log.table import Table

pytestmark = [pytest.mark.nightly, pytest.mark.real]

JOBS = int(os.environ.get("AETHERIS_INDEX_LINES", "100000"))
PARTITIONS = 4
PORTION = 5_000
STALLED_S = 1.0
BYTES_A_JOB = 120
"""Measured: 79, and some room."""


async def test_an_index_of_many_jobs_is_loaded_however_long_it_takes(kafka: str) -> None:
    topic = f"index-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(**client_options(kafka))
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1, topic_configs={"cleanup.policy": "compact"})])
    await admin.close()
    log = KafkaLog(kafka)
    await log.start()
    await _write(log, topic)
    before = _resident_bytes()
    table = Table(log, topic, JobLines())
    begun_s = time.monotonic()
    loading = asyncio.create_task(table.load(STALLED_S))
    reported: set[str | None] = set()
    while not loading.done():
        reported.add(table.unready())
        await asyncio.sleep(0.05)
    await loading
    took_s, took_bytes = time.monotonic() - begun_s, _resident_bytes() - before
    print(f"{JOBS} jobs: loaded in {took_s:.1f} s, {took_bytes / JOBS:.0f} bytes a job")  # noqa: T201  the figure is the point
    assert took_s > STALLED_S, "too few jobs to show anything"
    assert any(reason is not None and not reason.endswith(": 0 of 0 records") for reason in reported)
    assert len(reported) > 2
    assert table.unready() is None
    assert took_bytes < BYTES_A_JOB * JOBS + 64 * 1024 * 1024
    for number in (0, 1, JOBS // 2, JOBS - 1):
        found = table.get(_job(number))
        assert found is not None
        end = "failed" if number % 3 else "completed"
        assert read_line(found) == JobLine(_birth(number), _hash(number), end, stretches=_stretches(number))
    assert table.get(_job(JOBS)) is None
    await log.stop()


async def _write(log: KafkaLog, topic: str) -> None:
    appender = log.appender()
    await appender.start()
    for start in range(0, JOBS, PORTION):
        numbers = range(start, min(start + PORTION, JOBS))
        await appender.append([(_line(number, topic),) for number in numbers])
    await appender.stop(60.0)


def _line(number: int, topic: str) -> Draft:
    job_id = _job(number)
    entry = JobIndexEntry(
        job_id=job_id,
        birth=_birth(number),
        request_hash=_hash(number),
        status="failed" if number % 3 else "completed",
        tenant="acme",
        submitted_by="ann",
        created_at="2026-01-01T00:00:00.000000Z",
        stretches=_stretches(number),
    )
    return Draft(topic, job_id.encode(), entry.model_dump_json().encode())


def _birth(number: int) -> int:
    """As in a log that has been written to for years."""
    return 2**30 + 50 * number


def _stretches(number: int) -> tuple[Stretch, ...]:
    return ((_birth(number), _birth(number) + 400),)


def _job(number: int) -> str:
    return str(uuid.UUID(bytes=hashlib.sha256(b"%d" % number).digest()[:16]))


def _hash(number: int) -> str:
    return hashlib.sha256(b"request %d" % number).hexdigest()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
