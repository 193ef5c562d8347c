"""A server that the proxy stands before, and one connection of a client to it."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp.client._transport import TransportStreams

from aetheris.cli.mcp_proxy.proxied_calls import ProxiedCalls, ProxySettings
from aetheris.cli.mcp_proxy.proxied_tools import ProxiedTools, Tell
from aetheris.cli.mcp_proxy.relay import Relay
from aetheris.sdk.client import AsyncClient
from aetheris.sdk.toolkits.mcp.pins import Pins
from aetheris.sdk.toolkits.mcp.servers import McpServer
from aetheris.sdk.toolkits.mcp.transports import opened


@dataclass(frozen=True)
class ProxiedServer:
    """A server as the file of servers has it; `revealed`: the secrets that its settings name."""

    name: str
    server: McpServer
    revealed: Mapping[str, str] = field(repr=False)
    pins: Pins

    async def serve(self, streams: TransportStreams, client: AsyncClient, settings: ProxySettings, tell: Tell) -> None:
        """Serve one client, on a connection to the server of its own, until one of the two ends.

        Raises:
            OSError, ValueError, httpx2.HTTPError: the server can't be started or reached; maybe in a group.
            ServerFailed: it has ended first; maybe in a group.
        """
        async with opened(self.server, self.revealed, secrets.token_hex(16)) as server:
            tools = ProxiedTools(self.name, self.server, self.pins, client, tell)
            await Relay(streams, server, ProxiedCalls(client, tools, settings)).run()
