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
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.runtime.kafka.bootstrap import client_options
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.prometheus import Prometheus, running_prometheus
from tests.testkit.rig import TracedRig, poke, running_traced_rig
from tests.testkit.tries import end_word, try_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

PLACES = ((), ("unshare", "-rn"))
"""Here; and in a network of its own, in which there is nobody."""


@dataclass(frozen=True)
class WhyRig(TracedRig):
    """What a person asks of it."""

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
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[WhyRig]:
    with running_traced_rig(tmp_path_factory.mktemp("why")) as rig:
        yield WhyRig(rig.system, rig.external, rig.collector)


@pytest.fixture
def prometheus(rig: WhyRig, tmp_path: Path) -> Generator[Prometheus]:
    if shutil.which("prometheus") is None and not os.environ.get("CI"):
        pytest.skip("no prometheus here: `make system-deps` installs it")
    with running_prometheus(tmp_path / "prometheus", rig.collector.endpoint) as running:
        yield running


def sealed(rig: WhyRig, *nodes: dict[str, Any], **options: Any) -> str:
    """A job of these nodes, once it is sealed."""
    job_id = rig.system.submit(*nodes, options=options)
    rig.system.wait_sealed(job_id)
    return job_id


@pytest.fixture(scope="module")
def job(rig: WhyRig) -> str:
    """Two steps, the second with what the first returned; sealed."""
    return sealed(rig, poke("one", "why-1"), poke("two", {"$ref": "one#/poked"}, tool="poke_opaque"))


def aetheris(*argv: str, alone: bool = False) -> Any:
    """The command's JSON; `alone`: where there is no network."""
    command = [*PLACES[alone], sys.executable, "-m", "aetheris.cli", *argv, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_a_job_that_wants_no_trace_leaves_no_span(rig: WhyRig) -> None:
    def tracing(job_id: str, tag: str) -> set[str]:
        keys = [job_key(job_id), idempotency_key(job_id, "a", "poke_opaque", {"tag": tag, "delay_s": 0, "hold": ""})]
        return {span.service for key in keys for span in rig.collector.of_trace(key[:32])}

    quiet = sealed(rig, poke("a", "quiet", tool="poke_opaque"), trace=False)
    assert rig.system.api.post(f"/jobs/{quiet}/reconcile").status_code in (200, 202)
    loud = sealed(rig, poke("a", "loud", tool="poke_opaque"))
    services = {f"aetheris-{name}" for name in ("gateway", "planner", "ledger", "tool_executor", "verifier")}
    until(lambda: tracing(loud, "loud") == services, 30)  # a service sends first what came first
    assert tracing(quiet, "quiet") == set()


def test_replay_gives_the_states_that_were_and_calls_nothing(rig: WhyRig, job: str) -> None:
    before = rig.external.effects()
    report = rig.get(f"/jobs/{job}/replay")
    live = rig.get(f"/jobs/{job}")
    assert (report["ok"], report["differences"], report["unchecked"]) == (True, [], 0)
    shown = {name: value for name, value in report["state"].items() if name in live}
    assert shown | {"created_at": ""} == live | {"created_at": ""}
    assert report["injected"] == {"tool": 2}
    started = rig.system.events(job, "tool_invocation_started")[0]
    for point in (started["id"], started["seq"]):
        there = rig.get(f"/jobs/{job}/replay", to=point, steps=1)
        assert [step["state"] for step in there["state"]["steps"]] == ["running", "pending"]
        assert there["steps"][-1]["changes"] == {"one": "running"}
    assert rig.system.api.get(f"/jobs/{job}/replay", params={"to": "nowhere"}).status_code == 400
    assert rig.external.effects() == before


def test_the_bundle_tells_the_same_without_a_network(rig: WhyRig, job: str, tmp_path: Path) -> None:
    """In a network in which there is nobody: no model and no tool could be called, and none was."""
    bundle, data = tmp_path / "job.zip", str(rig.system.data)
    aetheris("export", job, "--out", str(bundle), "--data", data)
    assert zipfile.is_zipfile(bundle)
    server = urlsplit(rig.external.url)
    look = f"import socket; socket.create_connection(({server.hostname!r}, {server.port}), 5)"
    looked = [subprocess.run([*at, sys.executable, "-c", look], capture_output=True, check=False) for at in PLACES]
    assert looked[0].returncode == 0 != looked[1].returncode, "the internet is reached from here, and not from there"
    counters = (rig.external.effects(), rig.external.reads())
    offline, online = aetheris("replay", str(bundle), alone=True), rig.get(f"/jobs/{job}/replay")
    assert offline == online
    assert (offline["ok"], offline["injected"], offline["state"]["status"]) == (True, {"tool": 2}, "completed")
    stepwise = aetheris("replay", str(bundle), "--step", alone=True)["steps"]
    assert stepwise == rig.get(f"/jobs/{job}/replay", steps=1)["steps"]
    assert aetheris("verify", str(bundle), "--public-key", f"{data}/keys/seal.pub", alone=True)["ok"]
    assert aetheris("effects", str(bundle), alone=True) == rig.get(f"/jobs/{job}/effects")
    assert aetheris("effects", job, "--data", data) == rig.get(f"/jobs/{job}/effects")
    ledger = rig.get(f"/jobs/{job}/ledger")
    assert aetheris("ledger", str(bundle), alone=True) == ledger == aetheris("ledger", job, "--data", data)
    held = [(one["step_id"], one["status"], one["decided_by"], one["has_effect"]) for one in ledger["calls"]]
    assert held == [(step, "success", "executor", "confirmed") for step in ("one", "two")]
    (first,) = rig.get(f"/jobs/{job}/effects", limit=1)["effects"]
    paged = rig.get(f"/jobs/{job}/effects", after=1)
    whole = rig.get(f"/jobs/{job}/effects")["effects"]
    assert ([first, *paged["effects"]], paged["effect_count"]) == (whole, 2)
    traced = rig.get(f"/jobs/{job}/trace")
    part = rig.get(f"/jobs/{job}/trace", after=1, limit=1)
    assert [one["node_id"] for one in part["steps"]] == [one["node_id"] for one in part["graph"]["nodes"]] == ["two"]
    assert {name: traced["steps"][1][name] for name in part["steps"][0]} == part["steps"][0]
    assert part["graph"]["edges"] == [one for one in traced["graph"]["edges"] if one["to"] == "two"]
    assert (part["step_count"], "events" in part, "execution_trace" in part) == (2, False, False)
    for refused in ({"limit": 0}, {"limit": 10_001}, {"after": -1}, {"limit": "x"}):
        for route in ("effects", "trace"):
            answer = rig.system.api.get(f"/jobs/{job}/{route}", params=refused)
            assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, next(iter(refused)))
    moves = [entry["action"].partition(":")[0] for entry in rig.get(f"/jobs/{job}/trace")["execution_trace"]]
    called = ["try", "transition", "transition"]
    begun = ["create_job", "plan", "create_contract"]
    assert moves == [*begun, *called, "create_contract", *called, "job_completed"]
    page = tmp_path / "trace.html"
    assert aetheris("trace", str(bundle), "--html", str(page), alone=True) == rig.get(f"/jobs/{job}/trace")
    assert job in page.read_text()
    assert (rig.external.effects(), rig.external.reads()) == counters
    assert len([effect for effect in counters[0] if effect["key"].startswith(f"aetheris:{job}:")]) == 2


