"""A canary secret, given to tools that do their worst with it: it is nowhere but in their hands (docs/secrets.md)."""

import base64
import hashlib
import json
import os
import re
import secrets
import subprocess
import sys
import zipfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.collector import Collector, running_collector
from tests.testkit.external_server import until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

MARK = b"[secret canary@1]"


@dataclass(frozen=True)
class SecretsRig:
    """A system that knows a secret, `canary`; `seen` is what its tools were given."""

    system: System
    canary: str
    seen: Path
    folder: Path
    collector: Collector

    def errors(self, job: str) -> list[str]:
        return [one["error"] for one in self.system.data_of(job, "tool_invocation_finished") if "error" in one]

    def given(self) -> set[str]:
        return set(self.seen.read_text().split())

    def everywhere(self, *jobs: str) -> Iterator[tuple[str, bytes]]:
        """Whatever the system kept, wrote or answers."""
        for path in self.system.data.rglob("*"):
            if path.is_file():
                yield str(path.relative_to(self.system.data)), path.read_bytes()
        views = ("", "/events", "/trace", "/effects", "/ledger", "/contracts", "/replay", "/verify")
        for job in jobs:
            for view in views:
                answer = self.system.api.get(f"/jobs/{job}{view}")
                assert answer.status_code == 200, (view, answer.text)
                yield view, answer.content
        for job in jobs[:2]:
            page, bundle = self.folder / f"{job}.html", self.folder / f"{job}.zip"
            self.aetheris("trace", job, "--html", str(page))
            self.aetheris("export", job, "--out", str(bundle))
            yield "page", page.read_bytes()
            with zipfile.ZipFile(bundle) as members:
                yield from (("bundle", _with_decoded(members.read(name))) for name in members.namelist())
        for body in self.collector.bodies():
            yield "telemetry", body

    def aetheris(self, *args: str) -> None:
        argv = [sys.executable, "-m", "aetheris.cli", *args, "--data", str(self.system.data)]
        ran = subprocess.run(argv, capture_output=True, text=True, env={**os.environ}, check=False)
        assert ran.returncode == 0, ran.stderr


def _with_decoded(content: bytes) -> bytes:
    """A bundle keeps each record's bytes in base64, and so does its envelope."""
    for _ in range(2):
        runs = re.findall(rb"[A-Za-z0-9+/]{20,}={0,2}", content)
        content += b"\n".join(base64.b64decode(run) for run in runs if len(run) % 4 == 0)
    return content


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[SecretsRig]:
    folder = tmp_path_factory.mktemp("secrets")
    canary, seen = f'canary/{secrets.token_urlsafe(24)}+"ä', folder / "seen"
    seen.touch()
    (folder / "canary-1").write_text(f"{canary}\n")
    declared = folder / "secrets.toml"
    uses = ["leak#/token", "raises@1#/token", "takes#/what/inner"]
    places = {
        "canary@1": ("file", "canary-1", uses),
        "gone@1": ("file", "not-there", uses),
        "short@1": ("env", "S", uses),
    }
    declared.write_text(
        "\n".join(
            f'[[secrets]]\nname = "{name}"\n{kind} = "{place}"\nuses = {json.dumps(used)}'
            for name, (kind, place, used) in places.items()
        )
    )
    with running_collector() as collector:
        env = {
            "AETHERIS_TOOLS": "tests.testkit.secret_tools",
            "AETHERIS_SECRETS": str(declared),
            "SECRET_SEEN": str(seen),
            "S": "short",
            **collector.env,
        }
        with running_system(folder / "data", env) as system:
            yield SecretsRig(system, canary, seen, folder, collector)


def secret(name: str) -> dict[str, str]:
    return {"$secret": name}


