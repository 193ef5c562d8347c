"""What is done to a cluster of three brokers while jobs run. A fault is over, not its consequences, when it returns."""

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aetheris.protocol.base.topics import Topic
from tests.deploy.kafka_tools import command
from tests.testkit.brokers import reconfigure
from tests.testkit.cluster import Cluster, running_cluster
from tests.testkit.cluster_rig import PARTITIONS, ClusterLoad, tuning
from tests.testkit.external_server import until

EVENTS = str(Topic.JOBS_EVENTS)
MEANWHILE = 20
"""Jobs that end while a fault lasts, where any can."""
HELD_S = 5.0
"""How long nothing can be written, where nothing can."""
SMALL_DISK = 3
"""The broker whose disk can be filled."""
DISK_FULL = "one broker's disk full"
NOT_ROOT = "only root can give a broker a small disk of its own"
_WITHIN_S = 120.0

BrokerFault = Callable[[Cluster, ClusterLoad], None]


@contextmanager
def running_brokers(folder: Path, disk_bytes: int) -> Generator[Cluster]:
    """Three small brokers, one of them on a small disk where we are root."""
    small = folder / "kafka" / str(SMALL_DISK) / "log"
    small.mkdir(parents=True)
    mounted = os.geteuid() == 0
    if mounted:
        options = ["-t", "tmpfs", "-o", f"size={disk_bytes},mode=700", "tmpfs", str(small)]
        subprocess.run(["mount", *options], check=True)
    try:
        with running_cluster(folder, 3, tuning) as cluster:
            yield cluster
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(small)], check=True)


def kafka_tool(name: str, *argv: str) -> str:
    """What one of Kafka's own tools prints, by the last part of its class's name."""
    done = subprocess.run(
        command(f"org.apache.kafka.tools.{name}", *argv), capture_output=True, text=True, check=False, timeout=_WITHIN_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def led_by_others(cluster: Cluster, node: int) -> None:
    """Return once somebody else leads every partition of jobs.events, and another controller is in charge."""
    cluster.controller(but=node)
    for partition in range(PARTITIONS):
        asyncio.run(cluster.leader(EVENTS, partition, but=node))


def _nothing(_cluster: Cluster, load: ClusterLoad) -> None:
    load.wait_ended(MEANWHILE)


def _rolling(cluster: Cluster, _load: ClusterLoad) -> None:
    for node in cluster.nodes:
        cluster.end_one(node)
        cluster.start(node)
        cluster.wait_whole()


def _kill_leader(cluster: Cluster, load: ClusterLoad) -> None:
    _kill(cluster, load, asyncio.run(cluster.leader(EVENTS)))


def _kill_controller(cluster: Cluster, load: ClusterLoad) -> None:
    _kill(cluster, load, cluster.controller())


def _kill(cluster: Cluster, load: ClusterLoad, node: int) -> None:
    cluster.kill(node)
    led_by_others(cluster, node)
    load.wait_ended(MEANWHILE)
    cluster.start(node)


def _stop_leader(cluster: Cluster, load: ClusterLoad) -> None:
    _stop(cluster, load, asyncio.run(cluster.leader(EVENTS)))


def _stop_controller(cluster: Cluster, load: ClusterLoad) -> None:
    _stop(cluster, load, cluster.controller())


def _stop(cluster: Cluster, load: ClusterLoad, node: int) -> None:
    """It wakes when others lead, and takes itself for the leader that it was."""
    cluster.stop(node)
    led_by_others(cluster, node)
    load.wait_ended(MEANWHILE)
    cluster.wake(node)


def _fill_disk(cluster: Cluster, load: ClusterLoad) -> None:
    """The broker ends by itself, and starts again once there is room."""
    filler = cluster.broker(SMALL_DISK).log_folder / "filler"
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    until(lambda: not cluster.lives(SMALL_DISK), _WITHIN_S)
    load.wait_ended(MEANWHILE)
    filler.unlink()
    cluster.start(SMALL_DISK)


def _below_minimum(cluster: Cluster, _load: ClusterLoad) -> None:
    """Three must have a record of jobs.events, and one of them is gone: what is written there is refused."""
    try:
        asyncio.run(reconfigure(cluster.address, EVENTS, {"min.insync.replicas": "3"}))
        cluster.kill(2)
        cluster.wait_out_of_sync(EVENTS, 2)
        time.sleep(HELD_S)
        cluster.start(2)
        cluster.wait_whole()
    finally:
        asyncio.run(reconfigure(cluster.address, EVENTS, {"min.insync.replicas": "2"}))


def _kill_two(cluster: Cluster, _load: ClusterLoad) -> None:
    """Neither is there a controller, nor anybody who takes a record."""
    _kill_all(cluster, 1, 2)


def _kill_three(cluster: Cluster, _load: ClusterLoad) -> None:
    """What two of three acknowledged lies in the page cache of a machine that goes on."""
    _kill_all(cluster, *cluster.nodes)


def _kill_all(cluster: Cluster, *nodes: int) -> None:
    for node in nodes:
        cluster.kill(node)
    time.sleep(HELD_S)
    cluster.start(*nodes)


def _reassign(cluster: Cluster, load: ClusterLoad) -> None:
    """All that lies at one broker goes to a fourth, and back."""
    cluster.join(4)
    before = [part for part in asyncio.run(cluster.partitions()) if not part["topic"].startswith("__")]
    _reassigned(cluster, before, {1: 4})
    load.wait_ended(MEANWHILE)
    _reassigned(cluster, before, {})
    cluster.leave(4)


def _reassigned(cluster: Cluster, parts: Sequence[Mapping[str, Any]], instead: Mapping[int, int]) -> None:
    """Returns once all is where it is to be."""
    wanted = {
        (part["topic"], part["partition"]): [instead.get(node, node) for node in part["replicas"]] for part in parts
    }
    rows = [{"topic": topic, "partition": number, "replicas": at} for (topic, number), at in wanted.items()]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"version": 1, "partitions": rows}, file)
        file.flush()
        argv = ["--bootstrap-server", cluster.address, "--reassignment-json-file", file.name, "--execute"]
        kafka_tool("reassign.ReassignPartitionsCommand", *argv)

    def is_done() -> bool:
        found = {(one["topic"], one["partition"]): one for one in asyncio.run(cluster.partitions())}
        return all(set(found[place]["replicas"]) == set(at) == set(found[place]["isr"]) for place, at in wanted.items())

    until(is_done, _WITHIN_S)


def _empty(cluster: Cluster, load: ClusterLoad) -> None:
    """The same node on an empty disk, before the others took it out of sync."""
    leader = asyncio.run(cluster.leader(EVENTS))
    cluster.kill(leader)
    cluster.empty(leader)
    cluster.start(leader)
    load.wait_ended(MEANWHILE)


BROKER_FAULTS: Mapping[str, BrokerFault] = {
    "none": _nothing,
    "rolling restart": _rolling,
    "leader kill -9": _kill_leader,
    "leader SIGSTOP, SIGCONT": _stop_leader,
    "controller kill -9": _kill_controller,
    "controller SIGSTOP, SIGCONT": _stop_controller,
    DISK_FULL: _fill_disk,
    "below min.insync.replicas and back": _below_minimum,
    "two of three kill -9": _kill_two,
    "all three kill -9": _kill_three,
    "partitions reassigned to a fourth broker and back": _reassign,
    "broker replaced by an empty one": _empty,
}