def test_all_that_a_job_did_is_traced_back_newest_first(rig: WhyRig, job: str) -> None:
    trees = rig.why(job_id=job)
    assert [one["facts"]["command_id"] for one in trees] == ["two", "one"]
    assert rig.why(job_id=job, tool="poke_opaque") == trees[:1]
    assert rig.system.api.get("/effects", params={"job_id": "no-such-job"}).status_code == 404
    assert rig.system.api.get("/effects", params={"job_id": job, "cursor": "x"}).status_code == 400


def test_from_the_outsides_id_back_to_the_goal(rig: WhyRig, job: str) -> None:
    effect = next(one for one in rig.external.effects() if one["key"] == f"aetheris:{job}:two:0")
    (tree,) = rig.why(external_id=effect["id"])
    assert (tree["facts"]["job_id"], tree["facts"]["command_id"]) == (job, "two")
    step = next(one for one in tree["because"] if one["what"] == "step")
    assert step["facts"]["args"]["tag"] == "why-1"
    assert [one["what"] for one in step["because"]] == ["used", "plan"]
    assert step["because"][1]["because"][0]["what"] == "goal"
    assert rig.why(external_id=effect["key"]) == [tree]
    assert aetheris("why", "--external-id", effect["id"], "--data", str(rig.system.data)) == tree
    assert rig.why(external_id="re_unknown") == []


def test_effects_of_all_jobs_are_found_by_tool_time_and_argument(rig: WhyRig, job: str) -> None:
    tag = fresh("why-other")
    other = rig.system.submit(poke("one", tag))
    rig.system.wait_status(other, "completed")
    found = rig.why(tool="poke_probeable", where="args.tag.contains('why')")
    assert [one["facts"]["job_id"] for one in found if one["facts"]["job_id"] in (other, job)] == [other, job]
    assert [one["facts"]["job_id"] for one in rig.why(where=f"args.tag == '{tag}'")] == [other]
    assert rig.why(since="2999-01-01T00:00:00Z") == []
    assert rig.why(tool="poke_probeable", since=found[0]["facts"]["created_at"]) == found[:1]
    assert rig.system.api.get("/effects", params={"where": "tag"}).status_code == 400


