"""A broker that is killed or frozen under load: nothing acknowledged is lost, groups stay whole, nobody hangs."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aetheris.cli.embedded.kafka import Broker, broker_in, install, wait_ready
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.protocol.base.records import Draft, Group
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.interface import Appender, LogUnreachable
from aetheris.runtime.log.pump import Pump
from aetheris.runtime.log.replay import replay

pytestmark = [pytest.mark.nightly, pytest.mark.real]

DEADLINE_S = 60.0
WRITERS = 8


class Fragile:
    """A broker of this test's own, that it may kill, freeze and start again."""

    def __init__(self, broker: Broker, log: Path) -> None:
        self._broker = broker
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return self._broker.address

    def start(self) -> None:
        self._broker.prepare()
        child = self._child = spawn(self._broker.argv(), log=self._log)
        wait_ready("kafka", lambda: kafka_answers(self.address), lambda: child.poll() is None, self._log)

    def signal(self, number: int) -> None:
        assert self._child is not None
        os.kill(self._child.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self._child is not None
        self._child.wait(10)

    def end(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self.signal(signal.SIGCONT)
            end(self._child, 10)


@pytest.fixture
def broker(tmp_path: Path) -> Generator[Fragile]:
    fragile = Fragile(broker_in(install(lambda _part, _message: None), tmp_path, Ports(tmp_path)), tmp_path / "log")
    try:
        fragile.start()
        yield fragile
    finally:
        fragile.end()


@pytest.fixture
async def topic(broker: Fragile) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    name = f"outage-{uuid.uuid4().hex[:8]}"
    await admin.create_topics([NewTopic(name, 1, 1)])
    await admin.close()
    return name


@pytest.fixture
async def log(broker: Fragile) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(broker.address, send_deadline_s=1.0)
    await log.start()
    yield log
    await log.stop()


async def test_a_killed_broker_loses_nothing_and_splits_nothing(broker: Fragile, topic: str, log: KafkaLog) -> None:
    async with _appender(log) as appender:
        writing = _write_under_load(appender, topic)
        await _until_written(log, topic, 500)
        broker.kill()
        await asyncio.to_thread(broker.start)
        acknowledged = await writing
    _check(await _values(log, topic), acknowledged)


async def test_a_frozen_broker_makes_doubt_and_doubt_is_written_again(
    broker: Fragile, topic: str, log: KafkaLog
) -> None:
    async with _appender(log) as appender:
        writing = _write_under_load(appender, topic)
        await _until_written(log, topic, 500)
        broker.signal(signal.SIGSTOP)
        await asyncio.to_thread(time.sleep, 2.5)  # longer than the send deadline: what is in flight is unknown
        assert appender.stuck_s() > 1.0
        broker.signal(signal.SIGCONT)
        acknowledged = await writing
        assert appender.stuck_s() == 0.0
    _check(await _values(log, topic), acknowledged)


async def test_nothing_hangs_for_ever_on_a_frozen_broker(broker: Fragile, topic: str, log: KafkaLog) -> None:
    appender, reader = log.appender(), log.reader()
    await appender.start()
    await reader.start()
    reader.assign({(topic, 0): 0})
    broker.signal(signal.SIGSTOP)
    pending = asyncio.create_task(appender.append([(Draft(topic, b"k", b"{}"),)]))
    with pytest.raises(LogUnreachable):
        await log.end_offsets([(topic, 0)], deadline_s=0.5)
    began = time.monotonic()
    await appender.stop(1.0)
    await reader.stop(1.0)
    assert time.monotonic() - began < 20
    with pytest.raises(LogUnreachable):
        await pending


async def test_a_pump_goes_on_after_the_broker_was_away(broker: Fragile, topic: str, log: KafkaLog) -> None:
    seen: list[bytes] = []
    arrived = asyncio.Event()

    def sink(_place: tuple[str, int], records: Sequence[object]) -> None:
        seen.extend(getattr(record, "value", b"") for record in records)
        arrived.set()

    pump = Pump(log, sink)
    pump.add({(topic, 0): 0})
    pumping = asyncio.create_task(pump.run())
    async with _appender(log) as appender:
        await appender.append([(Draft(topic, b"k", b"before"),)])
        await asyncio.wait_for(arrived.wait(), DEADLINE_S)
        broker.kill()
        await asyncio.to_thread(broker.start)
        arrived.clear()
        await appender.append([(Draft(topic, b"k", b"after"),)])
        await asyncio.wait_for(arrived.wait(), DEADLINE_S)
    assert list(dict.fromkeys(seen)) == [b"before", b"after"]
    pumping.cancel()
    await asyncio.gather(pumping, return_exceptions=True)


@contextlib.asynccontextmanager
async def _appender(log: KafkaLog) -> AsyncGenerator[Appender]:
    appender = log.appender()
    await appender.start()
    try:
        yield appender
    finally:
        await appender.stop()


def _write_under_load(appender: Appender, topic: str) -> "asyncio.Future[list[list[str]]]":
    """Writers that each append one group after the other; what was acknowledged, in order."""

    async def write(writer: int) -> list[str]:
        acknowledged: list[str] = []
        for turn in range(300):
            await appender.append([_group(topic, writer, turn)])
            acknowledged.append(f"{writer}/{turn}")
        return acknowledged

    return asyncio.ensure_future(asyncio.wait_for(asyncio.gather(*(write(n) for n in range(WRITERS))), DEADLINE_S))


def _group(topic: str, writer: int, turn: int) -> Group:
    return tuple(Draft(topic, b"k", f"{writer}/{turn}/{at}".encode()) for at in range(3))


async def _until_written(log: KafkaLog, topic: str, count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await log.end_offsets([(topic, 0)]))[topic, 0] < count:  # noqa: ASYNC110  the broker tells nobody
            await asyncio.sleep(0.01)


async def _values(log: KafkaLog, topic: str) -> list[str]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                end = (await log.end_offsets([(topic, 0)]))[topic, 0]
                break
            except LogUnreachable:
                continue
        return [r.value.decode() async for records in replay(log, (topic, 0), 0, end) for r in records]


def _check(values: Sequence[str], acknowledged: Sequence[Sequence[str]]) -> None:
    groups = [values[at : at + 3] for at in range(0, len(values), 3)]
    names = [group[0].rsplit("/", 1)[0] for group in groups]
    assert [[f"{name}/{at}" for at in range(3)] for name in names] == groups, "a group was split"
    first = list(dict.fromkeys(names))
    for writer, own in enumerate(acknowledged):
        assert [name for name in first if name.startswith(f"{writer}/")] == own, "lost, or out of order"
