"""The protocol's reference servers, as npm has them: every tool in a job, and the executor killed in calls of them."""

import json
import shutil
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.attempts import cleared_by, fresh
from tests.testkit.external_server import until
from tests.testkit.mcp_relay import calls
from tests.testkit.policies import ALLOW_ALL, ruled_by
from tests.testkit.system import REPOSITORY, System, running_system

pytestmark = [
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]

KILLS = 10
VERSION = "2026.8.31"


@dataclass(frozen=True)
class ReferenceServersRig:
    """A system with the tools of the protocol's reference servers, one of which works below `files`."""

    system: System
    folder: Path
    files: Path

    def key(self, job: str) -> str:
        return f"aetheris:{job}:a:0"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ReferenceServersRig]:
    folder = tmp_path_factory.mktemp("reference")
    names = [f"@modelcontextprotocol/server-{name}@{VERSION}" for name in ("everything", "filesystem", "memory")]
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", *names], cwd=folder, check=True, capture_output=True)
    files = folder / "files"
    files.mkdir()
    relay = [sys.executable, "-m", "tests.testkit.mcp_relay", str(folder)]

    def server(name: str, *args: str, **env: str) -> dict[str, Any]:
        argv = [*relay, str(folder / "node_modules" / ".bin" / f"mcp-server-{name}"), *args]
        own = {"command": argv[0], "args": argv[1:], "cwd": str(REPOSITORY), "env": env}
        return {**own, "annotations": "trusted"}

    servers = {
        "everything": server("everything"),
        "files": server("filesystem", str(files)),
        "memory": server("memory", MEMORY_FILE_PATH=str(folder / "memory.jsonl")),
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    env = {
        "AETHERIS_TOOLS": "tests.testkit.file_tools",
        "AETHERIS_MCP": str(folder / "mcp.json"),
        **ruled_by(folder, ALLOW_ALL),
    }
    held = folder / "hold"
    with running_system(folder / "data", env) as system, cleared_by(lambda: held.unlink(missing_ok=True)):
        yield ReferenceServersRig(system, folder, files)


def everything() -> list[tuple[str, dict[str, Any]]]:
    return [
        ("echo", {"message": "hello"}),
        ("get-annotated-message", {"messageType": "success", "includeImage": True}),
        ("get-env", {}),
        ("get-resource-links", {"count": 2}),
        ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
        ("get-structured-content", {"location": "Chicago"}),
        ("get-sum", {"a": 1, "b": 2}),
        ("get-tiny-image", {}),
        ("gzip-file-as-resource", {"data": "data:text/plain,hello"}),
        ("toggle-simulated-logging", {}),
        ("toggle-subscriber-updates", {}),
        ("trigger-long-running-operation", {"duration": 0.1, "steps": 1}),
    ]


def filesystem(root: Path) -> list[tuple[str, dict[str, Any]]]:
    """Calls below the folder `root`, which isn't there yet."""
    one, other = str(root / "one.txt"), str(root / "other.txt")
    return [
        ("create_directory", {"path": str(root)}),
        ("write_file", {"path": one, "content": "line\n"}),
        ("edit_file", {"path": one, "edits": [{"oldText": "line", "newText": "words"}]}),
        ("read_file", {"path": one}),
        ("read_text_file", {"path": one}),
        ("read_media_file", {"path": one}),
        ("read_multiple_files", {"paths": [one]}),
        ("move_file", {"source": one, "destination": other}),
        ("list_directory", {"path": str(root)}),
        ("list_directory_with_sizes", {"path": str(root)}),
        ("directory_tree", {"path": str(root)}),
        ("search_files", {"path": str(root), "pattern": "*.txt"}),
        ("get_file_info", {"path": other}),
        ("list_allowed_directories", {}),
    ]


def memory() -> list[tuple[str, dict[str, Any]]]:
    ada, bob = fresh("ada"), fresh("bob")
    people = [
        {"name": ada, "entityType": "person", "observations": ["counts"]},
        {"name": bob, "entityType": "person", "observations": []},
    ]
    knows = {"from": ada, "to": bob, "relationType": "knows"}
    return [
        ("create_entities", {"entities": people}),
        ("create_relations", {"relations": [knows]}),
        ("add_observations", {"observations": [{"entityName": bob, "contents": ["sings"]}]}),
        ("read_graph", {}),
        ("search_nodes", {"query": ada}),
        ("open_nodes", {"names": [bob]}),
        ("delete_observations", {"deletions": [{"entityName": bob, "observations": ["sings"]}]}),
        ("delete_relations", {"relations": [knows]}),
        ("delete_entities", {"entityNames": [bob]}),
    ]


def test_every_tool_can_be_called_in_a_job(rig: ReferenceServersRig) -> None:
    tools = {tool["name"]: tool for tool in rig.system.api.get("/tools").json()["tools"]}
    root = rig.files / fresh("d")
    plan = {"everything": everything(), "files": filesystem(root), "memory": memory()}
    known = {f"{server}.{name}" for server, wanted in plan.items() for name, _ in wanted}
    assert {name for name in tools if "." in name} == known, "all but the one that is called as a task only"
    meant = {name: (tools[name]["effect_class"], tools[name]["irreversible"]) for name in known}
    assert meant["files.read_file"] == ("pure", False)
    assert meant["files.write_file"] == ("idempotent", True)
    assert meant["memory.create_entities"] == ("opaque", False)
    jobs: list[str] = []
    for server, wanted in plan.items():
        nodes: list[dict[str, Any]] = []
        for place, (name, args) in enumerate(wanted):
            after = {"depends_on": [f"n{place - 1}"]} if place else {}
            nodes.append({"id": f"n{place}", "tool": f"{server}.{name}", "args": args, **after})
        jobs.append(rig.system.submit(*nodes))
    rig.system.wait_ended(jobs, 120)
    for job in jobs:
        shown = rig.system.job(job)
        assert shown["status"] == "completed", [step for step in shown["steps"] if step["state"] != "completed"]
    assert (root / "other.txt").read_text() == "words\n"


def test_the_executor_is_killed_in_calls(rig: ReferenceServersRig) -> None:
    held, tag = rig.folder / "hold", fresh("k")
    jobs: dict[tuple[str, int], str] = {}
    for kill in range(KILLS):
        held.touch()
        entity = {"name": f"{tag}-{kill}", "entityType": "t", "observations": []}
        args = {
            "everything.get-sum": {"a": kill, "b": 1},
            "files.write_file": {"path": str(rig.files / f"{tag}-{kill}"), "content": "x"},
            "memory.create_entities": {"entities": [entity]},
        }
        for tool, given in args.items():
            jobs[tool, kill] = rig.system.submit({"id": "a", "tool": tool, "args": given})
        keys = [rig.key(jobs[tool, kill]) for tool in args]
        until(lambda keys=keys: all(calls(rig.folder, key) for key in keys), 60)
        rig.system.kill("executor-0")
        held.unlink()
        rig.system.wait_ended([jobs["everything.get-sum", kill], jobs["files.write_file", kill]], 120)
        opaque = jobs["memory.create_entities", kill]
        until(lambda job=opaque: "is parked" in str(rig.system.job(job).get("why")), 60)
    executed = {place: len(calls(rig.folder, rig.key(job))) for place, job in jobs.items()}
    assert all(executed[tool, kill] == (1 if tool.startswith("memory") else 2) for tool, kill in executed), executed
    assert all(rig.system.report(job)["violations"] == [] for job in jobs.values())
