"""A broker's disk is put back to what it was: who had read further does not run on, however the log grows again."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aetheris.cli.embedded.kafka import STOP_WITHIN_S, Broker, broker_in, install, wait_ready
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.refusal import REFUSED_STATUS, refusal
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.worker.reached import LogCut
from tests.integration.test_streams_worker import EVENTS, PARTITIONS, RunningWorker, WorkerBench, running

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DEADLINE_S = 90.0
PLACE = f"{Topic.JOBS_EVENTS}-0"


class PutBack:
    """A broker whose partition of jobs.events can be put back to what it was."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def _lies_in(self) -> Path:
        return self.broker.log_folder / PLACE

    def start(self) -> None:
        self.broker.prepare()
        child = self._child = spawn(self.broker.argv(), log=self._folder / "log")
        answers = lambda: kafka_answers(self.broker.address)  # noqa: E731
        wait_ready("kafka", answers, lambda: child.poll() is None, self._folder / "log")

    def end(self) -> None:
        if self._child is not None:
            end(self._child, STOP_WITHIN_S)
            self._child = None

    def keep(self) -> None:
        """What it is now."""
        self.end()
        shutil.copytree(self._lies_in, self._folder / "kept")
        self.start()

    def put_back(self) -> None:
        """What it was; all else that the broker has stays as it is."""
        self.end()
        shutil.rmtree(self._lies_in)
        shutil.copytree(self._folder / "kept", self._lies_in)
        self.start()


@pytest.fixture
def broker(tmp_path: Path) -> Generator[PutBack]:
    found = PutBack(broker_in(install(lambda _part, _message: None), tmp_path, Ports(tmp_path)), tmp_path)
    try:
        found.start()
        yield found
    finally:
        found.end()


@asynccontextmanager
async def benched(broker: PutBack, prefix: str = "") -> AsyncGenerator[WorkerBench]:
    log = KafkaLog(broker.broker.address)
    await log.start()
    appender = log.appender()
    await appender.start()
    try:
        yield WorkerBench(log, appender, prefix) if prefix else WorkerBench(log, appender)
    finally:
        await appender.stop()
        await log.stop()


async def handled(run: RunningWorker, *values: str) -> None:
    """All of these, and told to the group."""
    await run.handlers[0].until(lambda: set(values) <= set(run.handlers[0].values("fold", EVENTS)))


async def refused(bench: WorkerBench) -> str:
    """How the worker ends."""
    async with running(bench) as run:
        with pytest.raises(LogCut) as ended:
            async with asyncio.timeout(DEADLINE_S):
                await run.task
    found = refusal(ended.value)
    assert found is not None
    assert (found.code, found.passes, REFUSED_STATUS) == ("log_cut", False, 78)
    return str(ended.value)


async def test_who_had_read_further_is_refused_and_so_he_is_once_others_have_written_there(broker: PutBack) -> None:
    await ensure_topics(broker.broker.address, PARTITIONS)
    async with benched(broker) as bench:
        prefix = bench.prefix
        await bench.put(EVENTS, 0, "e0", "e1")
    broker.keep()
    async with benched(broker, prefix) as bench, running(bench) as run:
        await run.restored(0)
        await bench.put(EVENTS, 0, "e2", "e3")
        await handled(run, "e0", "e1", "e2", "e3")
    async with benched(broker, prefix) as bench, running(bench) as run:  # nothing is amiss: it goes on
        await run.restored(0)
        await bench.put(EVENTS, 0, "e4")
        await handled(run, "e4")
    broker.put_back()
    async with benched(broker, prefix) as bench:
        assert "ends at 2; it was read to 4" in await refused(bench)
        await bench.put(EVENTS, 0, "e2", "other", "other", "other")
        assert "has another record at 4" in await refused(bench)


async def test_who_runs_meanwhile_ends_and_the_next_one_is_refused(broker: PutBack) -> None:
    """He says how far he had read before he ends."""
    await ensure_topics(broker.broker.address, PARTITIONS)
    async with benched(broker) as bench:
        prefix = bench.prefix
        await bench.put(EVENTS, 0, "e0", "e1")
    broker.keep()
    async with benched(broker, prefix) as bench:
        async with running(bench) as run:
            await run.restored(0)
            await bench.put(EVENTS, 0, "e2", "e3")
            await handled(run, "e0", "e1", "e2", "e3")
            await asyncio.to_thread(broker.put_back)
            with pytest.raises(Exception, match=r"out of range|below what was read"):
                async with asyncio.timeout(DEADLINE_S):
                    await run.task
        assert "ends at 2; it was read to 3" in await refused(bench)
