"""Ended jobs are compared with the external system by themselves, where a setting says so (docs/confirmation.md)."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.collector import Collector, running_collector
from tests.testkit.external_server import until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
FAILED = "aetheris.confirmations.failed"


@dataclass(frozen=True)
class ReconciledRig:
    """A system whose tools write files below `root`, and compares them by itself."""

    system: System
    root: Path
    collector: Collector

    def wait_said(self, job: str, type_: str, count: int) -> list[dict[str, Any]]:
        until(lambda: len(self.system.data_of(job, type_)) >= count, PATIENCE_S)
        return self.system.data_of(job, type_)


@pytest.fixture
def rig(tmp_path: Path) -> Generator[ReconciledRig]:
    folder = tmp_path
    root = folder / "files"
    root.mkdir()
    with running_collector() as collector:
        env = {
            "AETHERIS_TOOLS": "tests.testkit.file_tools",
            "FILES_ROOT": str(root),
            "AETHERIS_RECONCILE_EVERY_S": "2",
            **collector.env,
        }
        with running_system(folder / "data", env) as system:
            yield ReconciledRig(system, root, collector)


def write(node: str, name: str) -> dict[str, Any]:
    return {"id": node, "tool": "write_file", "args": {"name": name, "text": name}}


def test_drift_is_found_by_itself_and_counted_as_long_as_it_lasts(rig: ReconciledRig) -> None:
    job, empty = (
        rig.system.submit(write("a", "s1"), write("b", "s2")),
        rig.system.submit({"id": "t", "kind": "timer", "wait": {"for_s": 0.1}}),
    )
    rig.system.wait_ended([job, empty])
    confirmed = rig.wait_said(job, "effect_confirmed", 4)
    assert {(one["node_id"], one["mode"]) for one in confirmed} == {("a", "reconcile"), ("b", "reconcile")}
    assert (rig.system.data_of(job, "confirmation_failed"), rig.collector.value(FAILED) or 0) == ([], 0)

    (rig.root / "s2").write_text("somebody else's")
    rig.wait_said(job, "confirmation_failed", 1)
    rig.system.kill("gateway-0")
    rig.system.wait_ready()
    drift = rig.wait_said(job, "confirmation_failed", 3)
    assert {(one["node_id"], one["reason"], *one["detail"]) for one in drift} == {("b", "drift", "etag")}
    until(lambda: (rig.collector.value(FAILED) or 0) >= 3, PATIENCE_S)

    (rig.root / "s2").write_text("s2")
    count = len(rig.system.data_of(job, "effect_confirmed"))
    again = rig.wait_said(job, "effect_confirmed", count + 4)[count:]
    assert "b" in {one["node_id"] for one in again}
    report = rig.system.report(job)
    assert (report["violations"], report["seal"]["ok"]) == ([], True)
    assert rig.system.types(empty)[-1] == "job_sealed"