def test_redis_may_lose_it_all_and_nothing_is_said_not_to_be(rig: WhyRig, job: str) -> None:
    effect = next(one for one in rig.external.effects() if one["key"] == f"aetheris:{job}:one:0")
    (before,) = rig.why(external_id=effect["id"])
    rig.system.flush_redis()

    def found_again() -> bool:
        answer = rig.system.api.get("/effects", params={"external_id": effect["id"]})
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200 and answer.json()["effects"] == [before]

    until(found_again, 30)
    with redis.Redis.from_url(rig.system.state().redis) as client:  # a part of it: as an old copy restored
        client.hset("aetheris:gateway:{effects}:known", mapping={"0": 0, "1": 0, "2": 0, "3": 0})
        client.delete(*client.keys("aetheris:gateway:{effects}:ids:*"))
    until(found_again, 30)


def test_another_tenants_effects_are_not_there(rig: WhyRig, job: str) -> None:
    tokens = rig.system.data / "tokens.toml"
    assert 'tenant = "default"' in tokens.read_text()
    with redis.Redis.from_url(rig.system.state().redis) as client:
        client.hset(f"aetheris:gateway:{{lists}}:job:{job}", "tenant", "other")
        try:
            assert rig.why(external_id=f"aetheris:{job}:one:0") == []
            assert all(one["facts"]["job_id"] != job for one in rig.why(tool="poke_probeable"))
        finally:
            client.hset(f"aetheris:gateway:{{lists}}:job:{job}", "tenant", "default")


async def test_a_violation_is_an_event_a_metric_and_an_alert_within_a_second(
    rig: WhyRig, prometheus: Prometheus
) -> None:
    """A success of a call that nobody was cleared to make, in the stream of a job that goes on."""
    rule, alerts = "success_without_valid_start", prometheus.firing
    counted = rig.collector.value("aetheris.violations", rule=rule) or 0
    hold = rig.external.hold(fresh("why-held"))
    args = {"tag": hold.name, "hold": hold.name}
    job_id = rig.system.submit({"id": "one", "tool": "patient_probeable", "args": args})
    rig.external.wait_for(1, hold.name)
    key = idempotency_key(job_id, "one", "patient_probeable", args)
    forged = ev.ToolInvocationFinished(
        job_id=job_id,
        node_id="one",
        idempotency_key=key,
        invocation_id=try_of("nobody"),
        outcome=Outcome.SUCCESS,
        via=Via.EXECUTOR,
        result={"forged": True},
        output_hash="0",
        word=end_word("nobody", Outcome.SUCCESS, Via.EXECUTOR),
    )
    record = draft(Topic.JOBS_EVENTS, forged, key=job_id, id="forged", source="test", time="2026-01-01T00:00:00Z")
    producer = AIOKafkaProducer(**client_options(rig.system.state().kafka))
    await producer.start()
    try:
        await producer.send_and_wait(record.topic, record.value, record.key, headers=list(record.headers))
    finally:
        await producer.stop()
    appended = time.monotonic()

    def told() -> list[dict[str, Any]]:
        return rig.system.data_of(job_id, "violation_found")

    until(lambda: any(one["rule"] == rule for one in told()), 30)
    until(lambda: rig.collector.value("aetheris.violations", rule=rule) == counted + 1, 30)
    until(lambda: any(alert["rule"] == rule for alert in alerts("AetherisViolation")), 30)
    took_s = time.monotonic() - appended
    print(f"told, counted and alerted after {took_s:.2f} s")  # noqa: T201  the figure
    assert took_s < 4.0 or os.getloadavg()[0] > 2, f"{took_s:.2f} s: a second, four times slower"
    assert {one["event_id"] for one in told()} == {"forged"}
    hold.unlink()
    rig.system.wait_status(job_id, "completed")
    rig.system.wait_sealed(job_id, 30)
    rules = [one["rule"] for one in told()]
    assert len(rules) == len(set(rules))  # none is told twice
    verified = rig.get(f"/jobs/{job_id}/verify")
    assert {one["rule"] for one in verified["violations"]} == set(rules)
    assert verified["seal"]["ok"]


def test_what_is_seldom_is_counted(rig: WhyRig) -> None:
    value, total = rig.collector.value, rig.collector.total
    kinds = ("aetheris.invocations.in_doubt", "aetheris.invocations.parked")
    before = [total(kind) for kind in kinds]
    args = {"tag": fresh("why-lost")}
    job_id = rig.system.submit({"id": "one", "tool": "poke_lost", "args": args})
    rig.system.wait_status(job_id, "waiting")
    until(lambda: [total(kind) for kind in kinds] == [count + 1 for count in before], 40)
    key = idempotency_key(job_id, "one", "poke_lost", args)
    assert key[:32] in rig.collector.exemplars("aetheris.invocations.in_doubt")
    until(lambda: value("aetheris.consumer.lag") is not None and value("aetheris.jobs.stuck") == 0, 40)
