"""What a job did and why, asked of a running system: the same from the API, from the file, and after a flush."""

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from aiokafka import AIOKafkaProducer

from aetheris.protocol.base.keys import idempotency_key, job_key
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import draft
from tests.testkit.attempts import fresh
from tests.testkit.collector import Collector, running_collector
from tests.testkit.outside import Outside, running_outside, until
from tests.testkit.prometheus import Prometheus, running_prometheus
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

PLACES = ((), ("unshare", "-rn"))
"""Here; and in a network of its own, in which there is nobody."""


@dataclass(frozen=True)
class World:
    system: System
    outside: Outside
    folder: Path
    collector: Collector

    def get(self, path: str, **params: Any) -> Any:
        answer = self.system.api.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def why(self, **asked: Any) -> list[dict[str, Any]]:
        """Every page."""
        found: list[dict[str, Any]] = []
        page = self.get("/effects", **asked)
        while True:
            found += page["effects"]
            if page["cursor"] is None:
                return found
            page = self.get("/effects", cursor=page["cursor"], **asked)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("why")
    with running_outside(folder / "outside") as outside, running_collector() as collector:
        env = {
            "AETHERIS_TOOLS": "tests.testkit.outside_tools",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        with running_system(folder / "data", env | outside.env) as system:
            yield World(system, outside, folder, collector)


@pytest.fixture
def prometheus(world: World, tmp_path: Path) -> Generator[Prometheus]:
    if shutil.which("prometheus") is None and not os.environ.get("CI"):
        pytest.skip("no prometheus here: `make system-deps` installs it")
    with running_prometheus(tmp_path / "prometheus", world.collector.endpoint) as running:
        yield running


def poke(node: str, tag: Any, *after: str, tool: str = "poke_probeable") -> dict[str, Any]:
    return {"id": node, "tool": tool, "args": {"tag": tag}, "depends_on": list(after)}


def sealed(world: World, *nodes: dict[str, Any], **options: Any) -> str:
    """A job of these nodes, once it is sealed."""
    job_id = world.system.api.post("/jobs", json={"plan": {"nodes": nodes}, "options": options}).json()["job_id"]
    until(lambda: any(event["type"] == "job_sealed" for event in world.get(f"/jobs/{job_id}/events")), 60)
    return job_id


@pytest.fixture(scope="module")
def job(world: World) -> str:
    """Two steps, the second with what the first returned; sealed."""
    return sealed(world, poke("one", "why-1"), poke("two", {"$ref": "one#/poked"}, tool="poke_opaque"))


def aetheris(*argv: str, alone: bool = False) -> Any:
    """The command's JSON; `alone`: where there is no network."""
    command = [*PLACES[alone], sys.executable, "-m", "aetheris.cli", *argv, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_a_job_that_wants_no_trace_leaves_no_span(world: World) -> None:
    def tracing(job_id: str, tag: str) -> set[str]:
        keys = [job_key(job_id), idempotency_key(job_id, "a", "poke_opaque", {"tag": tag, "delay_s": 0, "hold": ""})]
        return {span.service for key in keys for span in world.collector.of_trace(key[:32])}

    quiet = sealed(world, poke("a", "quiet", tool="poke_opaque"), trace=False)
    assert world.system.api.post(f"/jobs/{quiet}/reconcile").status_code in (200, 202)
    loud = sealed(world, poke("a", "loud", tool="poke_opaque"))
    services = {f"aetheris-{name}" for name in ("gateway", "planner", "ledger", "tool_executor", "verifier")}
    until(lambda: tracing(loud, "loud") == services, 30)  # a service sends first what came first
    assert tracing(quiet, "quiet") == set()


def test_replay_gives_the_states_that_were_and_calls_nothing(world: World, job: str) -> None:
    before = world.outside.effects()
    report = world.get(f"/jobs/{job}/replay")
    live = world.get(f"/jobs/{job}")
    assert (report["ok"], report["differences"], report["unchecked"]) == (True, [], 0)
    shown = {name: value for name, value in report["state"].items() if name in live}
    assert shown | {"created_at": ""} == live | {"created_at": ""}
    assert report["injected"] == {"tool": 2}
    started = next(one for one in world.get(f"/jobs/{job}/events") if one["type"] == "tool_invocation_started")
    for point in (started["id"], started["seq"]):
        there = world.get(f"/jobs/{job}/replay", to=point, steps=1)
        assert [step["state"] for step in there["state"]["steps"]] == ["running", "pending"]
        assert there["steps"][-1]["changes"] == {"one": "running"}
    assert world.system.api.get(f"/jobs/{job}/replay", params={"to": "nowhere"}).status_code == 400
    assert world.outside.effects() == before


def test_the_bundle_tells_the_same_without_a_network(world: World, job: str) -> None:
    """In a network in which there is nobody: no model and no tool could be called, and none was."""
    bundle, data = world.folder / "job.zip", str(world.system.data)
    aetheris("export", job, "--out", str(bundle), "--data", data)
    assert zipfile.is_zipfile(bundle)
    server = urlsplit(world.outside.url)
    look = f"import socket; socket.create_connection(({server.hostname!r}, {server.port}), 5)"
    looked = [subprocess.run([*at, sys.executable, "-c", look], capture_output=True, check=False) for at in PLACES]
    assert looked[0].returncode == 0 != looked[1].returncode, "the outside is reached from here, and not from there"
    counters = (world.outside.effects(), world.outside.reads())
    offline, online = aetheris("replay", str(bundle), alone=True), world.get(f"/jobs/{job}/replay")
    assert offline == online
    assert (offline["ok"], offline["injected"], offline["state"]["status"]) == (True, {"tool": 2}, "completed")
    stepwise = aetheris("replay", str(bundle), "--step", alone=True)["steps"]
    assert stepwise == world.get(f"/jobs/{job}/replay", steps=1)["steps"]
    assert aetheris("verify", str(bundle), alone=True)["ok"]
    assert aetheris("effects", str(bundle), alone=True) == world.get(f"/jobs/{job}/effects")
    assert aetheris("effects", job, "--data", data) == world.get(f"/jobs/{job}/effects")
    ledger = world.get(f"/jobs/{job}/ledger")
    assert aetheris("ledger", str(bundle), alone=True) == ledger == aetheris("ledger", job, "--data", data)
    held = [(one["step_id"], one["status"], one["decided_by"], one["has_effect"]) for one in ledger["calls"]]
    assert held == [(step, "success", "executor", "confirmed") for step in ("one", "two")]
    moves = [entry["action"].partition(":")[0] for entry in world.get(f"/jobs/{job}/trace")["execution_trace"]]
    called = ["try", "transition", "transition"]
    begun = ["create_job", "plan", "create_contract"]
    assert moves == [*begun, *called, "create_contract", *called, "job_completed"]
    page = world.folder / "trace.html"
    assert aetheris("trace", str(bundle), "--html", str(page), alone=True) == world.get(f"/jobs/{job}/trace")
    assert job in page.read_text()
    assert (world.outside.effects(), world.outside.reads()) == counters
    assert len([effect for effect in counters[0] if effect["key"].startswith(f"aetheris:{job}:")]) == 2


def test_from_the_outsides_id_back_to_the_goal(world: World, job: str) -> None:
    effect = next(one for one in world.outside.effects() if one["key"] == f"aetheris:{job}:two:0")
    (tree,) = world.why(external_id=effect["id"])
    assert (tree["facts"]["job_id"], tree["facts"]["command_id"]) == (job, "two")
    step = next(one for one in tree["because"] if one["what"] == "step")
    assert step["facts"]["args"]["tag"] == "why-1"
    assert [one["what"] for one in step["because"]] == ["used", "plan"]
    assert step["because"][1]["because"][0]["what"] == "goal"
    assert world.why(external_id=effect["key"]) == [tree]
    assert aetheris("why", "--external-id", effect["id"], "--data", str(world.system.data)) == tree
    assert world.why(external_id="re_unknown") == []


def test_effects_of_all_jobs_are_found_by_tool_time_and_argument(world: World, job: str) -> None:
    tag = fresh("why-other")
    other = world.system.submit(poke("one", tag))
    world.system.wait_status(other, "completed")
    found = world.why(tool="poke_probeable", where="args.tag.contains('why')")
    assert [one["facts"]["job_id"] for one in found if one["facts"]["job_id"] in (other, job)] == [other, job]
    assert [one["facts"]["job_id"] for one in world.why(where=f"args.tag == '{tag}'")] == [other]
    assert world.why(since="2999-01-01T00:00:00Z") == []
    assert world.why(tool="poke_probeable", since=found[0]["facts"]["created_at"]) == found[:1]
    assert world.system.api.get("/effects", params={"where": "tag"}).status_code == 400


def test_redis_may_lose_it_all_and_nothing_is_said_not_to_be(world: World, job: str) -> None:
    effect = next(one for one in world.outside.effects() if one["key"] == f"aetheris:{job}:one:0")
    (before,) = world.why(external_id=effect["id"])
    world.system.flush_redis()

    def found_again() -> bool:
        answer = world.system.api.get("/effects", params={"external_id": effect["id"]})
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200 and answer.json()["effects"] == [before]

    until(found_again, 30)
    with redis.Redis.from_url(world.system.state().redis) as client:  # a part of it: as an old copy restored
        client.hset("aetheris:gateway:effects:known", mapping={"0": 0, "1": 0, "2": 0, "3": 0})
        client.delete("aetheris:gateway:effects:ids")
    until(found_again, 30)


def test_another_tenants_effects_are_not_there(world: World, job: str) -> None:
    tokens = world.system.data / "tokens.toml"
    assert 'tenant = "default"' in tokens.read_text()
    with redis.Redis.from_url(world.system.state().redis) as client:
        client.hset(f"aetheris:gateway:job:{job}", "tenant", "other")
        try:
            assert world.why(external_id=f"aetheris:{job}:one:0") == []
            assert all(one["facts"]["job_id"] != job for one in world.why(tool="poke_probeable"))
        finally:
            client.hset(f"aetheris:gateway:job:{job}", "tenant", "default")


async def test_a_violation_is_an_event_a_metric_and_an_alert_within_a_second(
    world: World, prometheus: Prometheus
) -> None:
    """A success of a call that nobody was cleared to make, in the stream of a job that goes on."""
    rule, alerts = "success_without_valid_start", prometheus.firing
    counted = world.collector.value("aetheris.violations", rule=rule) or 0
    hold = world.outside.hold(fresh("why-held"))
    args = {"tag": hold.name, "hold": hold.name}
    job_id = world.system.submit({"id": "one", "tool": "patient_probeable", "args": args})
    world.outside.wait_for(1, hold.name)
    key = idempotency_key(job_id, "one", "patient_probeable", args)
    forged = ev.ToolInvocationFinished(
        job_id=job_id,
        node_id="one",
        idempotency_key=key,
        invocation_id="nobody",
        outcome=ev.Outcome.SUCCESS,
        via=ev.Via.EXECUTOR,
        result={"forged": True},
        output_hash="0",
    )
    record = draft(Topic.JOBS_EVENTS, forged, key=job_id, id="forged", source="test", time="2026-01-01T00:00:00Z")
    producer = AIOKafkaProducer(bootstrap_servers=world.system.state().kafka)
    await producer.start()
    try:
        await producer.send_and_wait(record.topic, record.value, record.key, headers=list(record.headers))
    finally:
        await producer.stop()
    appended = time.monotonic()

    def told() -> list[dict[str, Any]]:
        return [one["data"] for one in world.get(f"/jobs/{job_id}/events") if one["type"] == "violation_found"]

    until(lambda: any(one["rule"] == rule for one in told()), 30)
    until(lambda: world.collector.value("aetheris.violations", rule=rule) == counted + 1, 30)
    until(lambda: any(alert["rule"] == rule for alert in alerts("AetherisViolation")), 30)
    took_s = time.monotonic() - appended
    print(f"told, counted and alerted after {took_s:.2f} s")  # noqa: T201  the figure
    assert took_s < 4.0 or os.getloadavg()[0] > 2, f"{took_s:.2f} s: a second, four times slower"
    assert {one["event_id"] for one in told()} == {"forged"}
    hold.unlink()
    world.system.wait_status(job_id, "completed")
    until(lambda: any(event["type"] == "job_sealed" for event in world.get(f"/jobs/{job_id}/events")), 30)
    rules = [one["rule"] for one in told()]
    assert len(rules) == len(set(rules))  # none is told twice
    verified = world.get(f"/jobs/{job_id}/verify")
    assert {one["rule"] for one in verified["violations"]} == set(rules)
    assert verified["seal"]["ok"]


def test_what_is_seldom_is_counted(world: World) -> None:
    value, kinds = world.collector.value, ("aetheris.invocations.in_doubt", "aetheris.invocations.parked")
    before = [value(kind) or 0 for kind in kinds]
    args = {"tag": fresh("why-lost")}
    job_id = world.system.submit({"id": "one", "tool": "poke_lost", "args": args})
    world.system.wait_status(job_id, "waiting")
    until(lambda: [value(kind) for kind in kinds] == [count + 1 for count in before], 40)
    key = idempotency_key(job_id, "one", "poke_lost", args)
    assert key[:32] in world.collector.exemplars("aetheris.invocations.in_doubt")
    until(lambda: value("aetheris.consumer.lag") is not None and value("aetheris.jobs.stuck") == 0, 40)
