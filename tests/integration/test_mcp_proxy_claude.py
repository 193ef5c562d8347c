"""Behind the MCP proxy: an agent on the Claude Agent SDK, with its own program; the model is scripted (docs/mcp.md)."""

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.testkit.framework_agents import framework_python
from tests.testkit.mcp_proxies import ProxyRig, killed_flow, running_proxy_rig
from tests.testkit.scripted_messages import Answer, results, running_messages
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(1200)]

NAME = "claude_agent_sdk"
KILLS = 50
_TAG = re.compile(r"Refund order ([\w-]+)")


def refunds(messages: Sequence[Mapping[str, Any]], tools: Sequence[str]) -> Answer:
    """The flow: a refund, then a mail; what has not finished is called again as it was."""
    found = _TAG.search(str(messages))
    if found is None or "mcp__t__issue" not in tools:
        return {"text": "no tools"}
    done = [given["text"] for given, text, failed in results(messages) if not failed and "Not finished" not in text]
    for what in ("refund", "mail"):
        if f"{what} {found[1]}" not in done:
            return {"tool": "mcp__t__issue", "input": {"text": f"{what} {found[1]}", "hold": True}}
    return {"text": "done"}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ProxyRig]:
    folder = tmp_path_factory.mktemp("claude")
    with running_messages(refunds) as url, running_proxy_rig(folder) as rig:
        env = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
        }
        yield replace(rig, env={**rig.env, **env})


def test_an_agent_on_the_claude_agent_sdk_is_killed_fifty_times_and_each_effect_is_there_once(rig: ProxyRig) -> None:
    script = REPOSITORY / "tests" / "adapters" / NAME / "refund_flow_claude.py"
    killed_flow(rig, [str(framework_python(NAME)), str(script)], KILLS)
