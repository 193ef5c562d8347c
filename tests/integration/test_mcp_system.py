"""Tools of an MCP server in jobs, on the whole system: the executor is killed in mid-call, again and again."""

import asyncio
import json
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.testkit.attempts import cleared_by, fresh
from tests.testkit.external_server import until
from tests.testkit.mcp_client import agent, asked
from tests.testkit.mcp_server import effects
from tests.testkit.policies import ruled_by
from tests.testkit.system import REPOSITORY, System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

KILLS = 3
POLICY = """
[[rules]]
name = "put"
tools = ["t.put"]
irreversible = true
effect = "approval"

[[rules]]
name = "all"
tools = ["*"]
effect = "allow"
"""


@dataclass(frozen=True)
class McpRig:
    """A system with the tools of an MCP server that keeps its effects in `home`."""

    system: System
    home: Path

    def submit(self, tool: str, text: str) -> str:
        return self.system.submit({"id": "a", "tool": f"t.{tool}", "args": {"text": text, "hold": True}})


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[McpRig]:
    folder = tmp_path_factory.mktemp("mcp")
    home = folder / "home"
    home.mkdir()
    command = [sys.executable, "-m", "tests.testkit.mcp_server", str(home)]
    server: dict[str, Any] = {"command": command[0], "args": command[1:], "cwd": str(REPOSITORY)}
    server["annotations"] = "trusted"
    server["tools"] = {"issue": {"external_key": "request_id", "effect_class": "idempotent"}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"t": server, "gone": {"command": "no-such-command"}}}))
    env = {
        "AETHERIS_TOOLS": "tests.testkit.file_tools",
        "AETHERIS_MCP": str(folder / "mcp.json"),
        **ruled_by(folder, POLICY),
    }
    held = home / "hold"
    with running_system(folder / "data", env) as system, cleared_by(lambda: held.unlink(missing_ok=True)):
        yield McpRig(system, home)


def test_no_call_is_executed_twice_where_that_can_be_known(rig: McpRig) -> None:
    tools, held, name = ("look", "put", "add", "act"), rig.home / "hold", fresh("killed")
    jobs: dict[tuple[str, int], str] = {}
    for kill in range(KILLS):
        held.touch()
        for tool in tools:
            jobs[tool, kill] = rig.submit(tool, f"{name} {kill}")
        until(lambda kill=kill: all(effects(rig.home, tool, f"{name} {kill}") for tool in tools), 60)
        rig.system.kill("executor-0")
        held.unlink()
        rig.system.wait_ended([jobs["look", kill], jobs["put", kill]])
        for tool in ("add", "act"):
            until(lambda job=jobs[tool, kill]: "is parked" in str(rig.system.job(job).get("why")), 60)
    for (tool, kill), job in jobs.items():
        done = effects(rig.home, tool, f"{name} {kill}")
        started = rig.system.data_of(job, "tool_invocation_started")
        assert len({one["external_key"] for one in started}) == 1
        assert {one["key"] for one in done} == {started[0]["external_key"]}
        assert len(done) == len(started) == (2 if tool in ("look", "put") else 1), (tool, done)
        status = rig.system.job(job)["status"]
        assert status == ("completed" if tool in ("look", "put") else "waiting")
        assert rig.system.report(job)["violations"] == []


def test_a_server_that_knows_the_key_is_asked_again_and_acts_once(rig: McpRig) -> None:
    held, text = rig.home / "hold", fresh("keyed")
    held.touch()
    job = rig.submit("issue", text)
    until(lambda: bool(effects(rig.home, "issue", text)), 60)
    rig.system.kill("executor-0")
    held.unlink()
    rig.system.wait_ended([job])
    assert (rig.system.job(job)["status"], len(rig.system.data_of(job, "tool_invocation_started"))) == ("completed", 2)
    (done,) = effects(rig.home, "issue", text)
    assert (
        done["args"]["request_id"]
        == done["key"]
        == rig.system.data_of(job, "tool_invocation_started")[0]["external_key"]
    )


def test_a_server_that_dies_in_a_call_leaves_it_to_a_human(rig: McpRig) -> None:
    dead, later = fresh("dead"), fresh("after")
    job = rig.submit("dies", dead)
    until(lambda: "is parked" in str(rig.system.job(job).get("why")), 60)
    assert len(effects(rig.home, "dies", dead)) == 1
    (step,) = rig.system.job(job)["steps"]
    answer = rig.system.resolve(job, step["node_id"], "happened", result={"content": []})
    assert answer.status_code in (200, 202), answer.text
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    after = rig.submit("put", later)
    rig.system.wait_ended([after])
    assert len(effects(rig.home, "put", later)) == 1


async def listed(client: Client, request_id: str) -> None:
    """Return once the list of what waits for a human shows the request: it follows the log."""
    async with asyncio.timeout(60):
        while request_id not in str(await asked(client, "approvals")):  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.05)


async def test_an_agent_elsewhere_submits_watches_approves_and_verifies(rig: McpRig) -> None:
    text, key = fresh("from elsewhere"), fresh("k-1")
    plan = {"nodes": [{"id": "a", "tool": "t.put", "args": {"text": text}, "irreversible": True}]}
    async with agent(rig.system.data, "--approve-as", "approver") as client:
        offered = await client.list_tools()
        assert {tool.name for tool in offered.tools} == {"submit", "watch", "verify", "tools", "approvals", "approve"}
        first = await asked(client, "submit", idempotency_key=key, plan=plan)
        assert first["job_id"] == (await asked(client, "submit", idempotency_key=key, plan=plan))["job_id"]
        job = {"job_id": first["job_id"]}
        waiting = await asked(client, "watch", **job, wait_s=60)
        assert waiting["status"] == "waiting"
        request_id = waiting["steps"][0]["request_id"]
        assert effects(rig.home, "put", text) == []
        await listed(client, request_id)
        body = {"request_id": request_id, "action": "approve", "comment": "seen"}
        assert (await asked(client, "approve", **body))["event"] == "approval_decided"
        ended = await asked(client, "watch", **job, wait_s=60)
        assert (ended["status"], ended["steps"][0]["request_id"]) == ("completed", None)
        assert (await asked(client, "verify", **job))["violations"] == []
        assert len(effects(rig.home, "put", text)) == 1
        assert "t.put" in {tool["name"] for tool in (await asked(client, "tools"))["tools"]}
        refused = await client.call_tool("submit", {"idempotency_key": "k-2", "plan": {"nodes": [{"id": "a"}]}})
        assert refused.is_error
        assert "plan.nodes[0].tool" in str(refused.content) or "invalid_plan" in str(refused.content)
        assert (await client.call_tool("watch", {"job_id": "../tools"})).is_error
    async with agent(rig.system.data) as client:
        assert "approve" not in {tool.name for tool in (await client.list_tools()).tools}
