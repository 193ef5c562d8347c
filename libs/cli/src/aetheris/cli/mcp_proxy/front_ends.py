"""`aetheris mcp proxy`, on stdin and stdout or over HTTP, until its client goes or it is told to stop (docs/mcp.md)."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mcp.server.stdio import stdio_server

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, progress
from aetheris.cli.gateway import async_client
from aetheris.cli.mcp_pins import servers_file
from aetheris.cli.mcp_proxy.proxied_calls import ProxySettings, ServerFailed
from aetheris.cli.mcp_proxy.proxied_server import ProxiedServer
from aetheris.cli.mcp_proxy.proxy_sessions import ProxySessions
from aetheris.http_server.hosts import KnownHosts
from aetheris.http_server.server import HttpServer
from aetheris.protocol.base.faults import like
from aetheris.sdk.client import AsyncClient
from aetheris.sdk.toolkits.mcp import Pins, ServersFileInvalid, read_servers
from aetheris.sdk.toolkits.mcp.servers import McpServer
from aetheris.tool_executor.secret_store import SecretRefused, Secrets, SecretUnreadable

MOST_LINE_BYTES = 16 * 1024 * 1024
"""Of one message of the client."""
_FAILURES = (OSError, ValueError, ServerFailed, BaseExceptionGroup)

__all__ = ["HttpAddress", "ProxySettings", "on_http", "on_stdio", "proxied_servers"]


@dataclass(frozen=True)
class HttpAddress:
    """Where it listens, which web pages may speak to it, and by which names it goes."""

    listen: str
    port: int
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def proxied_servers(name: str | None, path: Path | None = None) -> Mapping[str, ProxiedServer]:
    """The server of that name, or all, as the file has them; None: the one that AETHERIS_MCP names.

    Raises: CommandError.
    """
    file = servers_file(path)
    try:
        found = read_servers(file.path)
        if name is not None and name not in found:
            near = like(name, found)
            meant = f"did you mean {near}?" if near is not None else f"there are {', '.join(sorted(found)) or 'none'}"
            raise CommandError(Exit.BAD_INPUT, "no_such_server", f"{file.path}: no server {name} is there; {meant}")
        pins = Pins.beside(file.path)
        return {
            one: ProxiedServer(one, server, _revealed(file.secrets, one, server), pins)
            for one, server in found.items()
            if name in (None, one)
        }
    except (ServersFileInvalid, SecretRefused, SecretUnreadable) as refused:
        raise CommandError(Exit.BAD_INPUT, "mcp_servers_refused", str(refused)) from None


def _revealed(secrets: Secrets, name: str, server: McpServer) -> Mapping[str, str]:
    return secrets.of_settings(f"mcp/{name}", server.secrets) if server.secrets else {}


async def on_stdio(server: ProxiedServer, where: local.Target, settings: ProxySettings) -> None:
    """Serve one client.

    Raises:
        CommandError: the server can't be started or reached, or has gone.
    """
    lines, ended = await _Lines.of_stdin(), False
    failed: BaseException | None = None
    async with async_client(where) as client:
        try:
            async with stdio_server(stdin=cast("Any", lines)) as (read, write):
                try:
                    await server.serve((read, write), client, settings, progress)
                    ended = True
                except _FAILURES as error:
                    failed = error  # raised behind the writer: it has the last answers still to write
                finally:
                    lines.end()
                    await write.aclose()
                    await read.aclose()
        except _FAILURES as error:
            failed = failed or error
        if failed is not None and not ended:
            text = f"{server.name} can't be reached, or has gone: {type(failed).__name__}"
            raise CommandError(Exit.UNREACHABLE, "mcp_server_unreachable", text) from None


class _Lines:
    """What comes on stdin, a line at a time; the SDK's own reader is a thread, which nothing ends but the client."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    @classmethod
    async def of_stdin(cls) -> "_Lines":
        """From now on."""
        reader = asyncio.StreamReader(MOST_LINE_BYTES)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        return cls(reader)

    def end(self) -> None:
        """No more."""
        self._reader.feed_eof()

    async def __aiter__(self) -> AsyncGenerator[str]:
        while line := await self._reader.readline():
            yield line.decode(errors="replace")


async def on_http(
    servers: Mapping[str, ProxiedServer], gateway: local.Target, settings: ProxySettings, address: HttpAddress
) -> None:
    """Serve any number of clients, each by its own token.

    Raises:
        CommandError: it can't listen.
    """

    def client_of(token: str) -> AsyncClient:
        return async_client(local.Target(gateway.url, token, local=gateway.local))

    sessions = ProxySessions(servers, client_of, settings, progress, origins=address.origins)
    async with sessions.running() as app:
        try:
            server = HttpServer(KnownHosts(app, address.hosts), address.listen, address.port)
        except OSError as error:
            rule = f"{address.listen}:{address.port}: {error.strerror or 'cannot listen'}"
            raise CommandError(Exit.BAD_INPUT, "cannot_listen", rule) from None
        for told in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(told, server.stop)
        serving = asyncio.create_task(server.run())
        await server.listening()
        for name in servers:
            progress(name, f"http://{address.listen}:{server.port}/{name}/mcp")
        with suppress(asyncio.CancelledError):
            await serving
