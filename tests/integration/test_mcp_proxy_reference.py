"""Behind the MCP proxy: an agent on the TypeScript SDK, killed fifty times; the reference server as npm has it."""

import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from aetheris.cli import local
from tests.testkit.attempts import fresh
from tests.testkit.mcp_proxies import ProxyRig, killed_flow, running_proxy_rig
from tests.testkit.mcp_server import effects
from tests.testkit.system import REPOSITORY

pytestmark = [
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]

KILLS = 50
PACKAGES = ("@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/server-everything@2026.8.31")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what npm has installed, and the flow."""
    folder = tmp_path_factory.mktemp("node")
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", *PACKAGES], cwd=folder, check=True, capture_output=True
    )
    shutil.copy(REPOSITORY / "tests" / "testkit" / "refund_flow.mjs", folder)
    return folder


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, node: Path) -> Generator[ProxyRig]:
    everything = {"command": str(node / "node_modules" / ".bin" / "mcp-server-everything"), "annotations": "trusted"}
    with running_proxy_rig(tmp_path_factory.mktemp("reference"), everything=everything) as rig:
        yield rig


def test_an_agent_of_another_language_is_killed_fifty_times_and_each_effect_is_there_once(
    rig: ProxyRig, node: Path
) -> None:
    killed_flow(rig, ["node", str(node / "refund_flow.mjs")], KILLS)


def test_an_agent_of_another_language_is_served_over_http(rig: ProxyRig, node: Path) -> None:
    tag = fresh("http")
    with rig.listening() as url:
        argv = ["node", str(node / "refund_flow.mjs"), tag, f"{url}/t/mcp?run={tag}"]
        env = {**os.environ, "AETHERIS_TOKEN": local.target(rig.system.data).token}
        for _ in range(2):
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
            assert done.stdout == "done\n", done.stderr
    assert [len(effects(rig.home, "issue", f"{what} {tag}")) for what in ("refund", "mail")] == [1, 1]


async def test_the_reference_server_is_the_same_behind_the_proxy(rig: ProxyRig, node: Path) -> None:
    direct = StdioServerParameters(command=str(node / "node_modules" / ".bin" / "mcp-server-everything"))
    command, *args = rig.command("--run", "reference", server="everything")
    behind = StdioServerParameters(command=command, args=args, env=rig.env, cwd=REPOSITORY)
    async with Client(direct, mode="legacy") as first, Client(behind, mode="legacy") as second:
        seen = [await everything_of(client) for client in (first, second)]
        assert seen[0] == seen[1]
        offered = [{tool.name: tool.input_schema for tool in (await one.list_tools()).tools} for one in (first, second)]
        assert offered[1].items() <= offered[0].items()
        left_out = offered[0].keys() - offered[1].keys()
        assert all(name.startswith("simulate") for name in left_out), left_out
        for name, given in (("echo", {"message": "hello"}), ("get-sum", {"a": 1, "b": 2}), ("get-tiny-image", {})):
            answers = [await client.call_tool(name, given) for client in (first, second)]
            assert answers[0].content == answers[1].content


async def everything_of(client: Client) -> list[object]:
    """What a server offers beside its tools."""
    resources = (await client.list_resources()).resources
    return [
        client.server_info,
        client.instructions,
        resources,
        (await client.list_resource_templates()).resource_templates,
        (await client.list_prompts()).prompts,
        await client.read_resource(str(resources[0].uri)),
    ]
