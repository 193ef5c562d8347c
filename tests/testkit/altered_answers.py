"""A proxy before a real broker that alters what it answers, as brokers of other makers would."""

import asyncio
import io
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.protocol import admin, offset

from aetheris.cli.embedded.kafka import SMALL, Tuning, broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.runtime.kafka.clock_skew import leaders_time_ms

LIST_OFFSETS, DESCRIBE_CONFIGS, API_VERSIONS, DESCRIBE_QUORUM = 2, 32, 18, 55

Alter = Callable[[int, bytes], bytes]
"""(the request's version, the answer without its correlation id) → the answer that is passed on."""


@contextmanager
def broker_elsewhere(data: Path) -> Generator[tuple[int, int]]:
    """A broker that names another port than its own: (where it says that it is, where it is)."""
    ports = Ports(data)
    said = ports.get("said")
    tuning = Tuning(SMALL, {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{said}"})
    broker = broker_in(install(lambda _part, _message: None), data, ports, tuning)
    with running_broker(broker, data / "kafka.log"):
        yield said, broker.port


def told(change: Callable[[str, str], str | None]) -> Alter:
    """What is told of a topic's configuration: (key, value) → another value, or None: it isn't told."""

    def alter(version: int, answer: bytes) -> bytes:
        shape: Any = getattr(admin, f"DescribeConfigsResponse_v{version}")
        read = shape.decode(io.BytesIO(answer))
        resources = [
            (
                *one[:4],
                [(e[0], value, *e[2:]) for e in one[4] if (value := change(e[0], e[1])) is not None],
            )
            for one in read.resources
        ]
        return shape(read.throttle_time_ms, resources).encode()

    return alter


def spoken(ranges: Mapping[int, tuple[int, int] | None]) -> Alter:
    """Which versions of requests are spoken: API key → the range, or None: not at all."""

    def alter(_version: int, answer: bytes) -> bytes:
        read: Any = admin.ApiVersionResponse_v0.decode(io.BytesIO(answer))
        said = {key: (least, most) for key, least, most in read.api_versions} | dict(ranges)
        listed = [(key, *spoken) for key, spoken in said.items() if spoken is not None]
        return admin.ApiVersionResponse_v0(read.error_code, listed).encode()

    return alter


def ahead(by_s: float) -> Alter:
    """The controller's clock."""

    def alter(_version: int, answer: bytes) -> bytes:
        now_ms = leaders_time_ms(answer)
        assert now_ms is not None
        return answer.replace(struct.pack(">q", now_ms), struct.pack(">q", now_ms + round(by_s * 1000)))

    return alter


def being_born(times: int) -> Alter:
    """The next so many answers about offsets say that the leader does not know the topic yet."""
    left = times

    def alter(version: int, answer: bytes) -> bytes:
        nonlocal left
        if left == 0:
            return answer
        left -= 1
        read: Any = getattr(offset, f"OffsetResponse_v{version}").decode(io.BytesIO(answer))
        unknown = UnknownTopicOrPartitionError.errno
        read.topics = [(topic, [(one[0], unknown, *one[2:]) for one in places]) for topic, places in read.topics]
        return read.encode()

    return alter


class AlteringProxy:
    """Listens where the broker says that it is; `altered` are the API keys whose answers are."""

    def __init__(self, port: int) -> None:
        self.altered: dict[int, Alter] = {}
        self.seen: dict[int, int] = {}
        """API key → how many answers were altered."""
        self._port = port
        self._serving: set[asyncio.Task[None]] = set()
        self._streams: list[asyncio.StreamWriter] = []

    async def end(self) -> None:
        """Every connection."""
        for one in self._serving:
            one.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for stream in self._streams:
            stream.transport.abort()
        await asyncio.sleep(0)  # what was aborted closes its socket in the next pass of the loop
        await asyncio.sleep(0)

    def reset(self) -> None:
        """Every connection, as by a network that knows it no longer: no end of what was sent, but an error."""
        for stream in self._streams:
            at = stream.get_extra_info("socket")
            if at is not None and not stream.is_closing():
                at.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                stream.transport.abort()
        self._streams.clear()

    def accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """asyncio's."""
        self._streams.append(to_client)
        serving = asyncio.ensure_future(self.serve(client, to_client))
        self._serving.add(serving)

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection."""
        server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        self._streams.append(to_server)
        asked: dict[int, tuple[int, int]] = {}

        async def requests() -> None:
            while True:
                frame = await _frame(client)
                key, version, correlation = struct.unpack_from(">hhi", frame)
                asked[correlation] = key, version
                to_server.write(struct.pack(">i", len(frame)) + frame)

        async def answers() -> None:
            while True:
                frame = await _frame(server)
                (correlation,) = struct.unpack_from(">i", frame)
                key, version = asked.pop(correlation)
                if key in self.altered:
                    frame = frame[:4] + self.altered[key](version, frame[4:])
                    self.seen[key] = self.seen.get(key, 0) + 1
                to_client.write(struct.pack(">i", len(frame)) + frame)

        both = [asyncio.ensure_future(requests()), asyncio.ensure_future(answers())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            failed = [one for one in await asyncio.gather(*both, return_exceptions=True) if isinstance(one, Exception)]
            to_client.close()
            to_server.close()
            assert all(isinstance(one, (OSError, EOFError)) for one in failed), failed


async def _frame(stream: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await stream.readexactly(4))
    return await stream.readexactly(length)


@asynccontextmanager
async def altering_proxy(listen: int, port: int) -> AsyncGenerator[AlteringProxy]:
    """On port `listen`, before the broker on `port`, which says that it is at `listen`."""
    proxy = AlteringProxy(port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", listen)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
