"""A service that is told to stop, and one whose Kafka and Redis are away: alive, not ready, and nothing done twice."""

import json
import os
import signal
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.plan import Plan
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.valkey import Valkey, running_valkey
from aetheris.runtime.process.installation import process_of
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.services import SERVICES, asked, processes
from tests.testkit.tokens import headers_of, write_tokens

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0


def test_alive_without_kafka_and_redis_and_ready_with_them(tmp_path: Path) -> None:
    broker = broker_in(install(lambda _part, _message: None), tmp_path, Ports(tmp_path / "broker"))
    valkey = Valkey(tmp_path / "valkey")
    write_tokens(tmp_path, {"n": "default"})
    settings = {
        "AETHERIS_KAFKA": broker.address,
        "AETHERIS_REDIS": valkey.url,
        "AETHERIS_DATA": str(tmp_path),
        "AETHERIS_DEV": "true",
    }
    with processes(tmp_path, settings) as running:

        def all_say(path: str, status: int) -> bool:
            return all(asked(port, path)[0] == status for _, port in running.values())

        until(lambda: all_say("/livez", 200), PATIENCE_S)
        assert {service: asked(port, "/readyz")[0] for service, (_, port) in running.items()} == dict.fromkeys(
            SERVICES, 503
        )
        with running_broker(broker, tmp_path / "kafka.log"), running_valkey(valkey, tmp_path / "valkey.log"):
            until(lambda: all_say("/readyz", 200), PATIENCE_S)
        http = f"http://127.0.0.1:{Ports(tmp_path).get('gateway-http')}/api/jobs"
        refused = httpx.post(
            http,
            json={"plan": {"nodes": []}},
            headers=headers_of("n"),
            timeout=60,
            trust_env=False,
        )
        assert refused.status_code in (400, 503), "it answers all the same"
        assert all_say("/livez", 200)
        for child, _ in running.values():
            assert child.poll() is None
            child.send_signal(signal.SIGTERM)
        codes = {service: child.wait(PATIENCE_S) for service, (child, _) in running.items()}
        assert codes == dict.fromkeys(SERVICES, 0)


@dataclass(frozen=True)
class DrainRig(Rig):
    """Two executors, one of which is told to stop."""

    def held_call(self, name: str) -> str:
        """A job whose one call took effect, its answer held back."""
        self.external.hold(name)
        job = self.system.submit(poke("a", name, hold=name), poke("b", f"{name}-b", "a"))
        self.external.wait_for(1, name, PATIENCE_S)
        return job

    def runner_of(self, job: str) -> tuple[str, str]:
        """Who ran the job's first call: name and incarnation."""
        first, *_ = self.system.data_of(job, "tool_invocation_started")
        return process_of(first["worker_id"]), first["incarnation"]

    def log(self, worker: str) -> list[str]:
        """The lines that it has logged since the system was started."""
        return (self.system.data / "logs" / f"{worker}.log").read_text().splitlines()

    def drained(self, worker: str) -> int:
        """SIGTERM to an executor, and wait until it says that it is not ready: its pid."""
        part = next(one for one in Plan.load(self.system.data).parts if one.name == worker)
        pid = self.system.pid(worker)
        os.kill(pid, signal.SIGTERM)
        until(lambda: asked(int(part.target), "/readyz")[1].get("unready", {}).get("service") == "is stopping", 30)
        assert asked(int(part.target), "/livez")[0] == 200
        return pid


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[DrainRig]:
    env = {"AETHERIS_DRAIN_S": "2", "AETHERIS_TOOL_DRAIN_S": "15"}
    with running_rig(tmp_path_factory.mktemp("drain"), env, executor=2) as rig:
        yield DrainRig(rig.system, rig.external)


def test_a_stopping_executor_finishes_its_call_and_takes_no_new_one(rig: DrainRig) -> None:
    finishes, other = f"finishes-{uuid4()}", f"other-{uuid4()}"
    job = rig.held_call(finishes)
    worker = rig.runner_of(job)[0]
    said_before = len(rig.log(worker))
    pid = rig.drained(worker)
    others = [
        rig.system.submit({"id": "a", "tool": "poke_probeable", "args": {"tag": f"{other}-{number}"}})
        for number in range(8)  # of every partition
    ]
    (rig.external.folder / finishes).unlink()
    rig.system.wait_ended([job, *others], PATIENCE_S)
    until(lambda: rig.system.pid(worker) != pid, PATIENCE_S)
    assert rig.runner_of(job) not in [rig.runner_of(other) for other in others]
    assert [one["via"] for one in rig.system.data_of(job, "tool_invocation_finished")] == ["executor", "executor"]
    assert len(rig.system.data_of(job, "tool_invocation_started")) == 2
    reported = [json.loads(line) for line in rig.log(worker)[said_before:] if line[:1] == "{"]
    assert not any(one["event"] == "did not stop in time" for one in reported)
    for tag in (finishes, f"{finishes}-b", *(f"{other}-{number}" for number in range(8))):
        assert rig.external.count(tag) == 1


def test_what_it_cannot_finish_is_left_to_the_ladder(rig: DrainRig) -> None:
    unfinished = f"unfinished-{uuid4()}"
    job = rig.held_call(unfinished)
    worker = rig.runner_of(job)[0]
    pid = rig.drained(worker)
    until(lambda: rig.system.pid(worker) != pid, PATIENCE_S)  # its grace is over, and its successor is there
    (rig.external.folder / unfinished).unlink()
    rig.system.wait_status(job, "completed", PATIENCE_S)
    assert rig.system.data_of(job, "tool_invocation_finished")[0]["via"] in ("probe", "catch_up")
    assert (rig.external.count(unfinished), rig.external.count(f"{unfinished}-b")) == (1, 1)
    rig.system.verified(job)
