"""What an earlier job gave is used as it is by the one that continues it, however large, whatever it looks like."""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.bundles import opinions
from tests.testkit.external_server import ExternalServer
from tests.testkit.rig import TOOLS, Rig, running_rig
from tests.testkit.system import REPOSITORY, System

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

REFUSED = {"id": "r", "tool": "poke_refused", "args": {}, "depends_on": ["a"]}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    tools = {"AETHERIS_TOOLS": f"{TOOLS},tests.testkit.saying_tools"}
    with running_rig(tmp_path_factory.mktemp("results"), tools) as rig:
        yield rig


def say(node: str, tag: str, json_text: str, **more: Any) -> dict[str, Any]:
    return {"id": node, "tool": "say", "args": {"tag": tag, "json_text": json_text, **more}}


def repeat(node: str, what: Any, before: str) -> dict[str, Any]:
    return {"id": node, "tool": "repeat", "args": {"what": what, "before": before}}


def continued(system: System, job: str, *nodes: dict[str, Any], status: str = "completed") -> str:
    """The job that continues one that has failed, once it has come to its end."""
    system.wait_status(job, "failed", 60)
    system.wait_sealed(job)
    answer = system.api.post(f"/jobs/{job}/continue", json={"plan": {"nodes": list(nodes)}} if nodes else {})
    assert answer.status_code == 202, answer.text
    second = answer.json()["job_id"]
    system.wait_ended([second], 60)
    assert system.job(second)["status"] == status, system.job(second)
    system.wait_sealed(second)
    return second


def holds(system: System, job: str, folder: Path) -> None:
    system.verified(job)
    answer = system.api.get(f"/jobs/{job}/evidence")
    assert answer.status_code == 200, answer.text
    for report in opinions(system, answer.content, folder):
        assert report["ok"], report["violations"]


def test_large_results_and_such_as_hold_references_are_used_through_two_continuations(
    system: System, external: ExternalServer, tmp_path: Path
) -> None:
    large, odd, before = fresh("large"), fresh("odd"), fresh("was")
    used = [
        repeat("b", {"$ref": "a#/text"}, f"{before}-b-"),
        repeat("d", {"$ref": "c#"}, f"{before}-d-"),
        repeat("e", {"$ref": "c#/plain"}, f"{before}-e-"),
    ]
    job = system.submit(
        say("a", large, '{"text": "0123456789"}', times=9_000),
        say("c", odd, '{"$ref": "a#/text", "plain": ["$ref", {"$ref": "b#"}]}'),
        REFUSED | {"depends_on": ["a", "c"]},
        *(one | {"depends_on": ["r"]} for one in used),
    )
    behind = [one | {"depends_on": ["r"]} for one in used[1:]]
    second = continued(system, job, used[0], REFUSED | {"depends_on": ["b"]}, *behind, status="failed")
    third = continued(system, second, *used[1:], repeat("f", {"$ref": f"{job}/a#/text"}, f"{before}-f-"))
    assert [external.count(tag) for tag in (large, odd)] == [1, 1]
    text = '"' + "0123456789" * 9_000
    reported = {
        "b": f"90002:{text[:100]}",
        "d": '58:{"$ref":"a#/text","plain":["$ref",{"$ref":"b#"}]}',
        "e": '22:["$ref",{"$ref":"b#"}]',
        "f": f"90002:{text[:100]}",
    }
    reported["d"] = reported["d"].replace("58:", f"{len(reported['d']) - 3}:")
    assert {node: external.count(f"{before}-{node}-{tag}") for node, tag in reported.items()} == dict.fromkeys(
        reported, 1
    )
    (created,) = system.data_of(third, "job_created")
    assert {one["name"] for one in created["continues"]["given"]} == {f"{job}/c"}
    holds(system, third, tmp_path)
    replayed = system.api.get(f"/jobs/{third}/replay")
    assert replayed.status_code == 200
    assert (replayed.json()["ok"], replayed.json()["unchecked"]) == (True, 0)
    command = [sys.executable, "-m", "aetheris.cli", "replay", str(tmp_path / "evidence.zip"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False)
    assert (done.returncode, json.loads(done.stdout)["unchecked"]) == (0, 0), done.stderr
