"""A real tracing back end: who has an idempotency key finds its trace, also where a crash cut the call off."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.processes import end, spawn
from aetheris.protocol.base.keys import job_key
from tests.deploy.built import built, go_needed
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(4000), go_needed]

PATIENCE_S = 90.0
SERVICES = {"aetheris-planner", "aetheris-ledger", "aetheris-tool_executor", "aetheris-prober", "aetheris-verifier"}
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "trace-across-a-crash.json"


@dataclass(frozen=True)
class Jaeger:
    """Where it takes spans, and where it is asked."""

    otlp: str
    query: str

    def trace(self, trace_id: str) -> dict[str, Any] | None:
        """As its API has it; None while there is none."""
        answer = httpx.get(f"{self.query}/api/traces/{trace_id}", timeout=10, trust_env=False)
        return answer.json()["data"][0] if answer.status_code == 200 else None

    def wait_trace(self, trace_id: str, services: set[str]) -> dict[str, Any]:
        """The trace, once these services are in it."""

        def seen() -> bool:
            found = self.trace(trace_id)
            return found is not None and {one["serviceName"] for one in found["processes"].values()} >= services

        until(seen, PATIENCE_S)
        found = self.trace(trace_id)
        assert found is not None
        return found


@contextmanager
def running_jaeger(folder: Path) -> Generator[Jaeger]:
    """Jaeger with everything in memory."""
    program = built(Path(__file__).parent / "jaeger", "github.com/jaegertracing/jaeger/cmd/jaeger", "jaeger")
    folder.mkdir()
    ports = Ports(folder)
    at = {name: f"127.0.0.1:{ports.get(name)}" for name in ("otlp", "query", "query-grpc")}
    settings = {
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
        "extensions": {
            "jaeger_query": {
                "storage": {"traces": "memory"},
                "http": {"endpoint": at["query"]},
                "grpc": {"endpoint": at["query-grpc"]},
            },
            "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": 10_000}}}},
        },
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": at["otlp"]}}}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
    }
    (folder / "jaeger.yaml").write_text(yaml.safe_dump(settings))
    child = spawn([str(program), "--config", str(folder / "jaeger.yaml")], log=folder / "jaeger.log")
    found = Jaeger(f"http://{at['otlp']}", f"http://{at['query']}")
    try:
        until(lambda: _answers(found), 60)
        yield found
    finally:
        end(child, 10.0)


def _answers(jaeger: Jaeger) -> bool:
    try:
        return httpx.get(f"{jaeger.query}/api/services", timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@dataclass(frozen=True)
class JaegerRig(Rig):
    """Its spans arrive at `jaeger`."""

    jaeger: Jaeger

    def keys(self, job: str) -> dict[str, str]:
        """The idempotency key of each step."""
        steps = self.system.api.get(f"/jobs/{job}/trace").json()["steps"]
        return {step["node_id"]: key["idempotency_key"] for step in steps for key in step["keys"]}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[JaegerRig]:
    folder = tmp_path_factory.mktemp("traced")
    with running_jaeger(folder / "jaeger") as jaeger:
        env = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{jaeger.otlp}/v1/traces",
            "OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp,
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        with running_rig(folder, env) as rig:
            yield JaegerRig(rig.system, rig.external, jaeger)


def named(trace: dict[str, Any]) -> dict[str, set[str]]:
    """Service → the names of its spans."""
    found: dict[str, set[str]] = {}
    for span in trace["spans"]:
        found.setdefault(trace["processes"][span["processID"]]["serviceName"], set()).add(span["operationName"])
    return found


def links(trace: dict[str, Any]) -> set[str]:
    """The other traces that its spans name."""
    return {one["traceID"] for span in trace["spans"] for one in span["references"]} - {trace["traceID"]}


def test_a_key_is_all_that_finding_its_trace_takes_also_across_a_crash(rig: JaegerRig) -> None:
    tag = fresh("crossed")
    held = rig.external.hold(tag)
    job = rig.system.submit(
        {"id": "a", "tool": "poke_probeable", "args": {"tag": tag, "hold": tag}},
        {"id": "b", "tool": "poke_pure", "args": {"tag": f"{tag}-b"}, "depends_on": ["a"]},
    )
    rig.external.wait_for(1, tag, PATIENCE_S)
    key = rig.keys(job)["a"]
    rig.jaeger.wait_trace(key[:32], {"aetheris-tool_executor"})  # what the call's first span says is out
    rig.system.kill("executor-0")
    held.unlink()
    rig.system.wait_status(job, "completed", PATIENCE_S)

    until(
        lambda: (
            "probe poke_probeable" in named(rig.jaeger.trace(key[:32]) or {"spans": []}).get("aetheris-prober", set())
        ),
        PATIENCE_S,
    )
    trace = rig.jaeger.wait_trace(key[:32], SERVICES)
    names = named(trace)
    assert "request" in names["aetheris-planner"]
    assert {"adjudicate", "judge"} <= names["aetheris-ledger"]
    assert names["aetheris-tool_executor"] == {"begin"}, "the call itself was cut off"
    assert "probe poke_probeable" in names["aetheris-prober"]
    known = {span["spanID"] for span in trace["spans"]}
    above = [one["spanID"] for span in trace["spans"] for one in span["references"] if one["traceID"] == key[:32]]
    assert set(above) <= known, "no gap"
    assert tag not in json.dumps([span["tags"] for span in trace["spans"]]), "no arguments"

    of_keys, of_job = {one[:32] for one in rig.keys(job).values()}, job_key(job)[:32]
    until(lambda: links(rig.jaeger.trace(of_job) or {"traceID": "", "spans": []}) == of_keys, PATIENCE_S)
    whole = rig.jaeger.wait_trace(of_job, {"aetheris-gateway", "aetheris-verifier"})
    assert named(whole) == {
        "aetheris-gateway": {"command submit"},
        "aetheris-verifier": {"step poke_probeable", "step poke_pure"},
    }
    begun = next(one["startTime"] for one in trace["spans"] if one["operationName"] == "begin")
    cut_off = next(one for one in whole["spans"] if one["operationName"] == "step poke_probeable")
    probed = next(one for one in trace["spans"] if one["operationName"] == "probe poke_probeable")
    assert cut_off["startTime"] <= begun, "from the try's start"
    assert cut_off["startTime"] + cut_off["duration"] >= probed["startTime"], "to what settled it"
    assert job_key(job)[:32] in links(trace)
    if "AETHERIS_EXAMPLES" in os.environ:
        EXAMPLE.parent.mkdir(exist_ok=True)
        EXAMPLE.write_text(json.dumps({"data": [trace, whole]}, indent=1) + "\n")


def test_a_call_shows_its_parts_and_the_command_line_links_to_them(rig: JaegerRig) -> None:
    job = rig.system.submit({"id": "a", "tool": "poke_idempotent", "args": {"tag": "plain"}})
    rig.system.wait_status(job, "completed", PATIENCE_S)
    key = rig.keys(job)["a"]
    names = named(rig.jaeger.wait_trace(key[:32], SERVICES - {"aetheris-prober"}))  # nobody had to ask
    assert {"begin", "execute_tool poke_idempotent", "put_effect"} <= names["aetheris-tool_executor"]
    assert "audit" in names["aetheris-verifier"]
    env = {"AETHERIS_TRACE_URL": f"{rig.jaeger.query}/trace/{{trace_id}}", "COLUMNS": "200"}
    done = CliRunner().invoke(app, ["trace", job, "--data", str(rig.system.data)], env=env)
    assert done.exit_code == 0, done.output
    for trace_id in (key[:32], job_key(job)[:32]):
        assert f"{rig.jaeger.query}/trace/{trace_id}" in done.output
