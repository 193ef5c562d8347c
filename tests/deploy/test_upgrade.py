"""Every service is replaced by its next version while jobs run: both work side by side, and nothing happens twice."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.fleet import FOLLOWING, FOLLOWING_RULES, PATIENCE_S, Fleet, running_fleet
from tests.deploy.next_version import FIELD, TYPE
from tests.testkit.external_server import until
from tests.testkit.system import System

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(900)]

BATCH = 8


@pytest.fixture
def fleet(tmp_path: Path) -> Generator[Fleet]:
    with running_fleet(tmp_path) as running:
        yield running


def chain(tag: str, hold: str = "") -> list[dict[str, Any]]:
    """Three steps, the first of which may be held back."""
    return [
        {"id": "a", "tool": "poke_probeable", "args": {"tag": f"{tag}-a", "hold": hold}},
        {"id": "b", "tool": "poke_idempotent", "args": {"tag": f"{tag}-b"}, "depends_on": ["a"]},
        {"id": "c", "tool": "poke_probeable", "args": {"tag": f"{tag}-c"}, "depends_on": ["b"]},
    ]


def test_each_service_is_replaced_while_jobs_run(fleet: Fleet) -> None:
    external_system = fleet.external
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
        fleet.start(service, 1, FOLLOWING)
        submit(system, f"{service}-beside")
        system.wait_ended([job for tag, job in jobs.items() if "-held" not in tag], PATIENCE_S)
        submit(system, f"{service}-after")
        if service == "tool_executor":
            fleet.kill(service, 0)
            fleet.start(service, 0, FOLLOWING)
        else:
            fleet.stop(service, 0)
        (external_system.folder / service).unlink()
        if service != "gateway":
            system.wait_ended(jobs.values(), PATIENCE_S)

    for service in ("planner", "ledger", "tool_executor", "prober", "verifier", "gateway"):
        fleet.start(service, 0)
    with fleet.api(0) as old, fleet.api(1) as new:
        for service in ("planner", "ledger", "tool_executor", "prober", "verifier", "gateway"):
            replace(old, service)
        new.wait_ended(jobs.values(), PATIENCE_S)
        fleet.start("planner", 2)  # the way back is open, too
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


def test_a_job_under_later_rules_waits_for_each_service_and_runs_once(fleet: Fleet) -> None:
    """What this version has of it is its creation, which it can't read; it takes part in nothing that follows."""
    external_system = fleet.external
    for service in ("ledger", "tool_executor", "prober", "verifier", "gateway"):
        fleet.start(service, 0)
    fleet.start("planner", 1, FOLLOWING_RULES)
    with fleet.api(0) as system:
        job = system.submit(*chain("later"))
        for service in ("ledger", "tool_executor"):
            assert external_system.count("later-a") == 0, service
            fleet.start(service, 1, FOLLOWING_RULES)
            fleet.stop(service, 0)
        until(lambda: external_system.count("later-c") == 1, PATIENCE_S)
    fleet.start("gateway", 1, FOLLOWING_RULES)
    with fleet.api(1) as system:
        system.wait_ended([job], PATIENCE_S)
        assert not {"job_sealed", "violation_found"} & set(system.types(job)), "the verifier has no say in it"
        fleet.start("verifier", 1, FOLLOWING_RULES)
        fleet.stop("verifier", 0)
        system.wait_sealed(job)
        assert "violation_found" not in system.types(job)
        assert system.job(job)["status"] == "completed"
        assert [external_system.count(f"later-{node}") for node in "abc"] == [1, 1, 1]
