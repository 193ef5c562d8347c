"""The system that a chaos run hurts: started on a folder of its own, with what the faults need built in."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import httpx

from aetheris.cli import local, token_files
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.environment import alone
from aetheris.cli.embedded.errors import NotRunningError
from aetheris.cli.embedded.jars import Progress
from aetheris.cli.embedded.kafka import Tuning
from aetheris.cli.embedded.plan import PartState, Plan, ProcessSpec, State
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.services import Service, with_counts
from aetheris.cli.embedded.valkey import Valkey
from aetheris.rigs.chaos import model
from aetheris.rigs.chaos.forwarder import Address
from aetheris.rigs.chaos.proxy import Proxy, running_proxy
from aetheris.rigs.chaos.schedule import EXECUTORS, KAFKA, LEASE_TTL_S, OUTSIDE, REDIS, SESSION_S
from aetheris.rigs.chaos.tools import POLICY
from aetheris.sdk.client import Client

MODELS = "aetheris.models"
"""What asks models; it comes with `aetheris-cli[models]`."""

DISK_BYTES = 192 * 1024 * 1024
"""Room for the broker's log, where it has a disk of its own."""

_FAKETIME = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")


@dataclass(frozen=True)
class ChaosSystem:
    """What runs on the data folder; `left_out` says which faults this machine can't make, and why."""

    data: Path
    client: Client
    proxy: Proxy
    has_clocks: bool
    has_disk: bool
    has_models: bool
    approver: Client
    brokers: tuple[str, ...] = (KAFKA,)
    """Their names as parts, and as routes of the forwarder."""

    def state(self) -> State:
        """As the supervisor last wrote it.

        Raises:
            NotRunningError.
        """
        state = State.load(self.data)
        if state is None:
            raise NotRunningError(f"Nothing runs on {self.data}", "Run it again.")
        return state

    def part(self, name: str) -> PartState:
        """A process of the supervisor's."""
        return self.state().parts[name]

    def template(self) -> ProcessSpec:
        """How an executor is started."""
        return next(part for part in Plan.load(self.data).parts if part.name == "executor-0")

    def unready(self) -> list[str]:
        """The parts that don't say that they are ready."""
        return [name for name, part in lifecycle.status(self.data).parts.items() if not part.ready]

    def clock(self, part: str) -> Path:
        """The file that says how far off a service's clock is."""
        return _clock_of(self.data, part.rpartition("-")[0])

    def routes(self, target: str) -> tuple[str, ...]:
        """The forwarder's routes of what a schedule calls outside, kafka or redis."""
        return self.brokers if target == KAFKA else (target,)

    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each broker, in the order of their names, past the forwarder."""
        found = [address.rpartition(":") for address in self.state().kafka.split(",")]
        return [(host, int(port)) for host, _, port in found]

    @property
    def broker_folder(self) -> Path:
        """What the broker's disk holds."""
        return self.data / "kafka"


@contextmanager
def running(data: Path, outside_port: int, progress: Progress, brokers: int = 1) -> Generator[ChaosSystem]:
    """Everything up, two executors, and down again at the end.

    What the services reach lies behind a forwarder; the supervisor, and who counts, go past it.
    """
    ports = Ports(data)
    names = (KAFKA,) if brokers == 1 else tuple(f"{KAFKA}-{node}" for node in range(1, brokers + 1))
    routes: dict[str, tuple[Address, Address]] = {
        OUTSIDE: (0, outside_port),
        **{name: (0, ports.get(f"{name}-forwarded")) for name in names},
        REDIS: (_near_socket(data), str(Valkey(data / "valkey").socket)),
    }
    policy = data / "policy.toml"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(POLICY)
    with (
        _broker_disk(data, brokers) as has_disk,
        running_proxy(routes) as proxy,
        alone({**_SETTINGS, "AETHERIS_POLICY": str(policy), **_models(data, proxy)}),
    ):
        token_files.ensure_tokens(data)
        library = _faketime()
        services = tuple(_through(proxy, names, service) for service in with_counts({"executor": EXECUTORS}))
        if library is not None:
            services = tuple(_with_clock(service, data, library) for service in services)
        tunings = [Tuning(properties=_listeners(ports, name, proxy.addresses[name])) for name in names]
        lifecycle.up(
            data,
            services=services,
            progress=progress,
            brokers=brokers,
            tuning=lambda node: tunings[node - 1],
            guarded=False,
        )
        try:
            gateway = local.target(data)
            with (
                Client(gateway.url, gateway.token, transport=httpx.HTTPTransport()) as client,  # past any proxy
                Client(
                    gateway.url, token_files.saved(data, token_files.APPROVER), transport=httpx.HTTPTransport()
                ) as approver,
            ):
                has_models = find_spec(MODELS) is not None
                yield ChaosSystem(data, client, proxy, library is not None, has_disk, has_models, approver, names)
        finally:
            with suppress(NotRunningError):
                lifecycle.down(data)


