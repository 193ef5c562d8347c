"""An HTTP server on the service's own event loop: signals stay with the lifecycle."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress

import uvicorn
from starlette.applications import Starlette

_GRACE_S = 3
_TICK_S = 1.0
"""How old the Date header may be."""
_KEEP_ALIVE_S = 65
"""Longer than clients keep an idle connection (httpx: 5 s): else one is closed just as the next request is sent."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()
        self.exits = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def main_loop(self) -> None:
        """As uvicorn's, which looks ten times a second: the idle system is to cost next to nothing."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self.exits.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


class HttpServer:
    """Serves an app on one address until it is told to stop; port 0 takes a free one."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        self._socket = socket.create_server((host, port), backlog=512)
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
        self._server = _Server(config)

    async def run(self) -> None:
        """Serve until `stop`."""
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Take no more requests; finish those that run, within a grace."""
        self._server.should_exit = True
        self._server.exits.set()

    async def listening(self) -> None:
        """Return when requests are answered."""
        await self._server.listens.wait()
