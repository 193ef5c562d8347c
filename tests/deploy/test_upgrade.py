"""Every service is replaced by its next version while jobs run: both work side by side, and nothing happens twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.processes import end, spawn
from aetheris.cli.embedded.valkey import Valkey, running_valkey
from tests.deploy.next_version import FIELD, TYPE
from tests.testkit.external_server import ExternalServer, running_outside, until
from tests.testkit.services import asked, module_of, withheld_from
from tests.testkit.system import REPOSITORY, System
from tests.testkit.tokens import headers_of, write_tokens

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(900)]

PATIENCE_S = 120.0
BATCH = 8


@dataclass
class Fleet:
    """Instances of services, as (service, number)."""

    folder: Path
    settings: Mapping[str, str]
    ports: Ports
    running: dict[tuple[str, int], subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, service: str, number: int, *, following: bool, rules: bool = False) -> None:
        """Start one, of this version or of the following one (under rules of its own), and return once it is ready."""
        name = f"{service}-{number}"
        own = {
            "AETHERIS_WORKER_ID": name,
            "AETHERIS_HEALTH_PORT": str(self.ports.get(f"{name}-health")),
            "AETHERIS_HTTP_PORT": str(self.ports.get(f"{name}-http")),
        }
        module = ["tests.deploy.next_version", module_of(service)] if following else [module_of(service)]
        module += ["rules"] if rules else []
        env = os.environ | dict(self.settings) | withheld_from(service) | own
        log = self.folder / f"{name}.log"
        self.running[service, number] = spawn([sys.executable, "-m", *module], log=log, env=env)
        try:
            until(lambda: asked(self.ports.get(f"{name}-health"), "/readyz")[0] == 200, PATIENCE_S)
        except TimeoutError:
            raise AssertionError(log.read_text()[-2000:]) from None

    def stop(self, service: str, number: int) -> None:
        """SIGTERM, as a rollout sends it; it drains."""
        child = self.running.pop((service, number))
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0

    def kill(self, service: str, number: int) -> None:
        """kill -9."""
        child = self.running.pop((service, number))
        child.kill()
        child.wait()

    @contextmanager
    def api(self, gateway: int) -> Generator[System]:
        """The system, as one of its gateways shows it."""
        url = f"http://127.0.0.1:{self.ports.get(f'gateway-{gateway}-http')}/api"
        headers = headers_of("n")
        with httpx.Client(base_url=url, headers=headers, timeout=20, trust_env=False) as api:
            yield System(self.folder, api)


@pytest.fixture
def external(tmp_path: Path) -> Generator[tuple[Fleet, ExternalServer]]:
    broker = broker_in(install(lambda _part, _message: None), tmp_path, Ports(tmp_path / "broker"))
    valkey, ports = Valkey(tmp_path / "valkey"), Ports(tmp_path)
    write_tokens(tmp_path, {"n": "default"})
    with (
        running_broker(broker, tmp_path / "kafka.log"),
        running_valkey(valkey, tmp_path / "valkey.log"),
        running_outside(tmp_path / "outside") as external,
    ):
        settings = external.env | {
            "AETHERIS_KAFKA": broker.address,
            "AETHERIS_REDIS": valkey.url,
            "AETHERIS_DATA": str(tmp_path),
            "AETHERIS_DEV": "true",
            "AETHERIS_TOOLS": "tests.testkit.external_tools",
            "AETHERIS_VERIFIER_URL": f"http://127.0.0.1:{ports.get('verifier-1-http')}",
            "PYTHONPATH": str(REPOSITORY),
        }
        fleet = Fleet(tmp_path, settings, ports)
        try:
            yield fleet, external
        finally:
            for child in fleet.running.values():
                end(child, 1.0)


def chain(tag: str, hold: str = "") -> list[dict[str, Any]]:
    """Three steps, the first of which may be held back."""
    return [
        {"id": "a", "tool": "poke_probeable", "args": {"tag": f"{tag}-a", "hold": hold}},
        {"id": "b", "tool": "poke_idempotent", "args": {"tag": f"{tag}-b"}, "depends_on": ["a"]},
        {"id": "c", "tool": "poke_probeable", "args": {"tag": f"{tag}-c"}, "depends_on": ["b"]},
    ]


def test_each_service_is_replaced_while_jobs_run(external: tuple[Fleet, ExternalServer]) -> None:
    fleet, external_system = external
    jobs: dict[str, str] = {}

    def submit(system: System, stage: str, hold: str = "") -> None:
        for number in range(1 if hold else BATCH):
            tag = f"{stage}-{number}"
            jobs[tag] = system.submit(*chain(tag, hold))

    def replace(system: System, service: str) -> None:
        """A call is in flight all the while; the executor's, when it is killed."""
        external_system.hold(service)
        submit(system, f"{service}-held", hold=service)
        external_system.wait_for(1, f"{service}-held-0-a", PATIENCE_S)
        submit(system, f"{service}-before")
        fleet.start(service, 1, following=True)
        submit(system, f"{service}-beside")
        system.wait_ended([job for tag, job in jobs.items() if "-held" not in tag], PATIENCE_S)
        submit(system, f"{service}-after")
        if service == "tool_executor":
            fleet.kill(service, 0)
            fleet.start(service, 0, following=True)
        else:
            fleet.stop(service, 0)
        (external_system.folder / service).unlink()
        if service != "gateway":
            system.wait_ended(jobs.values(), PATIENCE_S)

    for service in ("planner", "ledger", "tool_executor", "prober", "verifier", "gateway"):
        fleet.start(service, 0, following=False)
    with fleet.api(0) as old, fleet.api(1) as new:
        for service in ("planner", "ledger", "tool_executor", "prober", "verifier", "gateway"):
            replace(old, service)
        new.wait_ended(jobs.values(), PATIENCE_S)
        fleet.start("planner", 2, following=False)  # the way back is open, too
        fleet.stop("planner", 1)
        submit(new, "back")
        new.wait_ended(jobs.values(), PATIENCE_S)

        written: dict[str, set[bool]] = {}
        for tag, job in jobs.items():
            assert new.job(job)["status"] == "completed", tag
            assert [external_system.count(f"{tag}-{node}") for node in "abc"] == [1, 1, 1], tag
            report = new.report(job)
            assert report["ok"], (tag, report["violations"])
            for event in new.events(job):
                written.setdefault(event["type"], set()).add(FIELD in event["data"])
    assert TYPE in written
    for kind in ("plan_generated", "tool_invocation_started"):
        assert written[kind] == {True, False}, "both versions wrote it"


