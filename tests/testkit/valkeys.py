"""Several Valkey processes: a master with a replica and Sentinels, or a cluster; killed, frozen and moved by tests."""

import os
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import redis
from redis.exceptions import RedisError, ResponseError

from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import spawn
from aetheris.cli.embedded.valkey import server_binary
from tests.testkit.external_server import until

PATIENCE_S = 60.0
MASTER = "shop"
DOWN_AFTER_MS = 1500
SLOTS = 16384


@dataclass
class Server:
    """One process of valkey-server on a port of its own; what it has lies in its folder."""

    folder: Path
    port: int
    options: Sequence[str]
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Run it, also again after a kill."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = spawn([str(server_binary()), *self.options], log=self.folder / "valkey.log")
        until(self.answers, PATIENCE_S)

    def answers(self) -> bool:
        """Whether it takes commands, also where it says no to some."""
        try:
            with self.client() as client:
                return bool(client.ping())
        except RedisError:
            return False

    def client(self) -> redis.Redis:
        """Another's client, to look into it."""
        return redis.Redis(port=self.port, socket_timeout=5)

    def ask(self, *command: str | int | bytes) -> Any:
        """What it replies to a command."""
        with self.client() as client:
            return cast("Any", client).execute_command(*command)

    def signal(self, number: signal.Signals) -> None:
        """To its process alone."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """kill -9, and return once it has ended."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def end(self) -> None:
        """At the end of a test, whatever it is."""
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()


def server(folder: Path, taken: set[int], *more: str) -> Server:
    """One that keeps its log and evicts nothing."""
    port = free_port(taken)
    taken.add(port)
    common = ("--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--appendonly", "yes")
    return Server(folder, port, ("--port", str(port), *common, *more))


@dataclass
class Replicated:
    """A master, its replica, and three Sentinels that watch them."""

    servers: list[Server]
    sentinels: list[Server]

    @property
    def url(self) -> str:
        """As services are given it."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{MASTER}"

    def master(self) -> Server:
        """Who is it now, by the word of the server itself and of a Sentinel."""
        found: list[Server] = []

        def settled() -> bool:
            _, port = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
            named = next(one for one in self.servers if one.port == int(port))
            if named.answers():
                with named.client() as client:
                    if client.info("replication")["role"] == "master":
                        found.append(named)
            return bool(found)

        until(settled, PATIENCE_S)
        return found[0]

    def replica(self) -> Server:
        """The other one."""
        master = self.master()
        return next(one for one in self.servers if one is not master)

    def wait_in_step(self) -> None:
        """Return once the replica is connected and has what the master has."""

        def in_step() -> bool:
            with self.replica().client() as client:
                found = client.info("replication")
            return found["role"] == "slave" and found["master_link_status"] == "up"

        until(in_step, PATIENCE_S)

    def cut_off_replica(self) -> Server:
        """The replica, which gets nothing more from the master, and lives."""
        replica = self.replica()
        with replica.client() as client:
            client.config_set("primaryuser", "nobody")
            client.config_set("primaryauth", "nothing")
        with self.master().client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")

        def cut_off() -> bool:
            with replica.client() as client:
                return client.info("replication")["master_link_status"] == "down"

        until(cut_off, PATIENCE_S)
        return replica

    def wait_failed_over(self, before: Server) -> Server:
        """Who is the master, once it is another one."""
        until(lambda: self.master() is not before, PATIENCE_S)
        return self.master()


@contextmanager
def replicated(folder: Path) -> Generator[Replicated]:
    """Up, in step and watched; killed at the end."""
    taken: set[int] = set()
    first = server(folder / "a", taken)
    second = server(folder / "b", taken, "--replicaof", f"127.0.0.1 {first.port}")
    sentinels: list[Server] = []
    for number in range(3):
        own, port = folder / f"sentinel-{number}", free_port(taken)
        taken.add(port)
        own.mkdir(parents=True)
        (own / "sentinel.conf").write_text(
            f"port {port}\nbind 127.0.0.1\ndir {own}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {first.port} 2\n"
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {MASTER} 5000\n"
        )
        sentinels.append(Server(own, port, (str(own / "sentinel.conf"), "--sentinel")))
    group = Replicated([first, second], sentinels)
    try:
        for one in (*group.servers, *group.sentinels):
            one.start()
        group.wait_in_step()
        until(lambda: all(_knows_everybody(one) for one in sentinels), PATIENCE_S)
        yield group
    finally:
        for one in (*group.servers, *group.sentinels):
            one.end()


def _knows_everybody(sentinel: Server) -> bool:
    found = sentinel.ask("SENTINEL MASTER", MASTER)
    return (found["num-slaves"], found["num-other-sentinels"]) == (1, 2)


@dataclass
class ValkeyCluster:
    """Masters, each with a replica unless it was told to have none."""

    servers: list[Server]
    names: dict[int, str] = field(default_factory=dict[int, str])
    """The node id of each port."""

    @property
    def url(self) -> str:
        """As services are given it: two of its nodes."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{one.port}" for one in self.servers[:2])

    def owner(self, slot: int) -> Server:
        """The master that has a slot, by the word of the first node that answers."""
        asked = next(one for one in self.servers if one.answers())
        for low, high, first, *_ in asked.ask("CLUSTER", "SLOTS"):
            if low <= slot <= high:
                return next(one for one in self.servers if one.port == first[1])
        raise LookupError(slot)

    def move(self, slot: int, to: Server, keys_at_once: int = 10) -> None:
        """Move a slot, key by key, as `valkey-cli --cluster reshard` does."""
        source = self.owner(slot)
        with source.client() as giving, to.client() as taking:
            taking.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.names[source.port])
            giving.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.names[to.port])
            while keys := giving.execute_command("CLUSTER", "GETKEYSINSLOT", slot, keys_at_once):
                giving.execute_command("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
            taking.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.names[to.port])
            giving.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.names[to.port])

    def healthy(self, but: Sequence[Server] = ()) -> bool:
        """Whether every node (but these) says that all slots are served."""
        return all(self._says(one, b"cluster_state:ok") for one in self.servers if one not in but)

    @staticmethod
    def _says(one: Server, line: bytes) -> bool:
        with redis.Redis(port=one.port, socket_timeout=5) as client:
            client.set_response_callback("CLUSTER INFO", lambda raw, **_: raw)
            found = client.execute_command("CLUSTER INFO")
        return line in (found if isinstance(found, bytes) else str(found).encode())