_SETTINGS = {
    "AETHERIS_TOOLS": "aetheris.rigs.chaos.tools",
    "AETHERIS_LEASE_TTL_S": str(LEASE_TTL_S),
    "AETHERIS_SESSION_TIMEOUT_S": str(SESSION_S),
    "AETHERIS_MAX_TRIES": "100",
}


def _models(data: Path, proxy: Proxy) -> dict[str, str]:
    """The one model that there is, behind the forwarder as well; none where nothing is installed that could ask it."""
    if find_spec(MODELS) is None:
        return {}
    given = data / "models.toml"
    url = f"http://127.0.0.1:{proxy.addresses[OUTSIDE]}/v1"
    given.write_text(f'[[models]]\nname = "{model.NAME}"\nmodel = "openai-chat:{model.NAME}"\nbase_url = "{url}"\n')
    return {"AETHERIS_MODELS": str(given)}


def _listeners(ports: Ports, name: str, near: Address) -> dict[str, str]:
    """The broker's second port: who comes by it is told to stay behind the forwarder."""
    direct, controller = f"127.0.0.1:{ports.get(name)}", f"127.0.0.1:{ports.get(f'{name}-controller')}"
    far = f"127.0.0.1:{ports.get(f'{name}-forwarded')}"
    return {
        "listeners": f"PLAINTEXT://{direct},FORWARDED://{far},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{direct},FORWARDED://127.0.0.1:{near}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FORWARDED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }


def _near_socket(data: Path) -> str:
    near = Valkey(data / "forwarder")
    near.prepare()
    return str(near.socket)


def _through(proxy: Proxy, brokers: Sequence[str], service: Service) -> Service:
    """The service, to which the forwarder's addresses are the servers'."""
    near = proxy.addresses
    return _given(
        service,
        f"AETHERIS_KAFKA={','.join(f'127.0.0.1:{near[name]}' for name in brokers)}",
        f"AETHERIS_REDIS=unix://{near[REDIS]}",
        f"OUTSIDE_URL=http://127.0.0.1:{near[OUTSIDE]}",
    )


def _given(service: Service, *variables: str) -> Service:
    return replace(service, argv=(shutil.which("env") or "/usr/bin/env", *variables, *service.argv))


def _with_clock(service: Service, data: Path, library: Path) -> Service:
    """The service behind libfaketime, which reads its offset from a file; the monotonic clock stays as it is."""
    clock = _clock_of(data, service.name)
    clock.parent.mkdir(parents=True, exist_ok=True)
    clock.write_text("+0\n")
    return _given(
        service,
        f"LD_PRELOAD={library}",
        f"FAKETIME_TIMESTAMP_FILE={clock}",
        "FAKETIME_CACHE_DURATION=1",
        "DONT_FAKE_MONOTONIC=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
    )


def _clock_of(data: Path, service: str) -> Path:
    return data / "clocks" / service


def _faketime() -> Path | None:
    """libfaketime, where it is installed."""
    if sys.platform != "linux":
        return None
    return next((path for pattern in _FAKETIME for path in Path("/").glob(pattern[1:])), None)


@contextmanager
def _broker_disk(data: Path, brokers: int) -> Generator[bool]:
    """A small disk for the brokers' folders; whether there is one: only root may mount."""
    folder = data / "kafka"
    folder.mkdir(parents=True, exist_ok=True)
    options = ("-t", "tmpfs", "-o", f"size={DISK_BYTES * brokers},mode=700", "tmpfs", str(folder))
    mounted = os.geteuid() == 0 and sys.platform == "linux" and _succeeds("mount", *options)
    try:
        yield mounted
    finally:
        if mounted:
            release_disk(data)


def release_disk(data: Path) -> None:
    """Take the brokers' small disk away, if there is one."""
    folder = data / "kafka"
    if folder.is_mount():
        _succeeds("umount", "-l", str(folder))


def _succeeds(command: str, *arguments: str) -> bool:
    path = shutil.which(command)
    return path is not None and subprocess.run([path, *arguments], capture_output=True, check=False).returncode == 0