def test_a_job_under_later_rules_waits_for_each_service_and_runs_once(external: tuple[Fleet, ExternalServer]) -> None:
    """What this version has of it is its creation, which it can't read; it takes part in nothing that follows."""
    fleet, external_system = external
    for service in ("ledger", "tool_executor", "prober", "verifier", "gateway"):
        fleet.start(service, 0, following=False)
    fleet.start("planner", 1, following=True, rules=True)
    with fleet.api(0) as system:
        job = system.submit(*chain("later"))
        for service in ("ledger", "tool_executor"):
            assert external_system.count("later-a") == 0, service
            fleet.start(service, 1, following=True, rules=True)
            fleet.stop(service, 0)
        until(lambda: external_system.count("later-c") == 1, PATIENCE_S)
    fleet.start("gateway", 1, following=True, rules=True)
    with fleet.api(1) as system:
        system.wait_ended([job], PATIENCE_S)
        assert not {"job_sealed", "violation_found"} & set(system.types(job)), "the verifier has no say in it"
        fleet.start("verifier", 1, following=True, rules=True)
        fleet.stop("verifier", 0)
        system.wait_sealed(job)
        assert "violation_found" not in system.types(job)
        assert system.job(job)["status"] == "completed"
        assert [external_system.count(f"later-{node}") for node in "abc"] == [1, 1, 1]
