"""Somebody else's agent behind `aetheris mcp proxy`: `python -m tests.testkit.refund_flow TAG COMMAND…`.

It makes a refund, then sends a mail, calls again what has not finished, and says "done" when both have; killed and
started again, it begins anew.
"""

import asyncio
import os
import sys

from mcp import Client, MCPError, StdioServerParameters


async def flow(tag: str, command: list[str]) -> None:
    env = {name: os.environ[name] for name in os.environ if name.startswith("AETHERIS_")}
    server = StdioServerParameters(command=command[0], args=command[1:], env=env)
    async with Client(server, mode="legacy") as client:
        for what in ("refund", "mail"):
            while True:
                answer = await client.call_tool("issue", {"text": f"{what} {tag}", "hold": True})
                if not answer.is_error and not (answer.meta or {}).get("io.aetheris/pending"):
                    break
                await asyncio.sleep(0.2)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    try:
        asyncio.run(flow(sys.argv[1], sys.argv[2:]))
    except (MCPError, BaseExceptionGroup) as broken:
        sys.exit(f"the proxy has gone: {type(broken).__name__}")