def test_a_canary_is_nowhere_but_in_the_tools_hands(rig: SecretsRig) -> None:
    token = secret("canary@1")
    leaks = rig.system.submit(
        {"id": "a", "tool": "leak", "args": {"token": token}},
        {"id": "b", "tool": "leak", "args": {"token": token, "large": 4000}, "depends_on": ["a"]},
    )
    once = {"max_attempts": 1}
    hows = ("failed", "not_executed", "lost")
    args = {how: {"token": token, "how": how} for how in hows}
    raising = [rig.system.submit({"id": "r", "tool": "raises", "args": args[how], "retry": once}) for how in hows]
    rig.system.wait_ended([leaks, *raising])
    assert rig.system.job(leaks)["status"] == "completed"
    assert hashlib.sha256(rig.canary.encode()).hexdigest() in rig.given()
    started = rig.system.events(leaks, "tool_invocation_started")[0]["data"]
    reference = b'{"large":0,"token":{"$secret":"canary@1"}}'
    assert started["args_hash"] == hashlib.sha256(reference).hexdigest()
    assert any("[secret canary@1]" in error for job in raising for error in rig.errors(job))
    ended = {one["data"]["node_id"]: one["data"] for one in rig.system.events(leaks, "tool_invocation_finished")}
    large = ended["b"]["result_ref"]
    blob = (rig.system.data / "blobs" / large["sha256"][:2] / large["sha256"]).read_bytes()
    assert MARK in blob
    until(lambda: all(rig.system.events(job, "job_sealed") for job in (leaks, *raising)), 30)
    until(lambda: any(b"execute_tool leak" in body for body in rig.collector.bodies()), 30)
    sought = [rig.canary.encode(), rig.canary.encode().hex().encode(), json.dumps(rig.canary)[1:-1].encode()]
    inner = base64.b64encode(rig.canary.encode()).rstrip(b"=")[:-1]
    user = base64.b64encode(f"user:{rig.canary}".encode())[8:-4]
    half = rig.canary.encode()[: len(rig.canary) // 2]
    controls: set[str] = set()
    for place, content in rig.everywhere(leaks, *raising):
        for form in (*sought, inner, user, half):
            assert form not in content, f"the canary is in {place}"
        if b"canary-control" in content or MARK in content:
            controls.add(place.split("/")[0] or "job")
    assert {"kafka", "valkey", "blobs", "logs", "page", "bundle", "job"} <= controls, controls


@pytest.mark.parametrize(
    ("tool", "args", "text"),
    [
        ("leak", {"token": secret("nobody@1")}, "unknown secret nobody@1"),
        ("leak", {"token": secret("canary@2")}, "unknown secret canary@2"),
        ("leak", {"token": secret("gone@1")}, "NotExecuted: secret gone@1 can't be read"),
        (
            "leak",
            {"token": secret("short@1")},
            "secret short@1 is too short to be kept out of results: 8 characters at least",
        ),
        ("takes", {"what": secret("canary@1")}, "secret canary@1 is not for takes#/what"),
        ("takes", {"what": {"inner": {"x": secret("canary@1")}}}, "secret canary@1 is not for takes#/what/inner/x"),
    ],
)
def test_what_a_tool_is_not_given(rig: SecretsRig, tool: str, args: dict[str, Any], text: str) -> None:
    before = rig.given()
    job = rig.system.submit({"id": "a", "tool": tool, "args": args, "retry": {"max_attempts": 1}})
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "failed"
    assert set(rig.errors(job)) == {text}
    assert rig.given() == before


def test_only_a_plan_names_a_secret(rig: SecretsRig) -> None:
    before = rig.given()
    job = rig.system.submit(
        {"id": "a", "tool": "crafts", "args": {"name": "canary@1"}},
        {"id": "b", "tool": "takes", "args": {"what": {"$ref": "a#"}}},
    )
    rig.system.wait_ended([job])
    (failed,) = [step for step in rig.system.job(job)["steps"] if step["node_id"] == "b"]
    assert "which only a plan may" in failed["reason"]
    assert rig.given() == before


@pytest.mark.parametrize("wrong", ["canary", "canary@1@2", "", 1, None])
def test_a_secret_that_is_written_in_another_way_is_refused_at_once(rig: SecretsRig, wrong: Any) -> None:
    node = {"id": "a", "tool": "takes", "args": {"what": [{"$secret": wrong}]}}
    answer = rig.system.api.post("/jobs", json={"plan": {"nodes": [node]}})
    assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, "plan.nodes[0].args/what/0")
