"""What a client that means no good may take of an HTTP server: bytes, time, connections, file descriptors."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aetheris.http_server.bounds import Bounds
from aetheris.http_server.server import HttpServer
from aetheris.runtime.process.connections import Connections
from tests.testkit.door import FILES

WITHIN_S = 30.0
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def _refuse(_request: Request) -> Response:
    return PlainTextResponse("who are you?", 401)


async def _large(_request: Request) -> Response:
    return Response(bytes(64 * 1024 * 1024))


ROUTES = [Route("/", _echo, methods=["GET", "POST"]), Route("/refuse", _refuse, methods=["POST"])]


@asynccontextmanager
async def serving(bounds: Bounds | None = None, connections: int = 1000) -> AsyncGenerator[HttpServer]:
    server = HttpServer(
        Starlette(routes=[*ROUTES, Route("/large", _large)]), "127.0.0.1", 0, connections=connections, bounds=bounds
    )
    running = asyncio.create_task(server.run())
    await server.listening()
    try:
        yield server
    finally:
        server.stop()
        await running


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def said(streams: Streams) -> bytes:
    """All that the server says until it ends the connection."""
    try:
        async with asyncio.timeout(WITHIN_S):
            return await streams[0].read()
    except ConnectionError:
        return b""


async def poured(streams: Streams, piece: bytes, at_most: int) -> int:
    """Bytes that the server took of an endless repetition before it ended the connection."""
    sent = 0
    try:
        while sent < at_most and not streams[0].at_eof():
            streams[1].write(piece)
            await streams[1].drain()
            sent += len(piece)
    except ConnectionError:
        pass
    return sent


async def test_endless_headers_are_refused_where_they_are_too_long() -> None:
    for endless in (b"X-More: and more\r\n" * 64, b"X" * 1024):
        async with serving() as server:
            async with connected(server.port) as streams:
                streams[1].write(HEAD)
                assert await poured(streams, endless, 64 << 20) < 16 << 20
                assert (await said(streams))[:12] in (b"HTTP/1.1 431", b"")
            async with httpx.AsyncClient() as client:
                assert (await client.get(f"http://127.0.0.1:{server.port}/")).status_code == 200


async def test_a_head_that_comes_at_once_has_the_same_bound() -> None:
    async with serving(Bounds(head_bytes=1000)) as server, connected(server.port) as streams:
        streams[1].write(HEAD + b"X: " + b"x" * 1000 + b"\r\n\r\n")
        assert (await said(streams)).startswith(b"HTTP/1.1 431")


async def test_what_stands_beside_a_body_in_chunks_is_bounded_too() -> None:
    chunked = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving() as server:
        for before, endless in ((b"0\r\nTrailer: ", b"x" * 1024), (b"1;extension=", b"x" * 1024)):
            async with connected(server.port) as streams:
                streams[1].write(chunked + before)
                assert await poured(streams, endless, 64 << 20) < 16 << 20
        async with connected(server.port) as streams:
            streams[1].write(chunked + b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
            assert (await streams[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await streams[0].readexactly(50_000) == b"x" * 50_000


async def test_who_is_slow_is_dropped() -> None:
    post = b"POST /%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf"
    begun = {b"": 0, HEAD: 0, post % b"": 0, HEAD + b"\r\n" + HEAD: 1, post % b"refuse": 1}
    async with serving(Bounds(head_s=0.2, body_s=0.3)) as server:
        for sent, answers in begun.items():
            async with connected(server.port) as streams:
                streams[1].write(sent)
                assert (await said(streams)).count(b"HTTP/1.1") == answers


async def test_empty_lines_keep_no_connection() -> None:
    async with serving(Bounds(head_s=0.2)) as server, connected(server.port) as streams:
        streams[1].write(HEAD + b"\r\n")
        await streams[0].readuntil(b"\r\n\r\n")
        streams[1].write(b"\r\n")
        assert await said(streams) == b""


async def test_who_does_not_read_is_dropped() -> None:
    async with serving(Bounds(unread_s=0.2)) as server, connected(server.port) as streams:
        streams[1].write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(WITHIN_S):
            while server.connections.count:  # noqa: ASYNC110  its client is told, and does not look
                await asyncio.sleep(0.01)


async def test_a_newcomer_takes_the_place_of_one_that_says_nothing() -> None:
    async with serving(connections=20) as server, httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as kept:
        await kept.get("/")
        async with AsyncExitStack() as silent:
            first = await silent.enter_async_context(connected(server.port))
            for _ in range(60):
                await silent.enter_async_context(connected(server.port))
            assert (await kept.post("/", content=b"still here")).content == b"still here"
            assert server.connections.count == 20
            assert await said(first) == b""


def test_who_is_at_work_is_never_dropped_for_another() -> None:
    dropped: list[int] = []
    connections = Connections(3, 2)
    busy = [connections.enter("10.0.0.1", lambda: dropped.append(1)) for _ in range(2)]
    for one in busy:
        assert one is not None
        connections.works(one)
    assert connections.enter("10.0.0.1", lambda: None) is None
    assert connections.enter("10.0.0.2", lambda: dropped.append(2)) is not None
    assert connections.enter("10.0.0.3", lambda: dropped.append(3)) is not None
    assert (dropped, connections.count) == ([2], 3)
    assert busy[0] is not None
    connections.waits(busy[0])
    assert connections.enter("10.0.0.1", lambda: None) is not None
    assert dropped == [2, 1]


def test_a_network_of_ipv6_is_one_client() -> None:
    connections = Connections(10, 1)
    dropped: list[str] = []
    assert connections.enter("2001:db8::1", lambda: dropped.append("first"))
    assert connections.enter("2001:db8::ffff:2", lambda: None)
    assert connections.enter("::ffff:10.0.0.1", lambda: dropped.append("fourth"))
    assert connections.enter("10.0.0.1", lambda: None)
    assert dropped == ["first", "fourth"]


@asynccontextmanager
async def door() -> AsyncGenerator[tuple[asyncio.subprocess.Process, int, int]]:
    """A process of few file descriptors, and the ports of its API and its health."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.testkit.door", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        ports = (await asyncio.wait_for(process.stdout.readline(), WITHIN_S)).split()
        yield process, int(ports[0]), int(ports[1])
    finally:
        process.kill()
        await process.wait()


async def test_others_are_served_beside_connections_that_say_nothing() -> None:
    async with (
        door() as (process, port, health),
        httpx.AsyncClient(timeout=WITHIN_S) as client,
        AsyncExitStack() as silent,
    ):
        for at in (port, health):
            for _ in range(FILES + 100):
                _, writer = await silent.enter_async_context(connected(at))
                writer.write(HEAD)
            assert (await client.get(f"http://127.0.0.1:{port}/")).status_code == 200
            assert (await client.get(f"http://127.0.0.1:{health}/readyz")).status_code == 200
        assert process.returncode is None


async def test_it_accepts_again_once_there_are_file_descriptors() -> None:
    async with door() as (process, port, health), httpx.AsyncClient(timeout=WITHIN_S) as client:
        assert process.stdout is not None
        process.send_signal(signal.SIGUSR1)
        assert await process.stdout.readline() == b"taken\n"
        waiting = [
            asyncio.create_task(client.get(f"http://127.0.0.1:{at}{path}"))
            for at, path in ((port, "/"), (health, "/readyz"))
        ]
        async with connected(port):
            await asyncio.sleep(0.2)  # so that it has tried; it holds at any moment
            process.send_signal(signal.SIGUSR2)
            assert await process.stdout.readline() == b"freed\n"
            assert [(await answer).status_code for answer in waiting] == [200, 200]