@contextmanager
def cluster(folder: Path, masters: int = 3, replicas: int = 1) -> Generator[ValkeyCluster]:
    """Up, with all slots served; killed at the end."""
    taken: set[int] = set()
    servers: list[Server] = []
    for number in range(masters * (1 + replicas)):
        bus = free_port(taken)
        taken.add(bus)
        options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "2000")
        servers.append(server(folder / str(number), taken, *options))
    found = ValkeyCluster(servers)
    try:
        for one in servers:
            one.start()
            with one.client() as client:
                found.names[one.port] = _text(client.execute_command("CLUSTER", "MYID"))
        _joined(found, masters)
        until(found.healthy, PATIENCE_S)
        yield found
    finally:
        for one in servers:
            one.end()


def _joined(found: ValkeyCluster, masters: int) -> None:
    first = found.servers[0]
    for number, one in enumerate(found.servers[:masters]):
        low, high = number * SLOTS // masters, (number + 1) * SLOTS // masters - 1
        with one.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", low, high)
    for one in found.servers[1:]:
        bus = one.options[one.options.index("--cluster-port") + 1]
        with first.client() as client:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", one.port, bus)
    until(
        lambda: all(found._says(one, f"cluster_known_nodes:{len(found.servers)}".encode()) for one in found.servers),
        PATIENCE_S,
    )
    for number, one in enumerate(found.servers[masters:]):
        followed = found.servers[number % masters]
        _follow(one, found.names[followed.port])


def _follow(replica: Server, name: str) -> None:
    def followed() -> bool:
        try:
            with replica.client() as client:
                client.execute_command("CLUSTER", "REPLICATE", name)
        except ResponseError:
            return False  # it has not heard of that node yet
        return True

    def in_step() -> bool:
        with replica.client() as client:
            return client.info("replication").get("master_link_status") == "up"

    until(followed, PATIENCE_S)
    until(in_step, PATIENCE_S)


def _text(raw: object) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw)
