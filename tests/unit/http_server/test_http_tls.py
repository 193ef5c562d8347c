"""HTTPS: who shows its certificate, a new one without a break, handshakes that don't come."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from aetheris.http_server import served_tls
from aetheris.http_server.bounds import Bounds
from aetheris.http_server.served_tls import HttpTlsUnusable, ServedTls
from aetheris.http_server.server import HttpServer
from aetheris.sdk.client import ApiError, AsyncClient, Unreachable
from tests.testkit.authority import Authority, Identity

WITHIN_S = 30.0


async def _scheme(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.url.scheme)


@asynccontextmanager
async def serving(shown: Identity, connections: int = 1000, bounds: Bounds | None = None) -> AsyncGenerator[HttpServer]:
    server = HttpServer(
        Starlette(routes=[Route("/", _scheme)]),
        "127.0.0.1",
        0,
        connections=connections,
        bounds=bounds,
        tls=ServedTls(shown.certificate, shown.key),
    )
    running = asyncio.create_task(server.run())
    await server.listening()
    try:
        yield server
    finally:
        server.stop()
        await running


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at for each connection."""
    monkeypatch.setattr(served_tls, "_LOOK_S", 0.0)


async def test_the_client_trusts_whom_it_is_told_to(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(authority.sign("one")) as server:
        url = f"https://127.0.0.1:{server.port}"
        async with AsyncClient(url, "t", ca=authority.ca) as client:
            with pytest.raises(ApiError, match="HTTP 404"):  # it was answered
                await client.jobs()
        async with AsyncClient(url, "t") as client:
            with pytest.raises(Unreachable):
                await client.jobs()
        monkeypatch.setenv("AETHERIS_CA", str(authority.ca))
        async with AsyncClient(url, "t") as client:
            with pytest.raises(ApiError, match="HTTP 404"):
                await client.jobs()
        async with httpx.AsyncClient() as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get(f"http://127.0.0.1:{server.port}/")


@pytest.mark.usefixtures("at_once")
async def test_a_new_certificate_breaks_no_connection(authority: Authority) -> None:
    shown, next_one = authority.sign("one"), authority.sign("two")
    async with serving(shown) as server, trusting(authority, server) as kept:
        assert (await kept.get("/")).text == "https"
        first = await certificate(authority, server)
        shown.certificate.write_bytes(next_one.certificate.read_bytes())
        assert await certificate(authority, server) == first  # its key is still the former one's
        shown.key.write_bytes(next_one.key.read_bytes())
        assert await certificate(authority, server) == ssl.PEM_cert_to_DER_cert(next_one.certificate.read_text())
        shown.key.unlink()
        assert await certificate(authority, server) != first
        assert (await kept.get("/")).text == "https"
        assert server.connections.count == 1


async def test_who_never_ends_a_handshake_costs_the_others_nothing(authority: Authority) -> None:
    async with serving(authority.sign("one"), connections=20) as server, AsyncExitStack() as silent:
        for _ in range(60):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            silent.push_async_callback(closed, writer)
        async with trusting(authority, server) as client:
            assert (await client.get("/")).text == "https"
            assert server.connections.count <= 20
    async with serving(authority.sign("one"), bounds=Bounds(head_s=0.2)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(WITHIN_S):
            assert await reader.read() == b""
        await closed(writer)


def test_files_that_are_no_certificate_are_refused(authority: Authority, tmp_path: Path) -> None:
    one, other = authority.sign("one"), authority.sign("other")
    (tmp_path / "empty").touch()
    assert ServedTls.of(None, None) is None
    no = tmp_path / "no"
    for cert, key in (
        (one.certificate, None),
        (None, one.key),
        (one.certificate, other.key),
        (no, one.key),
    ):
        with pytest.raises(HttpTlsUnusable):
            ServedTls.of(cert, key)
    with pytest.raises(HttpTlsUnusable):
        served_tls.trusted(tmp_path / "empty")


@asynccontextmanager
async def trusting(authority: Authority, server: HttpServer) -> AsyncGenerator[httpx.AsyncClient]:
    trusted = ssl.create_default_context(cafile=authority.ca)
    async with httpx.AsyncClient(base_url=f"https://127.0.0.1:{server.port}", verify=trusted) as client:
        yield client


async def certificate(authority: Authority, server: HttpServer) -> bytes:
    """What a new connection is shown."""
    trusted = ssl.create_default_context(cafile=authority.ca)
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusted)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await closed(writer)
    return shown


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
