"""What each of our requests for records saves: three records appended and read back, with aiokafka's in its place."""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.protocol.base.records import Draft
from aetheris.runtime.kafka import KafkaLog
from tests.bench.machine import shape

PARTITIONS, RECORDS, BYTES = 8, 3, 400
TOPIC = "records"
OWN, AIOKAFKA = "ours", "aiokafka"
WAYS = [(AIOKAFKA, AIOKAFKA), (AIOKAFKA, OWN), (OWN, AIOKAFKA), (OWN, OWN)]
"""(Produce by, Fetch by)."""
_ROUND_S = 30.0

Append = Callable[[int], Awaitable[None]]
Read = Callable[[], Awaitable[int]]
"""How many records came."""


@asynccontextmanager
async def appending(by: str, address: str) -> AsyncGenerator[Append]:
    value = bytes(BYTES)
    if by == OWN:
        log = KafkaLog(address)
        await log.start()
        appender = log.appender()
        await appender.start()

        async def write(place: int) -> None:
            await appender.append([tuple(Draft(TOPIC, b"k", value, (), place) for _ in range(RECORDS))])

        try:
            yield write
        finally:
            await appender.stop()
            await log.stop()
        return
    producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True, acks="all")
    await producer.start()

    async def append(place: int) -> None:
        batch = producer.create_batch()
        for _ in range(RECORDS):
            batch.append(key=b"k", value=value, timestamp=None)
        await (await producer.send_batch(batch, TOPIC, partition=place))

    try:
        yield append
    finally:
        await producer.stop()


@asynccontextmanager
async def reading(by: str, address: str) -> AsyncGenerator[Read]:
    log = KafkaLog(address)
    await log.start()
    ends = await log.end_offsets([(TOPIC, number) for number in range(PARTITIONS)])
    if by == OWN:
        reader = log.reader()
        await reader.start()
        reader.assign(ends)

        async def read() -> int:
            return sum(map(len, (await reader.poll(1.0)).values()))

        try:
            yield read
        finally:
            await reader.stop()
            await log.stop()
        return
    await log.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, fetch_max_wait_ms=100)
    await consumer.start()
    consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
    for (_, number), at in ends.items():
        consumer.seek(TopicPartition(TOPIC, number), at)

    async def got() -> int:
        return sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))

    try:
        yield got
    finally:
        await consumer.stop()


async def measured(ways: tuple[str, str], address: str, trips: int, broker: int) -> tuple[float, float, float]:
    """CPU of this process and of the broker for each round trip, in µs, and its median time in ms."""
    times: list[float] = []
    async with AsyncExitStack() as parts:
        append = await parts.enter_async_context(appending(ways[0], address))
        read = await parts.enter_async_context(reading(ways[1], address))

        async def trip(number: int) -> None:
            began_s = time.perf_counter()
            await append(number % PARTITIONS)
            came = 0
            async with asyncio.timeout(_ROUND_S):
                while came < RECORDS:
                    came += await read()
            times.append(1000 * (time.perf_counter() - began_s))

        for number in range(trips // 5):  # until all is warm
            await trip(number)
        times.clear()
        own_s, broker_s = _cpu_s(), _cpu_s(broker)
        for number in range(trips):
            await trip(number)
        own_s, broker_s = _cpu_s() - own_s, _cpu_s(broker) - broker_s
    return 1e6 * own_s / trips, 1e6 * broker_s / trips, median(times)


def _cpu_s(pid: int = 0) -> float:
    if not pid:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _broker_pid(folder_name: str) -> int:
    """Whose command line names that folder."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if b"kafka.Kafka" in line and folder_name.encode() in line:
                return int(folder.name)
    raise LookupError("no broker")


async def compared(address: str, trips: int, rounds: int, broker: int) -> dict[tuple[str, str], list[float]]:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    await admin.close()
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {ways: [] for ways in WAYS}
    for _ in range(rounds):
        for ways in WAYS:
            found[ways].append(await measured(ways, address, trips, broker))
            print(ways, [round(one, 2) for one in found[ways][-1]], file=sys.stderr)  # noqa: T201
    return {ways: [median(column) for column in zip(*rows, strict=True)] for ways, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trips", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        broker = broker_in(install(lambda _part, _message: None), data, Ports(data))
        with running_broker(broker, data / "kafka.log") as address:
            pid = _broker_pid(folder)
            found = uvloop.run(compared(address, given.trips, given.rounds, pid))
    print("| Produce | Fetch | its CPU | time, p50 | the broker's CPU |\n| --- | --- | --- | --- | --- |")  # noqa: T201
    for (produce, fetch), (own, at_broker, p50) in found.items():
        print(f"| {produce} | {fetch} | {own:.0f} µs | {p50:.2f} ms | {at_broker:.0f} µs |")  # noqa: T201
    print(f"medians of {given.rounds}; load {before:.1f} before and {os.getloadavg()[0]:.1f} after; {shape()}")  # noqa: T201


if __name__ == "__main__":
    main()
