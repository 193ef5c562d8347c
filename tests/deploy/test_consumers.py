"""Consumers that nobody here wrote read a job's events: Kafka's own console consumer, and Connect's file sink."""

import json
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.processes import end, spawn
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.bootstrap import login_of, servers_of
from tests.deploy.kafka_tools import command
from tests.testkit.external_server import running_outside, until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(600)]

PATIENCE_S = 120.0


@dataclass(frozen=True)
class FinishedJob:
    """A finished job, and its events as the API has them."""

    system: System
    job: str
    events: list[dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Generator[FinishedJob]:
    folder = tmp_path_factory.mktemp("consumed")
    with running_outside(folder / "outside") as external:
        env = {"AETHERIS_TOOLS": "tests.testkit.external_tools"} | external.env
        with running_system(folder / "data", env) as system:
            job = system.submit(
                {"id": "a", "tool": "poke_probeable", "args": {"tag": "a"}},
                {"id": "b", "tool": "poke_pure", "args": {"tag": "b"}, "depends_on": ["a"]},
            )

            def events() -> list[dict[str, Any]]:
                return system.api.get(f"/jobs/{job}/events").json()

            until(lambda: any(one["type"] == "job_sealed" for one in events()), PATIENCE_S)
            yield FinishedJob(system, job, events())


def logged_in(bootstrap: str) -> dict[str, str]:
    """What a client of Kafka's own needs to be heard."""
    login = login_of(bootstrap)
    assert login is not None
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="{login.user}" password="{login.password}";',
    }


def test_the_console_consumer(reported: FinishedJob, tmp_path: Path) -> None:
    bootstrap, config = reported.system.state().kafka, tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in logged_in(bootstrap).items()))
    properties = ["print.headers=true", "print.key=true", "key.separator=|", "headers.separator=,"]
    argv = ["--bootstrap-server", servers_of(bootstrap), "--topic", Topic.JOBS_EVENTS, "--from-beginning"]
    argv += ["--command-config", str(config), "--max-messages", str(len(reported.events))]
    argv += [part for one in properties for part in ("--formatter-property", one)]
    consumer = command("org.apache.kafka.tools.consumer.ConsoleConsumer", *argv)
    done = subprocess.run(consumer, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    heads, keys, payloads = zip(*(line.split("|", 2) for line in done.stdout.splitlines()), strict=True)
    headers = [dict(one.split(":", 1) for one in head.split(",")) for head in heads]
    assert set(keys) == {reported.job}
    assert [json.loads(payload) for payload in payloads] == [event["data"] for event in reported.events]
    wanted = [f"io.aetheris.{event['type']}.v1" for event in reported.events]
    assert [one["ce_type"] for one in headers] == wanted
    assert all(one["ce_specversion"] == "1.0" and one["content-type"] == "application/json" for one in headers)


def test_connects_file_sink(reported: FinishedJob, tmp_path: Path) -> None:
    sunk = tmp_path / "events.txt"
    text = "org.apache.kafka.connect.storage.StringConverter"
    known = logged_in(reported.system.state().kafka)
    worker = {
        "bootstrap.servers": servers_of(reported.system.state().kafka),
        **known,
        **{f"consumer.{name}": value for name, value in known.items()},
        "key.converter": text,
        "value.converter": text,
        "offset.storage.file.filename": str(tmp_path / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{Ports(tmp_path).get('connect')}",
        "connector.client.config.override.policy": "All",
    }
    sink = {
        "name": "events",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "topics": str(Topic.JOBS_EVENTS),
        "file": str(sunk),
        "consumer.override.auto.offset.reset": "earliest",
    }
    for name, settings in (("worker", worker), ("sink", sink)):
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (tmp_path / f"{name}.properties").write_text("".join(lines))
    files = [str(tmp_path / f"{name}.properties") for name in ("worker", "sink")]
    log = tmp_path / "connect.log"
    child = spawn(command("org.apache.kafka.connect.cli.ConnectStandalone", *files), log=log)
    try:

        def read() -> list[dict[str, Any]]:
            whole = sunk.read_text().split("\n")[:-1] if sunk.exists() else []
            return [json.loads(line) for line in whole]

        try:
            until(lambda: len(read()) >= len(reported.events), PATIENCE_S)
        except TimeoutError:
            raise AssertionError(log.read_text()[-2000:]) from None
        assert read() == [event["data"] for event in reported.events]
    finally:
        end(child, 10.0)
