"""The skeleton: our processes and records, with nothing decided (`skeleton_parts`); the client asks over Kafka.

What it takes, every step takes in this design; what Aetheris takes beyond it goes into what it promises. With its
records `owed` it also does what the contract owes to each: then nothing is missing but decisions, and HTTP.
"""

import sys
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.environment import alone
from aetheris.cli.embedded.jars import Progress
from aetheris.cli.embedded.plan import State
from aetheris.protocol.base.topics import Topic
from aetheris.rigs.bench.completions import Completions, completions
from aetheris.rigs.bench.runner import Variant
from aetheris.rigs.bench.workloads import Workload
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.log.interface import Appender
from tests.bench.floor import servers
from tests.bench.skeleton_parts import PARTS, job_key
from tests.bench.skeleton_records import draft
from tests.bench.workers import Processes, processes_in


class Skeleton:
    """Kafka and Valkey, and four processes."""

    def __init__(self, data: Path, processes: Processes, appender: Appender, seen: Completions) -> None:
        self._data = data
        self._processes = processes
        self._appender = appender
        self._seen = seen

    def pids(self) -> Mapping[str, int]:
        """The servers', and the parts'."""
        return {**servers(self._data), **self._processes.pids()}

    async def job(self, workload: Workload) -> str:
        """One job."""
        job = uuid.uuid4().hex
        key = job_key(job, workload.steps, parallel=workload.parallel)
        await self._appender.append([(draft(Topic.JOBS_COMMANDS, "submit", key),)])
        await self._seen.wait(key.decode())
        return job

    def crash_worker(self) -> None:
        """Nothing could be recovered."""
        raise NotImplementedError


@asynccontextmanager
async def running(
    data: Path, progress: Progress, *, records: Literal["skipped", "owed"] = "skipped"
) -> AsyncGenerator[Skeleton]:
    """The servers, with the tuning that Aetheris is measured with, and the parts."""
    with alone({}):
        state = lifecycle.up(data, services=(), progress=progress, tuning=lambda _node: Variant().tuning)
    try:
        await ensure_topics(state.kafka, 4)
        async with processes_in(data) as processes, _appender(state) as appender, completions(state.kafka) as seen:
            env = {"AETHERIS_KAFKA": state.kafka, "AETHERIS_REDIS": state.redis}
            env |= {"AETHERIS_DATA": str(data), "AETHERIS_DEV": "1", "AETHERIS_TRACE_SAMPLE": "0"}
            env |= {"SKELETON_RECORDS": records}
            for part in PARTS:
                processes.start(part, (sys.executable, "-m", "tests.bench.skeleton_parts", part), env)
            yield Skeleton(data, processes, appender, seen)
    finally:
        lifecycle.down(data)


@asynccontextmanager
async def _appender(state: State) -> AsyncGenerator[Appender]:
    log = KafkaLog(state.kafka)
    await log.start()
    appender = log.appender()
    await appender.start()
    try:
        yield appender
    finally:
        await appender.stop()
        await log.stop()
