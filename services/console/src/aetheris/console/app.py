"""The composition root: the console's pages, its sessions, its client of the gateway. No Kafka, no Redis, no key."""

import asyncio
import errno
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from aetheris.console.gateway_client import GatewayClient
from aetheris.console.guard import Guarded
from aetheris.console.pages import (
    dead_letter_page,
    group_page,
    inbox,
    job_contracts,
    job_controls,
    job_list,
    job_page,
    job_plan,
    operations,
    passkey_page,
    policy_page,
    schedule_page,
    sign_in,
    spending_page,
    undo_page,
)
from aetheris.console.pages.edge import ConsoleParts, led, problem
from aetheris.console.provider import LoginProvider
from aetheris.console.sessions import Sessions
from aetheris.console.settings import ConsoleSettings
from aetheris.http_server.server import HttpServer
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.process.health import Health
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.telemetry.metrics import Metrics

_STATIC = Path(__file__).parent / "static"
_LOOPBACK = "127.0.0.1"
_OTHER_LOOPBACK = "::1"


class LoopbackTaken(StartRefused):
    """Somebody else listens where browsers may look for this console."""

    code = "loopback_taken"


async def serve(settings: ConsoleSettings, stop: asyncio.Event) -> None:
    """Serve the pages until `stop` is set.

    Raises:
        HttpTlsUnusable, LoginProviderUnusable, LoopbackTaken: what the settings name can't be used.
    """
    metrics = Metrics("console")
    health = Health(metrics.exposition)
    health.add("service", lambda: "is stopping" if stop.is_set() else None)
    await health.start(settings.listen, settings.health_port)
    async with console(settings):
        freeze_memory()
        await stop.wait()
    await health.stop()
    metrics.close()


@asynccontextmanager
async def console(settings: ConsoleSettings) -> AsyncGenerator[HttpServer]:
    """The console, listening.

    Raises:
        HttpTlsUnusable, LoginProviderUnusable, LoopbackTaken.
    """
    async with AsyncExitStack() as closing:
        gateway = GatewayClient(settings.gateway_url, settings.ca)
        closing.push_async_callback(gateway.close)
        address = [settings.console_url.rstrip("/")]
        parts = ConsoleParts(
            gateway=gateway,
            sessions=Sessions(time.monotonic, settings.session_idle_s, settings.session_s),
            provider=LoginProvider.of(settings, time.monotonic),
            https=settings.console_url.startswith("https:") or settings.http_cert is not None,
            base_url=lambda: address[0],
            trace_url=settings.trace_url,
        )
        app = pages(parts)
        http = HttpServer.of(settings, app)
        if not address[0]:
            address[0] = f"{'https' if parts.https else 'http'}://localhost:{http.port}"
        servers = [http, *_other_loopback(settings, app, http.port)]
        serving = [asyncio.create_task(server.run()) for server in servers]
        try:
            for server in servers:
                await server.listening()
            yield http
        finally:
            for server in servers:
                server.stop()
            await asyncio.gather(*serving)


def pages(parts: ConsoleParts) -> ASGIApp:
    """Every page, behind what guards them."""
    app = Starlette(routes=ROUTES, exception_handlers={404: _not_here, 405: _not_here})
    app.state.parts = parts
    return Guarded(app, parts.https)


def _other_loopback(settings: ConsoleSettings, app: ASGIApp, port: int) -> list[HttpServer]:
    """Browsers look for `localhost` at both loopback addresses: nobody else on the machine is to be found at one."""
    if settings.listen != _LOOPBACK:
        return []
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((_OTHER_LOOPBACK, 0))
    except OSError:
        return []
    try:
        return [HttpServer.of(settings.model_copy(update={"listen": _OTHER_LOOPBACK, "http_port": port}), app)]
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise LoopbackTaken(f"somebody else listens at [{_OTHER_LOOPBACK}]:{port}") from None


async def _home(_request: Request) -> Response:
    return led("/inbox")


async def _htmx(_request: Request) -> Response:
    """With its extension in one script: apart, it begins before the other has come, and is kept from its work."""
    return Response(_script(), media_type="text/javascript", headers={"Cache-Control": "max-age=3600"})


@cache
def _script() -> bytes:
    return b"\n".join((_STATIC / "vendor" / name).read_bytes() for name in ("htmx.min.js", "hx-csp.min.js"))


async def _alive(_request: Request) -> Response:
    return JSONResponse({"alive": True})


async def _not_here(request: Request, _error: Exception) -> Response:
    return problem(request, None, 404, "Not here", "There is no such page.")


ROUTES = [
    Route("/", _home),
    Route("/livez", _alive),
    Route("/readyz", _alive),
    Route("/static/htmx.js", _htmx),
    Mount("/static", StaticFiles(directory=_STATIC)),
    *sign_in.ROUTES,
    *group_page.ROUTES,
    *inbox.ROUTES,
    *job_list.ROUTES,
    *job_plan.ROUTES,
    *job_controls.ROUTES,
    *job_contracts.ROUTES,
    *job_page.ROUTES,
    *policy_page.ROUTES,
    *dead_letter_page.ROUTES,
    *undo_page.ROUTES,
    *schedule_page.ROUTES,
    *passkey_page.ROUTES,
    *spending_page.ROUTES,
    *operations.ROUTES,
]
"""Every page and part of one."""
