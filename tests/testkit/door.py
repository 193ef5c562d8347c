"""A process with nothing but our HTTP server, its health, and few file descriptors: `python -m tests.testkit.door`.

Prints the ports of both. SIGUSR1 takes every descriptor that is left, SIGUSR2 gives them back; both print a line.
"""

import asyncio
import os
import resource
import signal
import sys

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from aetheris.http_server.server import HttpServer
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.health import Health

FILES = 400


async def _echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _serve(stop: asyncio.Event) -> None:
    taken: list[int] = []

    def take() -> None:
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            _say("taken")

    def free() -> None:
        while taken:
            os.close(taken.pop())
        _say("freed")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, take)
    loop.add_signal_handler(signal.SIGUSR2, free)
    health = Health(lambda: b"")
    health.add("service", lambda: None)
    health_port = await health.start("127.0.0.1", 0)
    server = HttpServer(Starlette(routes=[Route("/", _echo, methods=["GET", "POST"])]), "127.0.0.1", 0)
    serving = asyncio.create_task(server.run())
    await server.listening()
    _say(f"{server.port} {health_port}")
    await stop.wait()
    server.stop()
    await serving
    await health.stop()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    sys.exit(lifecycle.run(_serve, service="door"))
