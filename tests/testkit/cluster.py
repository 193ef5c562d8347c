"""Three brokers of a test's own, which it may kill, stop and wake, and ask who leads what."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from aetheris.cli.embedded.kafka import STOP_WITHIN_S, USUAL, Broker, Tuning, cluster_in, install, wait_ready
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.rigs.chaos.quorum import controller
from aetheris.runtime.kafka.bootstrap import client_options
from tests.testkit.attempts import cleared_by

PATIENCE_S = 120.0


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

    @property
    def nodes(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(self._brokers)

    def broker(self, node: int) -> Broker:
        """How it is configured."""
        return self._brokers[node]

    def pids(self) -> dict[str, int]:
        """Of those that live."""
        return {f"kafka-{node}": child.pid for node, child in self._children.items() if child.poll() is None}

    def lives(self, node: int) -> bool:
        """Whether its process is there, awake or not."""
        return self._children[node].poll() is None

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

    def end_one(self, node: int) -> None:
        """SIGTERM, as an upgrade does: it hands over what it leads, and is waited for."""
        end(self._children[node], STOP_WITHIN_S)

    def empty(self, node: int) -> None:
        """All that it has on its disk goes; it must not run."""
        folder = self._brokers[node].log_folder
        for kept in folder.iterdir():
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()

    def join(self, node: int) -> None:
        """Start a further broker, which is no controller."""
        like = self._brokers[1]
        port = Ports(self._folder).get(f"kafka-{node}")
        tuned = Tuning(like.tuning.jvm, {**like.tuning.properties, **_broker_only(port)})
        self._brokers[node] = replace(like, folder=like.folder.parent / str(node), port=port, node=node, tuning=tuned)
        self.start(node)

    def leave(self, node: int) -> None:
        """End a broker that joined, for good."""
        self.end_one(node)
        del self._brokers[node]

    def heal(self) -> None:
        """All awake, running, and every replica in sync."""
        self.wake_all()
        gone = [node for node in self.nodes if not self.lives(node)]
        if gone:
            self.start(*gone)
        self.wait_whole()

    def controller(self, *, but: int = 0) -> int:
        """The node of the controller in charge; waits until another one than `but` is."""
        others = [node for node in self.nodes if node != but and self.lives(node)]
        addresses = [("127.0.0.1", self._brokers[node].port) for node in others]
        found: list[int | None] = []

        def known() -> bool:
            found.append(asyncio.run(controller(addresses)))
            return found[-1] not in (None, but)

        self._until(known, "nobody knows the controller")
        return found[-1] or 0

    def wait_whole(self, *but: int) -> None:
        """Until every replica of every partition is in sync, but for those of the named nodes."""
        self._until(lambda: asyncio.run(self._is_whole(set(but))), "not every replica is in sync")

    def wait_out_of_sync(self, topic: str, *nodes: int) -> None:
        """Until no replica of the topic at these nodes is in sync."""

        async def are_out() -> bool:
            return all(not set(nodes) & set(one["isr"]) for one in await self.partitions(topic))

        self._until(lambda: asyncio.run(are_out()), f"{nodes} are in sync")

    def wait_led_by(self, topic: str, node: int) -> None:
        """Until this one leads every partition of the topic; -1 is nobody."""

        async def leads() -> bool:
            return {one["leader"] for one in await self.partitions(topic)} == {node}

        self._until(lambda: asyncio.run(leads()), f"{node} does not lead")

    async def partitions(self, *topics: str) -> list[dict[str, Any]]:
        """Each one's leader, replicas and those in sync, as a broker says; of all topics where none is named."""
        awake = ",".join(broker.address for node, broker in self._brokers.items() if self.lives(node))
        admin = AIOKafkaAdminClient(**client_options(awake or self.address), request_timeout_ms=3000)
        try:
            await admin.start()
            described = await admin.describe_topics(list(topics) or None)
            return [{"topic": one["topic"], **part} for one in described for part in one["partitions"]]
        finally:
            await admin.close()

    async def _is_whole(self, but: set[int]) -> bool:
        parts = await self.partitions()
        return bool(parts) and all(
            set(one["isr"]) >= set(one["replicas"]) - but and one["leader"] in one["isr"] for one in parts
        )

    def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            try:
                if holds():
                    return
            except (KafkaError, OSError, TimeoutError):
                pass  # whoever was asked is away: ask again
            time.sleep(0.2)
        raise TimeoutError(otherwise)

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
def running_cluster(
    folder: Path, count: int = 3, tuning: Callable[[int], Tuning] = lambda _node: USUAL
) -> Generator[Cluster]:
    """A cluster that has started, for as long as the block lasts."""
    cluster = Cluster(folder, cluster_in(install(lambda _part, _state: None), folder, Ports(folder), count, tuning))
    try:
        cluster.start()
        with cleared_by(cluster.wake_all):
            yield cluster
    finally:
        cluster.end()


@contextmanager
def running_cluster_apart(folder: Path, jvm: tuple[str, ...]) -> Generator[Cluster]:
    """Three brokers whose controller is a process of its own, so that it is there when all of them are gone."""
    ports = Ports(folder)
    *alike, last = cluster_in(install(lambda _part, _state: None), folder, ports, 4)
    voters = {last.node: last.controller_port}
    at_controller = f"CONTROLLER://127.0.0.1:{last.controller_port}"
    in_charge = {"process.roles": "controller", "listeners": at_controller, "advertised.listeners": at_controller}
    controller = replace(last, voters=voters, tuning=Tuning(jvm, _OF_THREE | in_charge))
    brokers = [replace(one, voters=voters, tuning=Tuning(jvm, _OF_THREE | _broker_only(one.port))) for one in alike]
    controller.prepare()
    child = spawn(controller.argv(), log=folder / "controller.log")
    cluster = Cluster(folder, brokers)
    try:
        cluster.start()
        with cleared_by(cluster.wake_all):
            yield cluster
    finally:
        cluster.end()
        end(child, 0.0)


_OF_THREE = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.session.timeout.ms": "4000",
}


def _broker_only(port: int) -> dict[str, str]:
    """Properties of one that is no controller."""
    at = f"PLAINTEXT://127.0.0.1:{port}"
    return {"process.roles": "broker", "listeners": at, "advertised.listeners": at}
