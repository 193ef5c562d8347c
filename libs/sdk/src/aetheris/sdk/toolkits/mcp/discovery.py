"""The tools of all servers of a file, connected for as long as they are used."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcp_types import Tool as ListedTool

from aetheris.protocol.base.references import SecretUse
from aetheris.sdk.schema import DeclarationError
from aetheris.sdk.toolkits.mcp.connection import McpConnection, McpUnreachable
from aetheris.sdk.toolkits.mcp.mapping import tool_of
from aetheris.sdk.toolkits.mcp.pins import NONE, Pins, fingerprint
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
async def discovered(servers: Mapping[str, McpServer], reveal: Reveal, pins: Pins) -> AsyncGenerator[Discovered]:
    """Connect to every server, and list its tools; one that can't be reached is left out, and holds up no other.

    So is a tool that says something else of itself than was pinned.

    Raises:
        PinsFileInvalid.
    """
    left_out: dict[str, str] = {}
    async with _connected(servers, reveal) as connections:
        found = await asyncio.gather(
            *(_of_server(name, servers[name], connection, pins, left_out) for name, connection in connections.items())
        )
        yield Discovered(tuple(tool for tools in found for tool in tools), left_out)


async def listed(servers: Mapping[str, McpServer], reveal: Reveal) -> dict[str, Sequence[ListedTool] | McpUnreachable]:
    """What each server lists now, or why it can't be reached."""
    async with _connected(servers, reveal) as connections:
        found = await asyncio.gather(*(_asked(connection) for connection in connections.values()))
    return dict(zip(connections, found, strict=True))


@asynccontextmanager
async def _connected(servers: Mapping[str, McpServer], reveal: Reveal) -> AsyncGenerator[Mapping[str, McpConnection]]:
    connections = {
        name: McpConnection(server, reveal(f"mcp/{name}", server.secrets) if server.secrets else {})
        for name, server in servers.items()
    }
    try:
        yield connections
    finally:
        await asyncio.gather(*(connection.close() for connection in connections.values()))


async def _asked(connection: McpConnection) -> Sequence[ListedTool] | McpUnreachable:
    try:
        return await connection.tools()
    except McpUnreachable as error:
        return error


def _pinned(name: str, found: Sequence[ListedTool], pins: Pins, left_out: dict[str, str]) -> list[ListedTool]:
    """Those that say what was pinned of them; the first time, all."""
    known = pins.of(name)
    if known is None:
        try:
            known = {one.name: fingerprint(one) for one in found}
            pins.keep(name, known)
        except OSError as error:
            left_out[name] = f"is not pinned, and no pin can be written ({error.strerror}): `aetheris mcp pin`"
            return []
    same: list[ListedTool] = []
    for one in found:
        if known.get(one.name, NONE) == NONE or known[one.name] != fingerprint(one):
            how = "says something else of itself than was pinned" if one.name in known else "is not pinned"
            left_out[f"{name}.{one.name}"[:200]] = f"{how}: look at it, and `aetheris mcp pin`"
        else:
            same.append(one)
    return same


async def _of_server(
    name: str, server: McpServer, connection: McpConnection, pins: Pins, left_out: dict[str, str]
) -> list[AnyTool]:
    said = await _asked(connection)
    if isinstance(said, McpUnreachable):
        left_out[name] = f"can't be reached: {said}"
        return []
    found: list[AnyTool] = []
    for one in _pinned(name, said, pins, left_out):
        if one.name in server.tools and server.tools[one.name].hidden:
            continue
        try:
            found.append(tool_of(name, server, one, connection.call))
        except DeclarationError as refused:
            left_out[f"{name}.{one.name}"[:200]] = str(refused)
    return found
