"""Services that are led to a copy of their log, on other brokers, run nothing on it: real mirrors, real processes."""

import os
import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.embedded.kafka import STOP_WITHIN_S, Broker, broker_in, install, wait_ready
from aetheris.cli.embedded.plan import Plan, ProcessSpec
from aetheris.cli.embedded.ports import Ports, free_port
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.refusal import REFUSED_STATUS
from tests.integration.test_backup_drill import command, dying_system, moved
from tests.testkit import mirrors
from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer, running_outside
from tests.testkit.rig import TOOLS, poke, wait
from tests.testkit.system import running_system

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(900)]

PATIENCE_S = 180.0
FOLD = ("planner-0", "ledger-0", "executor-0", "verifier-0", "gateway-0")
PARTITIONS = 4


@dataclass(frozen=True)
class Left:
    """A system that has ended, with jobs that are done and one that waits; its brokers still run."""

    data: Path
    external: ExternalServer
    kafka: str
    waits: str
    """The job that is open."""
    tag: str
    """Of its step that is done."""
    services: tuple[ProcessSpec, ...]


@pytest.fixture
def brokers(tmp_path: Path) -> Generator[Callable[[str], Broker]]:
    """Makes a broker of its own, on a folder of this name; ended at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def started(name: str) -> Broker:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        broker = broker_in(install(lambda _part, _message: None), folder, Ports(folder))
        broker.prepare()
        child = spawn(broker.argv(), log=folder / "log")
        running.append(child)
        wait_ready("kafka", lambda: kafka_answers(broker.address), lambda: child.poll() is None, folder / "log")
        return broker

    try:
        yield started
    finally:
        for child in running:
            end(child, STOP_WITHIN_S)


@pytest.fixture
def left(tmp_path: Path, brokers: Callable[[str], Broker]) -> Generator[Left]:
    with running_outside(tmp_path / "outside") as external:
        env = {"AETHERIS_TOOLS": TOOLS, **external.env}
        data = tmp_path / "data"
        with dying_system(data, env) as system:
            done = system.completed(poke("a", fresh("done")), poke("b", fresh("done"), "a"))
            system.wait_sealed(done)
            tag = fresh("waits")
            waits = system.submit(poke("a", tag), wait("w", "go", "a"), poke("b", f"{tag}-b", "w"))
            system.wait_status(waits, "waiting", PATIENCE_S)
            services = tuple(part for part in Plan.load(data).parts if part.name in FOLD)
            assert CliRunner().invoke(app, ["down", "--data", str(data)]).exit_code == 0
        yield Left(data, external, brokers("data").address, waits, tag, services)


def copied(source: str, target: str, _folder: Path) -> None:
    mirrors.copied(source, target, PARTITIONS)


@pytest.mark.parametrize("copy", [copied, pytest.param(mirrors.mirrored, marks=pytest.mark.full)])
def test_no_service_starts_on_a_copy_of_its_log(
    left: Left,
    brokers: Callable[[str], Broker],
    copy: Callable[[str, str, Path], None],
    valkey_url: str,
    tmp_path: Path,
) -> None:
    target = brokers("mirror").address
    copy(left.kafka, target, tmp_path)
    wanted = mirrors.ends_of(left.kafka, Topic.JOBS_EVENTS)
    assert mirrors.ends_of(target, Topic.JOBS_EVENTS) == wanted, "no offset tells it from the log"
    for part in left.services:
        assert ended(part, tmp_path, target, valkey_url) == REFUSED_STATUS, part.name
        said = (tmp_path / f"{part.name}.log").read_text()
        assert "log_moved" in said, (part.name, said[-2000:])
        assert "aetheris restore" in said
    assert mirrors.ends_of(target, Topic.JOBS_EVENTS) == wanted, "nobody has written there"
    comes_back_behind_a_fence(left, target, tmp_path)


def comes_back_behind_a_fence(left: Left, mirror: str, folder: Path) -> None:
    """Where the mirror is all that is left, a backup of it is laid into empty brokers: nothing runs on by itself."""
    kept, new = folder / "backup", folder / "new"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AETHERIS_KAFKA", mirror)
        command("backup", str(kept), "--data", str(folder / "nowhere"))
    moved(left.data, new)
    restored = command("restore", str(kept), "--data", str(new), "--by", "ann", "--old-ended", "it was told to end")
    assert [(one["job_id"], one["paused"]) for one in restored["jobs"]] == [(left.waits, True)]
    with running_system(new, {"AETHERIS_TOOLS": TOOLS, **left.external.env}) as system:
        answer = system.api.post("/freezes/end", json={"tenant": "default"}, headers=system.approver)
        assert answer.status_code == 200, answer.text
        assert system.api.post(f"/jobs/{left.waits}/resume", json={}).status_code in (200, 202)
        system.signal(left.waits, "go").raise_for_status()
        system.wait_ended([left.waits], PATIENCE_S)
        assert system.job(left.waits)["status"] == "completed"
        assert left.external.count(left.tag) == left.external.count(f"{left.tag}-b") == 1


def ended(part: ProcessSpec, folder: Path, kafka: str, redis: str) -> int:
    """How a service ends that is started with other brokers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AETHERIS_")}
    led = {"AETHERIS_KAFKA": kafka, "AETHERIS_REDIS": redis, "AETHERIS_HEALTH_PORT": str(free_port())}
    child = spawn(part.argv, log=folder / f"{part.name}.log", env=kept | dict(part.env) | led)
    try:
        return child.wait(PATIENCE_S)
    finally:
        end(child, STOP_WITHIN_S)
