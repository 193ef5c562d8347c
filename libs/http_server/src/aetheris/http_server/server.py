"""An HTTP server on the service's own event loop: signals stay with the lifecycle, clients have bounds."""

import asyncio
import resource
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from ssl import SSLContext

import uvicorn
from starlette.types import ASGIApp

from aetheris.http_server.bounds import BoundedProtocol, Bounds
from aetheris.http_server.hosts import KnownHosts
from aetheris.http_server.served_tls import ServedTls
from aetheris.runtime.process.connections import Connection, Connections, Listener
from aetheris.runtime.process.settings import HttpSettings

_GRACE_S = 3
_TICK_S = 1.0
"""How old the Date header may be."""
_KEEP_ALIVE_S = 65
"""Longer than clients keep an idle connection (httpx: 5 s): else one is closed just as the next request is sent."""
_OWN_FILES = 256
"""Descriptors that the process keeps for itself: brokers, Redis, files."""
_SOME_FILES = 64 * 1024


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        connections: Connections,
        bounds: Bounds,
        tls: Callable[[], SSLContext] | None,
    ) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()
        self.exits = asyncio.Event()
        self.servers = []

        def protocol(connection: Connection) -> asyncio.Protocol:
            return BoundedProtocol(config, self.server_state, connections, connection, bounds)

        self._listener = Listener(listening, connections, protocol, bounds.head_s, tls)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def main_loop(self) -> None:
        """As uvicorn's, which looks ten times a second: the idle system is to cost next to nothing."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self.exits.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """As uvicorn's, which leaves accepting to the loop: uvloop closes a listener that finds no file descriptor."""
        await self.lifespan.startup()
        self._listener.start()
        self.started = True
        self.listens.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        await self._listener.close()
        await super().shutdown()


class HttpServer:
    """Serves an app on one address until it is told to stop; port 0 takes a free one."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        connections: int = 1000,
        connections_per_address: int = 500,
        bounds: Bounds | None = None,
        tls: Callable[[], SSLContext] | None = None,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=512)
        self.port = int(listening.getsockname()[1])
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
        self.connections = Connections(_at_most(connections), connections_per_address)
        self._server = _Server(config, listening, self.connections, bounds or Bounds(), tls)

    @classmethod
    def of(cls, settings: HttpSettings, app: ASGIApp) -> "HttpServer":
        """As a service's settings say.

        Raises:
            HttpTlsUnusable.
        """
        return cls(
            KnownHosts(app, settings.hosts),
            settings.listen,
            settings.http_port,
            connections=settings.connections,
            connections_per_address=settings.connections_per_address,
            tls=ServedTls.of(settings.http_cert, settings.http_key),
        )

    async def run(self) -> None:
        """Serve until `stop`."""
        await self._server.serve()

    def stop(self) -> None:
        """Take no more requests; finish those that run, within a grace."""
        self._server.should_exit = True
        self._server.exits.set()

    async def listening(self) -> None:
        """Return when requests are answered."""
        await self._server.listens.wait()


def _at_most(connections: int) -> int:
    """As many as the process may have files for, beside its own; it takes as many as it is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = max(soft, _SOME_FILES if hard == resource.RLIM_INFINITY else min(hard, _SOME_FILES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(1, min(connections, allowed - _OWN_FILES))
