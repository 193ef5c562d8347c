"""Tools of an MCP server in jobs, on the whole system: the executor is killed in mid-call, again and again."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.testkit.attempts import cleared_by, fresh
from tests.testkit.mcp_server import effects
from tests.testkit.outside import until
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
class World:
    system: System
    home: Path

    def started(self, job: str) -> list[dict[str, Any]]:
        found = self.system.api.get(f"/jobs/{job}/events").json()
        return [event["data"] for event in found if event["type"] == "tool_invocation_started"]

    def submit(self, tool: str, text: str) -> str:
        return self.system.submit({"id": "a", "tool": f"t.{tool}", "args": {"text": text, "hold": True}})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("mcp")
    home = folder / "home"
    home.mkdir()
    command = [sys.executable, "-m", "tests.testkit.mcp_server", str(home)]
    server: dict[str, Any] = {"command": command[0], "args": command[1:], "cwd": str(REPOSITORY)}
    server["tools"] = {"issue": {"external_key": "request_id", "effect_class": "idempotent"}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"t": server, "gone": {"command": "no-such-command"}}}))
    (folder / "policy.toml").write_text(POLICY)
    env = {
        "AETHERIS_TOOLS": "tests.testkit.file_tools",
        "AETHERIS_MCP": str(folder / "mcp.json"),
        "AETHERIS_POLICY": str(folder / "policy.toml"),
    }
    held = home / "hold"
    with running_system(folder / "data", env) as system, cleared_by(lambda: held.unlink(missing_ok=True)):
        yield World(system, home)


def test_no_call_is_executed_twice_where_that_can_be_known(world: World) -> None:
    tools, held, name = ("look", "put", "add", "act"), world.home / "hold", fresh("killed")
    jobs: dict[tuple[str, int], str] = {}
    for kill in range(KILLS):
        held.touch()
        for tool in tools:
            jobs[tool, kill] = world.submit(tool, f"{name} {kill}")
        until(lambda kill=kill: all(effects(world.home, tool, f"{name} {kill}") for tool in tools), 60)
        world.system.kill("executor-0")
        held.unlink()
        world.system.wait_ended([jobs["look", kill], jobs["put", kill]])
        for tool in ("add", "act"):
            until(lambda job=jobs[tool, kill]: "is parked" in str(world.system.job(job).get("why")), 60)
    for (tool, kill), job in jobs.items():
        done = effects(world.home, tool, f"{name} {kill}")
        started = world.started(job)
        assert len({one["external_key"] for one in started}) == 1
        assert {one["key"] for one in done} == {started[0]["external_key"]}
        assert len(done) == len(started) == (2 if tool in ("look", "put") else 1), (tool, done)
        status = world.system.job(job)["status"]
        assert status == ("completed" if tool in ("look", "put") else "waiting")
        assert world.system.report(job)["violations"] == []


def test_a_server_that_knows_the_key_is_asked_again_and_acts_once(world: World) -> None:
    held, text = world.home / "hold", fresh("keyed")
    held.touch()
    job = world.submit("issue", text)
    until(lambda: bool(effects(world.home, "issue", text)), 60)
    world.system.kill("executor-0")
    held.unlink()
    world.system.wait_ended([job])
    assert (world.system.job(job)["status"], len(world.started(job))) == ("completed", 2)
    (done,) = effects(world.home, "issue", text)
    assert done["args"]["request_id"] == done["key"] == world.started(job)[0]["external_key"]


def test_a_server_that_dies_in_a_call_leaves_it_to_a_human(world: World) -> None:
    dead, later = fresh("dead"), fresh("after")
    job = world.submit("dies", dead)
    until(lambda: "is parked" in str(world.system.job(job).get("why")), 60)
    assert len(effects(world.home, "dies", dead)) == 1
    (step,) = world.system.job(job)["steps"]
    answer = world.system.resolve(job, step["node_id"], "happened", result={"content": []})
    assert answer.status_code in (200, 202), answer.text
    world.system.wait_ended([job])
    assert world.system.job(job)["status"] == "completed"
    after = world.submit("put", later)
    world.system.wait_ended([after])
    assert len(effects(world.home, "put", later)) == 1


@asynccontextmanager
async def agent(world: World, *more: str) -> AsyncGenerator[Client]:
    """Somebody else's agent, that knows nothing but `aetheris mcp`."""
    argv = ["-m", "aetheris.cli", "mcp", "--data", str(world.system.data), *more]
    env = {name: os.environ[name] for name in os.environ if name.startswith("AETHERIS_")}
    async with Client(StdioServerParameters(command=sys.executable, args=argv, env=env)) as client:
        yield client


async def asked(client: Client, tool: str, **args: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, args)
    assert not answer.is_error, answer.content
    return answer.structured_content


async def listed(client: Client, request_id: str) -> None:
    """Return once the list of what waits for a human shows the request: it follows the log."""
    async with asyncio.timeout(60):
        while request_id not in str(await asked(client, "approvals")):  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.05)


async def test_an_agent_elsewhere_submits_watches_approves_and_verifies(world: World) -> None:
    text, key = fresh("from elsewhere"), fresh("k-1")
    plan = {"nodes": [{"id": "a", "tool": "t.put", "args": {"text": text}, "irreversible": True}]}
    async with agent(world, "--approve-as", "approver") as client:
        offered = await client.list_tools()
        assert {tool.name for tool in offered.tools} == {"submit", "watch", "verify", "tools", "approvals", "approve"}
        first = await asked(client, "submit", idempotency_key=key, plan=plan)
        assert first["job_id"] == (await asked(client, "submit", idempotency_key=key, plan=plan))["job_id"]
        job = {"job_id": first["job_id"]}
        waiting = await asked(client, "watch", **job, wait_s=60)
        assert waiting["status"] == "waiting"
        request_id = waiting["steps"][0]["request_id"]
        assert effects(world.home, "put", text) == []
        await listed(client, request_id)
        said = {"request_id": request_id, "action": "approve", "comment": "seen"}
        assert (await asked(client, "approve", **said))["event"] == "approval_decided"
        ended = await asked(client, "watch", **job, wait_s=60)
        assert (ended["status"], ended["steps"][0]["request_id"]) == ("completed", None)
        assert (await asked(client, "verify", **job))["violations"] == []
        assert len(effects(world.home, "put", text)) == 1
        assert "t.put" in {tool["name"] for tool in (await asked(client, "tools"))["tools"]}
        refused = await client.call_tool("submit", {"idempotency_key": "k-2", "plan": {"nodes": [{"id": "a"}]}})
        assert refused.is_error
        assert "plan.nodes[0].tool" in str(refused.content) or "invalid_plan" in str(refused.content)
        assert (await client.call_tool("watch", {"job_id": "../tools"})).is_error
    async with agent(world) as client:
        assert "approve" not in {tool.name for tool in (await client.list_tools()).tools}
