"""Three brokers of a test's own, which it may kill, stop and wake, and ask who leads what."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aetheris.cli.embedded.kafka import Broker, cluster_in, install, wait_ready
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.runtime.kafka.bootstrap import client_options
from tests.testkit.attempts import cleared_by


class Cluster:
    """Its brokers by node."""

    def __init__(self, folder: Path, brokers: list[Broker]) -> None:
        self._folder = folder
        self._brokers = {broker.node: broker for broker in brokers}
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        """host:port of all of them."""
        return ",".join(broker.address for broker in self._brokers.values())

    def start(self, *nodes: int) -> None:
        """Start these (all, where none is named), and return once they answer."""
        for node in nodes or self._brokers:
            self._brokers[node].prepare()
            self._children[node] = spawn(self._brokers[node].argv(), log=self._folder / f"{node}.log")
        for node in nodes or self._brokers:
            self._wait(node)

    def stop(self, node: int) -> None:
        """SIGSTOP."""
        os.kill(self._children[node].pid, signal.SIGSTOP)

    def wake(self, node: int) -> None:
        """SIGCONT."""
        os.kill(self._children[node].pid, signal.SIGCONT)

    def wake_all(self) -> None:
        """Whatever a test that failed had stopped."""
        for node, child in self._children.items():
            if child.poll() is None:
                self.wake(node)

    def kill(self, node: int) -> None:
        """kill -9."""
        self._children[node].kill()
        self._children[node].wait(10)

    def end(self) -> None:
        """End them all."""
        for child in self._children.values():
            if child.poll() is None:
                os.kill(child.pid, signal.SIGCONT)
                end(child, 0.0)

    async def create(self, topic: str, partitions: int = 1) -> None:
        """A topic whose records are acknowledged by two of three."""
        admin = AIOKafkaAdminClient(**client_options(self.address))
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, partitions, 3, topic_configs={"min.insync.replicas": "2"})])
        finally:
            await admin.close()

    async def leader(self, topic: str, partition: int = 0, *, but: int = 0, within_s: float = 60.0) -> int:
        """Who leads, as a broker says that is not `but`; waits until somebody else than `but` does."""
        others = ",".join(broker.address for node, broker in self._brokers.items() if node != but)
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            admin = AIOKafkaAdminClient(**client_options(others), request_timeout_ms=3000)
            try:
                await admin.start()
                (described,) = await admin.describe_topics([topic])
                found = {one["partition"]: one["leader"] for one in described["partitions"]}
                if found.get(partition, -1) not in (-1, but):
                    return found[partition]
            except Exception:  # noqa: BLE001, S110  whoever was asked is away: ask another
                pass
            finally:
                await admin.close()
            await asyncio.sleep(0.2)
        raise TimeoutError(f"nobody leads {topic}[{partition}]")

    def _wait(self, node: int) -> None:
        child, broker = self._children[node], self._brokers[node]
        wait_ready(
            f"kafka-{node}",
            lambda: kafka_answers(broker.address),
            lambda: child.poll() is None,
            self._folder / f"{node}.log",
        )


@contextmanager
def running_cluster(folder: Path, count: int = 3) -> Generator[Cluster]:
    """A cluster that has started, for as long as the block lasts."""
    cluster = Cluster(folder, cluster_in(install(lambda _part, _state: None), folder, Ports(folder), count))
    try:
        cluster.start()
        with cleared_by(cluster.wake_all):
            yield cluster
    finally:
        cluster.end()
