"""The flow of tests/testkit/refund_flow.py, on the Claude Agent SDK: python refund_flow_claude.py TAG COMMAND…"""

import asyncio
import os
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def flow(tag: str, command: list[str]) -> None:
    env = {name: os.environ[name] for name in os.environ if name.startswith("AETHERIS_") or name == "PATH"}
    options = ClaudeAgentOptions(
        mcp_servers={"t": {"type": "stdio", "command": command[0], "args": command[1:], "env": env}},
        allowed_tools=["mcp__t__issue"],
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
        model="claude-opus-4-5",
    )
    async for message in query(prompt=f"Refund order {tag}.", options=options):
        if isinstance(message, ResultMessage):
            sys.stdout.write(f"{message.result}\n")


if __name__ == "__main__":
    asyncio.run(flow(sys.argv[1], sys.argv[2:]))
