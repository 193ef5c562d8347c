"""The tools of all servers of a file, connected for as long as they are used."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aetheris.protocol.base.references import SecretUse
from aetheris.sdk.schema import DeclarationError
from aetheris.sdk.toolkits.mcp.connection import McpConnection, McpUnreachable
from aetheris.sdk.toolkits.mcp.mapping import tool_of
from aetheris.sdk.toolkits.mcp.servers import McpServer
from aetheris.sdk.tools import AnyTool

Reveal = Callable[[str, Sequence[SecretUse]], Mapping[str, str]]
"""(`mcp/` and the server's name, what its settings name) → name@version → value; raises what its caller is told."""


@dataclass(frozen=True)
class Discovered:
    """What was found; `left_out` says of servers and tools why they can't be called."""

    tools: tuple[AnyTool, ...]
    left_out: Mapping[str, str]


@asynccontextmanager
async def discovered(servers: Mapping[str, McpServer], reveal: Reveal) -> AsyncGenerator[Discovered]:
    """Connect to every server, and list its tools; one that can't be reached is left out, and holds up no other."""
    left_out: dict[str, str] = {}
    connections = {
        name: McpConnection(server, reveal(f"mcp/{name}", server.secrets) if server.secrets else {})
        for name, server in servers.items()
    }
    try:
        found = await asyncio.gather(
            *(_of_server(name, servers[name], connection, left_out) for name, connection in connections.items())
        )
        yield Discovered(tuple(tool for tools in found for tool in tools), left_out)
    finally:
        await asyncio.gather(*(connection.close() for connection in connections.values()))


async def _of_server(
    name: str, server: McpServer, connection: McpConnection, left_out: dict[str, str]
) -> list[AnyTool]:
    try:
        listed = await connection.tools()
    except McpUnreachable as error:
        left_out[name] = f"can't be reached: {error}"
        return []
    found: list[AnyTool] = []
    for one in listed:
        if one.name in server.tools and server.tools[one.name].hidden:
            continue
        try:
            found.append(tool_of(name, server, one, connection.call))
        except DeclarationError as refused:
            left_out[f"{name}.{one.name}"[:200]] = str(refused)
    return found
