"""A person releases a tool from quarantine: in every partition of the ledger, by command, and through restarts."""

import json
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from aetheris.cli import token_files
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(240)]

PARTITIONS = 2
QUARANTINE = {"AFTER": "4", "JOBS": "2", "S": "3600", "MAX_S": "3600"}
"""Nobody waits so long: what goes on was released."""
TOOL = "poke_probeable"


@dataclass(frozen=True)
class ReleaseRig(Rig):
    """Its tool is in quarantine until a person releases it."""

    def submit(self, tag: str, hold: str) -> str:
        retry = {"max_attempts": 30, "backoff_s": 0.1, "max_backoff_s": 0.5}
        return self.system.submit({"id": "a", "tool": TOOL, "args": {"tag": tag, "hold": hold}, "retry": retry})

    def held(self, job: str) -> bool:
        return "quarantine until" in self.system.job(job).get("why", "")

    def tool(self) -> dict[str, Any]:
        return next(one for one in self.system.api.get("/tools").json()["tools"] if one["name"] == TOOL)

    def release(self, tool: str, **body: str) -> httpx.Response:
        return self.system.api.post(f"/tools/{tool}/release", json=body, headers=self.system.approver)

    def cli(self, *argv: str) -> str:
        called = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(self.system.data)]
        return subprocess.run(called, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ReleaseRig]:
    env = {f"AETHERIS_QUARANTINE_{name}": value for name, value in QUARANTINE.items()}
    with running_rig(tmp_path_factory.mktemp("release"), {"AETHERIS_PARTITIONS": str(PARTITIONS), **env}) as rig:
        yield ReleaseRig(rig.system, rig.external)


def test_a_release_lets_calls_go_on_in_every_partition_and_outlives_the_ledger(rig: ReleaseRig) -> None:
    tag = fresh("released")
    down = rig.external.refuse(tag)
    jobs = [rig.submit(f"{tag}-{number}", tag) for number in range(16)]
    places = [partition_of(job, PARTITIONS) for job in jobs]
    assert min(places.count(number) for number in range(PARTITIONS)) >= 2, "two jobs make a tool wait"
    until(lambda: all(rig.held(job) for job in jobs), 60)
    down.unlink()
    reported = rig.cli("tools", "release", TOOL, "--reason", "the bank is back", "--as", token_files.APPROVER)
    assert reported.startswith(f"{TOOL}: released by ")
    rig.system.wait_ended(jobs)
    assert {rig.system.job(job)["status"] for job in jobs} == {"completed"}
    assert [rig.external.count(f"{tag}-{number}") for number in range(16)] == [1] * 16
    body = rig.tool()
    assert "quarantined" not in body
    assert body["released"]["reason"] == "the bank is back"
    rig.system.kill("ledger-0")
    rig.system.wait_ready()
    assert rig.tool()["released"] == body["released"]
    assert "the bank is back" in rig.cli("tools")
    later = rig.submit(f"{tag}-later", tag)
    rig.system.wait_ended([later])
    assert json.loads(rig.cli("job", later, "--json"))["status"] == "completed"


def test_a_tool_that_fails_again_waits_again_and_a_release_wants_a_reason_and_a_tool(rig: ReleaseRig) -> None:
    tag = fresh("again")
    down = rig.external.refuse(tag)
    jobs = [rig.submit(f"{tag}-{number}", tag) for number in range(12)]
    until(lambda: all(rig.held(job) for job in jobs), 60)
    assert rig.release(TOOL).status_code == 400
    unknown = rig.release("nobody", reason="x")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_tool")
    assert all(rig.held(job) for job in jobs)
    submitter = rig.system.api.post(f"/tools/{TOOL}/release", json={"reason": "mine to say"})
    assert (submitter.status_code, submitter.json()["error"]["code"]) == (403, "missing_role")
    down.unlink()
    assert rig.release(TOOL, reason="mended").status_code == 200
    rig.system.wait_ended(jobs)
