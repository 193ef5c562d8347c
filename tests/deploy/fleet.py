"""Instances of services, each of the build that a test says, on one broker and one Valkey."""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.processes import end, spawn
from aetheris.cli.embedded.valkey import Valkey, running_valkey
from aetheris.runtime.base.refusal import REFUSED_STATUS
from aetheris.sdk.client import Client
from tests.deploy.secured_brokers import signing
from tests.testkit import external_tools
from tests.testkit.external_server import ExternalServer, running_outside, until
from tests.testkit.group_members import sharing
from tests.testkit.services import SERVICES, asked, module_of, withheld_from
from tests.testkit.system import REPOSITORY, System
from tests.testkit.tokens import headers_of, token_of, write_tokens

PATIENCE_S = 120.0
_LOOK_EVERY_S = 0.2
TENANT = "n"
TOOLS = "counted_tools"
"""The tools of `external_tools`, as a module that every build loads from the same file."""

GROUPS = {service: f"aetheris.{service}" for service in SERVICES if service != "gateway"}
"""Of those that have partitions."""


@dataclass(frozen=True)
class Build:
    """What Python starts a service of it by, and where it finds more modules."""

    run: Sequence[str]
    path: Sequence[str] = ()
    more: Sequence[str] = ()
    """Arguments behind the service's module."""


THIS = Build((sys.executable, "-m"))
FOLLOWING = Build((sys.executable, "-m", "tests.deploy.next_version"), (str(REPOSITORY),))
FOLLOWING_RULES = Build(FOLLOWING.run, FOLLOWING.path, ("rules",))
"""The next version, under rules of its own."""


@dataclass
class Fleet:
    """Instances of services, as (service, number); an instance keeps its name whatever build it is of."""

    folder: Path
    settings: Mapping[str, str]
    own: Mapping[str, Mapping[str, str]]
    """By service: what it alone is told."""
    ports: Ports
    kafka: str
    external: ExternalServer
    running: dict[tuple[str, int], subprocess.Popen[bytes]] = field(
        default_factory=dict[tuple[str, int], "subprocess.Popen[bytes]"]
    )
    _starts: dict[tuple[str, int], Callable[[], "subprocess.Popen[bytes]"]] = field(
        default_factory=dict[tuple[str, int], Callable[[], "subprocess.Popen[bytes]"]]
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, service: str, number: int, build: Build = THIS, *, wait: bool = True) -> None:
        """Start one, and return once it is ready; or at once."""
        name = f"{service}-{number}"
        own = {
            "AETHERIS_WORKER_ID": name,
            "AETHERIS_HEALTH_PORT": str(self.ports.get(f"{name}-health")),
            "AETHERIS_HTTP_PORT": str(self.ports.get(f"{name}-http")),
            "PYTHONPATH": os.pathsep.join([str(self.folder / "tools"), *build.path]),
        }
        env = os.environ | dict(self.settings) | withheld_from(service) | dict(self.own.get(service, {})) | own
        argv = [*build.run, module_of(service), *build.more]
        with self._lock:
            self._starts[service, number] = partial(spawn, argv, log=self.folder / f"{name}.log", env=env)
            self.running[service, number] = self._starts[service, number]()
        if wait:
            self.wait_ready(service, number)

    def supervise(self, until_set: threading.Event) -> None:
        """Start again who has crashed, as a cluster does; who refuses to run stays ended."""
        while not until_set.wait(_LOOK_EVERY_S):
            with self._lock:
                for place, child in self.running.items():
                    if child.poll() not in (None, 0, REFUSED_STATUS):
                        self.running[place] = self._starts[place]()

    def wait_ready(self, service: str, number: int) -> None:
        """Return once it is; shows its log where it is not."""
        name = f"{service}-{number}"
        port = self.ports.get(f"{name}-health")
        try:
            until(lambda: asked(port, "/readyz")[0] == 200, PATIENCE_S)
        except TimeoutError:
            raise AssertionError((name, asked(port, "/readyz"), self.log_of(service, number))) from None

    def wait_shared(self, service: str, by: int) -> None:
        """Return once so many instances of it have shared its partitions out; a gateway has none."""
        if service in GROUPS:
            until(lambda: asyncio.run(sharing(self.kafka, GROUPS[service])) == by, PATIENCE_S)

    def log_of(self, service: str, number: int) -> str:
        """The end of what it has logged."""
        return (self.folder / f"{service}-{number}.log").read_text()[-3000:]

    def stop(self, service: str, number: int) -> None:
        """SIGTERM, as a rollout sends it; it drains."""
        child = self._taken(service, number)
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0

    def kill(self, service: str, number: int) -> None:
        """kill -9."""
        child = self._taken(service, number)
        child.kill()
        child.wait()

    def _taken(self, service: str, number: int) -> "subprocess.Popen[bytes]":
        with self._lock:
            return self.running.pop((service, number))

    @contextmanager
    def api(self, gateway: int) -> Generator[System]:
        """The system, as one of its gateways shows it."""
        url = f"http://127.0.0.1:{self.ports.get(f'gateway-{gateway}-http')}/api"
        with httpx.Client(base_url=url, headers=headers_of(TENANT), timeout=20, trust_env=False) as api:
            yield System(self.folder, api)

    def client(self) -> Client:
        """Of the gateways that run, in turn."""
        return Client("http://127.0.0.1:1", token_of(TENANT), timeout_s=60, transport=_OfGateways(self))


class _OfGateways(httpx.BaseTransport):
    """Each request to the next of a fleet's gateways, as a load balancer would."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._inner, self._turns = fleet, httpx.HTTPTransport(), itertools.count()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        running = [number for service, number in tuple(self._fleet.running) if service == "gateway"]
        if not running:
            raise httpx.ConnectError("no gateway runs")
        number = running[next(self._turns) % len(running)]
        request.url = request.url.copy_with(port=self._fleet.ports.get(f"gateway-{number}-http"))
        request.headers["host"] = request.url.netloc.decode()
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


@contextmanager
def running_fleet(folder: Path, *, rooted: bool = False) -> Generator[Fleet]:
    """Broker, Valkey and the external server; no service yet. `rooted`: those that it starts sign their records."""
    broker = broker_in(install(lambda _part, _message: None), folder, Ports(folder / "broker"))
    valkey, ports = Valkey(folder / "valkey"), Ports(folder)
    write_tokens(folder, {TENANT: "default"})
    (folder / "tools").mkdir()
    shutil.copyfile(external_tools.__file__, folder / "tools" / f"{TOOLS}.py")
    with (
        running_broker(broker, folder / "kafka.log"),
        running_valkey(valkey, folder / "valkey.log"),
        running_outside(folder / "outside") as external,
    ):
        settings = external.env | {
            "AETHERIS_KAFKA": broker.address,
            "AETHERIS_REDIS": valkey.url,
            "AETHERIS_DATA": str(folder),
            "AETHERIS_DEV": "true",
            "AETHERIS_TOOLS": TOOLS,
            "AETHERIS_VERIFIER_URL": f"http://127.0.0.1:{ports.get('verifier-1-http')}",
        }
        own = signing(folder / "keys" / "records") if rooted else {}
        fleet = Fleet(folder, settings, own, ports, broker.address, external)
        stop = threading.Event()
        supervisor = threading.Thread(target=fleet.supervise, args=(stop,))
        supervisor.start()
        try:
            yield fleet
        finally:
            stop.set()
            supervisor.join()
            for child in fleet.running.values():
                end(child, 1.0)
