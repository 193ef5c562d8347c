"""Somebody else's agent, that knows nothing but `aetheris mcp`."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters


@asynccontextmanager
async def agent(data: Path, *more: str) -> AsyncGenerator[Client]:
    """Connected to a server of its own for the system on this folder; `more` are the command's options."""
    argv = ["-m", "aetheris.cli", "mcp", "--data", str(data), *more]
    env = {name: os.environ[name] for name in os.environ if name.startswith("AETHERIS_")}
    async with Client(StdioServerParameters(command=sys.executable, args=argv, env=env)) as client:
        yield client


async def asked(client: Client, tool: str, **args: Any) -> dict[str, Any]:
    """What the tool answers, which is no error."""
    answer = await client.call_tool(tool, args)
    assert not answer.is_error, answer.content
    return answer.structured_content
