"""Ended jobs are compared with the outside by themselves, where a setting says so (docs/confirmation.md)."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.collector import Collector, running_collector
from tests.testkit.outside import until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
FAILED = "aetheris.confirmations.failed"


@dataclass(frozen=True)
class World:
    system: System
    root: Path
    collector: Collector

    def said(self, job: str, type_: str) -> list[dict[str, Any]]:
        return [one["data"] for one in self.system.api.get(f"/jobs/{job}/events").json() if one["type"] == type_]

    def wait_said(self, job: str, type_: str, count: int) -> list[dict[str, Any]]:
        until(lambda: len(self.said(job, type_)) >= count, PATIENCE_S)
        return self.said(job, type_)


@pytest.fixture
def world(tmp_path: Path) -> Generator[World]:
    folder = tmp_path
    root = folder / "files"
    root.mkdir()
    with running_collector() as collector:
        env = {
            "AETHERIS_TOOLS": "tests.testkit.file_tools",
            "FILES_ROOT": str(root),
            "AETHERIS_RECONCILE_EVERY_S": "2",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
        }
        with running_system(folder / "data", env) as system:
            yield World(system, root, collector)


def write(node: str, name: str) -> dict[str, Any]:
    return {"id": node, "tool": "write_file", "args": {"name": name, "text": name}}


def test_drift_is_found_by_itself_and_counted_as_long_as_it_lasts(world: World) -> None:
    job, empty = (
        world.system.submit(write("a", "s1"), write("b", "s2")),
        world.system.submit({"id": "t", "kind": "timer", "wait": {"for_s": 0.1}}),
    )
    world.system.wait_ended([job, empty])
    confirmed = world.wait_said(job, "effect_confirmed", 4)
    assert {(one["node_id"], one["mode"]) for one in confirmed} == {("a", "reconcile"), ("b", "reconcile")}
    assert (world.said(job, "confirmation_failed"), world.collector.value(FAILED) or 0) == ([], 0)

    (world.root / "s2").write_text("somebody else's")
    world.wait_said(job, "confirmation_failed", 1)
    world.system.kill("gateway-0")
    world.system.wait_ready()
    drift = world.wait_said(job, "confirmation_failed", 3)
    assert {(one["node_id"], one["reason"], *one["detail"]) for one in drift} == {("b", "drift", "etag")}
    until(lambda: (world.collector.value(FAILED) or 0) >= 3, PATIENCE_S)

    (world.root / "s2").write_text("s2")
    count = len(world.said(job, "effect_confirmed"))
    again = world.wait_said(job, "effect_confirmed", count + 4)[count:]
    assert "b" in {one["node_id"] for one in again}
    report = world.system.report(job)
    assert (report["violations"], report["seal"]["ok"]) == ([], True)
    assert [one["type"] for one in world.system.api.get(f"/jobs/{empty}/events").json()][-1] == "job_sealed"
