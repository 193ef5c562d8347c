"""What a pipeline costs its client: ours and redis-py's, beside one Valkey and a cluster (ADR 18).

`python -m tests.bench.redis_clients` prints a table: CPU of the client and time, for each kind of server and pipeline.
"""

import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import redis.asyncio as other
from redis.asyncio.cluster import ClusterNode, RedisCluster

from aetheris.cli.embedded.valkey import Valkey, running_valkey
from aetheris.runtime.redis.client import Redis
from tests.testkit.valkeys import cluster

TIMES, RUNS = 2_000, 5
SIZES = (2, 20)
VALUE = b"x" * 300

Ask = Callable[[list[tuple[str, ...]]], Awaitable[object]]


def commands(size: int) -> list[tuple[str, ...]]:
    """An effect is put, and given its end: the pipeline of each call, for one call or ten."""
    keys = [f"aetheris:effect:job:{number}" for number in range(size // 2)]
    return [part for key in keys for part in (("HSET", key, "n", VALUE.decode()), ("PEXPIRE", key, "60000"))]


async def measured(ask: Ask, size: int) -> tuple[float, float]:
    """µs of CPU and of time for one pipeline: medians of the runs."""
    batch = commands(size)
    cpu: list[float] = []
    lasted: list[float] = []
    for _ in range(100):
        await ask(batch)
    for _ in range(RUNS):
        began, before = time.perf_counter(), _cpu_s()
        for _ in range(TIMES):
            await ask(batch)
        cpu.append((_cpu_s() - before) / TIMES * 1e6)
        lasted.append((time.perf_counter() - began) / TIMES * 1e6)
    return statistics.median(cpu), statistics.median(lasted)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def by_redis_py(client: "other.Redis | RedisCluster") -> Ask:
    """Its own pipeline, without a transaction."""

    async def ask(batch: list[tuple[str, ...]]) -> object:
        pipeline = client.pipeline(transaction=False) if isinstance(client, other.Redis) else client.pipeline()
        for command in batch:
            pipeline.execute_command(*command)
        return await pipeline.execute()

    return ask


async def compared(place: str, ours: Redis, theirs: "other.Redis | RedisCluster") -> None:
    """Lines of the table."""
    for size in SIZES:
        for name, ask in (("redis-py", by_redis_py(theirs)), ("ours", ours.pipeline)):
            cpu, lasted = await measured(ask, size)  # pyright: ignore[reportArgumentType]
            print(f"| {place} | {size} | {name} | {cpu:.0f} | {lasted:.0f} |", flush=True)  # noqa: T201  its output


async def main(folder: Path) -> None:
    """On servers of its own."""
    print("| server | commands | client | its CPU, µs | time, µs |\n| --- | --- | --- | --- | --- |")  # noqa: T201
    with running_valkey(Valkey(folder / "one"), folder / "one.log") as url:
        ours, theirs = Redis(url), other.Redis.from_url(url)
        await compared("one, by its socket", ours, theirs)
        await ours.close()
        await theirs.aclose()
    with cluster(folder / "cluster", replicas=0) as nodes:
        startup = [ClusterNode("127.0.0.1", one.port) for one in nodes.servers]
        ours, theirs = Redis(nodes.url), RedisCluster(startup_nodes=startup)
        await compared("three masters", ours, theirs)
        await ours.close()
        await theirs.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
