"""The floor: no framework. A step is the tool, one Redis write, two records in one produce, one fetch of them.

Steps that are due at the same time share all three. Nothing is decided, nothing could be recovered.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from redis.asyncio import Redis

from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.environment import alone
from aetheris.cli.embedded.jars import Progress
from aetheris.cli.embedded.plan import State
from aetheris.protocol.base.records import Draft, Group
from aetheris.rigs.bench.measurement import notes_in
from aetheris.rigs.bench.runner import Variant
from aetheris.rigs.bench.tools import RESULT, append
from aetheris.rigs.bench.workloads import Workload
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.log.interface import Appender, Reader

PLACE = ("floor", 0)


class Floor:
    """Kafka and Valkey, and one process that does all of it."""

    def __init__(self, data: Path, appender: Appender, reader: Reader, redis: Redis) -> None:
        self._data = data
        self._appender = appender
        self._reader = reader
        self._redis = redis
        self._due: list[tuple[str, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()

    def pids(self) -> Mapping[str, int]:
        """The servers', and the bench's own: it does the work."""
        return {**servers(self._data), "floor": os.getpid()}

    async def job(self, workload: Workload) -> str:
        """One job."""
        job = uuid.uuid4().hex
        keys = [f"floor:{job}:n{step}" for step in range(workload.steps)]
        if workload.parallel:
            await asyncio.gather(*map(self._step, keys))
        else:
            for key in keys:
                await self._step(key)
        return job

    def crash_worker(self) -> None:
        """There is none."""
        raise NotImplementedError

    async def work(self) -> None:
        """What is due, all at once, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            due, self._due = self._due, []
            await self._together([key for key, _ in due])
            for _, done in due:
                done.set_result(None)

    async def _step(self, key: str) -> None:
        done = asyncio.get_running_loop().create_future()
        self._due.append((key, done))
        self._wake.set()
        await done

    async def _together(self, keys: list[str]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        groups: list[Group] = []
        for key in keys:
            append(notes_in(self._data), key)
            pipeline.set(key, RESULT)
            groups.append((record(key.encode(), RESULT),) * 2)
        await pipeline.execute()
        await there_and_back(self._appender, self._reader, groups)


@asynccontextmanager
async def running(data: Path, progress: Progress) -> AsyncGenerator[Floor]:
    """The servers, and the process that does the work."""
    async with clients(data, progress) as (appender, reader, redis):
        floor = Floor(data, appender, reader, redis)
        working = asyncio.create_task(floor.work())
        try:
            yield floor
        finally:
            working.cancel()
            await asyncio.wait({working})


def servers(data: Path) -> Mapping[str, int]:
    """The pids of what was started on a folder."""
    state = State.load(data)
    return {name: part.pid for name, part in (state.parts if state else {}).items() if part.pid is not None}


def record(key: bytes, value: bytes) -> Draft:
    """One for PLACE."""
    topic, partition = PLACE
    return Draft(topic, key, value, (), partition)


async def there_and_back(appender: Appender, reader: Reader, groups: Sequence[Group]) -> None:
    """Append the groups, and read them: nobody else writes to PLACE."""
    wanted = sum(map(len, groups))
    await appender.append(groups)
    while wanted > 0:
        wanted -= sum(map(len, (await reader.poll(1.0)).values()))


@asynccontextmanager
async def clients(data: Path, progress: Progress) -> AsyncGenerator[tuple[Appender, Reader, Redis]]:
    """Start the servers, with the tuning that Aetheris is measured with, and connect; the reader is at PLACE."""
    with alone({}):
        state = lifecycle.up(data, services=(), progress=progress, tuning=lambda _node: Variant().tuning)
    try:
        async with _clients(state) as connected:
            yield connected
    finally:
        lifecycle.down(data)


@asynccontextmanager
async def _clients(state: State) -> AsyncGenerator[tuple[Appender, Reader, Redis]]:
    admin = AIOKafkaAdminClient(**client_options(state.kafka))
    await admin.start()
    await admin.create_topics([NewTopic(PLACE[0], num_partitions=1, replication_factor=1)])
    await admin.close()
    log = KafkaLog(state.kafka)
    await log.start()
    appender, reader, redis = log.appender(), log.reader(), Redis.from_url(state.redis)
    await appender.start()
    await reader.start()
    reader.assign({PLACE: 0})
    try:
        yield appender, reader, redis
    finally:
        await appender.stop()
        await reader.stop()
        await redis.aclose()
        await log.stop()
