"""The system that a chaos run hurts: started on a folder of its own, with what the faults need built in."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from aetheris.cli import local
from aetheris.cli.chaos.schedule import EXECUTORS, LEASE_TTL_S, SESSION_S
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.errors import NotRunningError
from aetheris.cli.embedded.jars import Progress
from aetheris.cli.embedded.plan import Part, PartState, Plan, State
from aetheris.cli.embedded.services import Service, with_counts
from aetheris.sdk.client import Client

DISK_BYTES = 192 * 1024 * 1024
"""Room for the broker's log, where it has a disk of its own."""

_FAKETIME = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")


@dataclass(frozen=True)
class System:
    """What runs on the data folder; `left_out` says which faults this machine can't make, and why."""

    data: Path
    client: Client
    has_clocks: bool
    has_disk: bool

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

    def template(self) -> Part:
        """How an executor is started."""
        return next(part for part in Plan.load(self.data).parts if part.name == "executor-0")

    def ready(self) -> bool:
        """Whether every part says that it is."""
        return lifecycle.status(self.data).ready

    def clock(self, part: str) -> Path:
        """The file that says how far off a service's clock is."""
        return _clock_of(self.data, part.rpartition("-")[0])

    @property
    def broker_folder(self) -> Path:
        """What the broker's disk holds."""
        return self.data / "kafka"


@contextmanager
def running(data: Path, env: Mapping[str, str], progress: Progress) -> Generator[System]:
    """Everything up, two executors, and down again at the end."""
    with _environment({**_SETTINGS, **env}), _broker_disk(data) as has_disk:
        local.ensure_token(data)
        library = _faketime()
        services = with_counts({"executor": EXECUTORS})
        if library is not None:
            services = tuple(_with_clock(service, data, library) for service in services)
        lifecycle.up(data, services=services, progress=progress)
        try:
            gateway = local.target(data)
            with Client(gateway.url, gateway.token, transport=httpx.HTTPTransport()) as client:  # past any proxy
                yield System(data, client, library is not None, has_disk)
        finally:
            with suppress(NotRunningError):
                lifecycle.down(data)


_SETTINGS = {
    "AETHERIS_TOOLS": "aetheris.cli.chaos.tools",
    "AETHERIS_LEASE_TTL_S": str(LEASE_TTL_S),
    "AETHERIS_SESSION_TIMEOUT_S": str(SESSION_S),
    "AETHERIS_MAX_TRIES": "100",
}


def _with_clock(service: Service, data: Path, library: Path) -> Service:
    """The service behind libfaketime, which reads its offset from a file; the monotonic clock stays as it is."""
    clock = _clock_of(data, service.name)
    clock.parent.mkdir(parents=True, exist_ok=True)
    clock.write_text("+0\n")
    wrapped = (
        shutil.which("env") or "/usr/bin/env",
        f"LD_PRELOAD={library}",
        f"FAKETIME_TIMESTAMP_FILE={clock}",
        "FAKETIME_CACHE_DURATION=1",
        "DONT_FAKE_MONOTONIC=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        *service.argv,
    )
    return replace(service, argv=wrapped)


def _clock_of(data: Path, service: str) -> Path:
    return data / "clocks" / service


def _faketime() -> Path | None:
    """libfaketime, where it is installed."""
    if sys.platform != "linux":
        return None
    return next((path for pattern in _FAKETIME for path in Path("/").glob(pattern[1:])), None)


@contextmanager
def _broker_disk(data: Path) -> Generator[bool]:
    """A small disk for the broker's folder; whether there is one: only root may mount."""
    folder = data / "kafka"
    folder.mkdir(parents=True, exist_ok=True)
    options = ("-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(folder))
    mounted = os.geteuid() == 0 and sys.platform == "linux" and _succeeds("mount", *options)
    try:
        yield mounted
    finally:
        if mounted:
            _succeeds("umount", "-l", str(folder))


def _succeeds(command: str, *arguments: str) -> bool:
    path = shutil.which(command)
    return path is not None and subprocess.run([path, *arguments], capture_output=True, check=False).returncode == 0


@contextmanager
def _environment(env: Mapping[str, str]) -> Generator[None]:
    """Ours alone: the caller's AETHERIS_ variables name servers of his."""
    former = {name: value for name, value in os.environ.items() if name.startswith("AETHERIS_") or name in env}
    for name in former:
        del os.environ[name]
    os.environ.update(env)
    try:
        yield
    finally:
        for name in env:
            os.environ.pop(name, None)
        os.environ.update(former)
