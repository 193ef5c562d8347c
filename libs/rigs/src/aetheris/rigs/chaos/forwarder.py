"""A process that forwards connections, and makes their answers late or resets them when it is told to.

    python -m aetheris.rigs.chaos.forwarder '{"outside": [0, 8080], "redis": ["near.sock", "far.sock"]}'

Each route has the address to listen on and the server's: a port of 127.0.0.1 (0: any) or the path of a unix socket.
Once it listens it writes {route: address} in one line; each line that it reads, {route, delay_s, resetting, late_s},
holds from then on. Whatever becomes of an answer, the request goes on to the server: `late_s` later, also when its
client has gone by then. It ends with its standard input.
"""

import asyncio
import json
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import uvloop

Address = int | str

_HOST = "127.0.0.1"
_BACKLOG = 1024
_RESET = struct.pack("ii", 1, 0)  # linger on, for no time: close sends RST
_EARLY_S = 0.001
"""uvloop's timers are up to so much early."""


@dataclass
class Route:
    """Where connections go on to, and what is done to their answers now."""

    server: Address
    delay_s: float = 0.0
    resetting: bool = False
    late_s: float = 0.0


class _Server(asyncio.Protocol):
    """The end towards the server: answers pass here, late or not at all."""

    def __init__(self, route: Route, client: "_Client") -> None:
        self._route = route
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._late: deque[tuple[float, bytes]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._route.resetting:
            self._reset()
        elif self._route.delay_s or self._late:
            self._hold(data)
        else:
            self._client.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's
        self._late.clear()
        self._client.transport.close()

    def pause_writing(self) -> None:
        if not self._client.transport.is_closing():
            self._client.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._client.transport.is_closing():
            self._client.transport.resume_reading()

    def _hold(self, data: bytes) -> None:
        self._late.append((self._loop.time() + self._route.delay_s, data))
        if len(self._late) == 1:
            self._loop.call_later(self._route.delay_s, self._pass_on)

    def _pass_on(self) -> None:
        """What is due, in its order; what came later waits for what came before."""
        if self._route.resetting and self._late:
            self._reset()
        now_s = self._loop.time()
        while self._late and self._late[0][0] <= now_s + _EARLY_S:
            self._client.transport.write(self._late.popleft()[1])
        if self._late:
            self._loop.call_later(self._late[0][0] - now_s, self._pass_on)

    def _reset(self) -> None:
        self._late.clear()
        with socket.socket(fileno=os.dup(self._client.transport.get_extra_info("socket").fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._client.transport.abort()
        self.transport.abort()


class _Client(asyncio.Protocol):
    """The end towards the client: what it says before the server has been reached is kept."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._server: _Server | None = None
        self._early = bytearray()
        self._late: deque[tuple[float, bytes]] = deque()
        self._gone = False
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._reaching = self._loop.create_task(self._reach())

    def data_received(self, data: bytes) -> None:
        if self._server is None:
            self._early += data
        elif self._route.late_s or self._late:
            self._hold(data)
        else:
            self._server.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's
        self._gone = True
        if not self._late:
            self._leave()

    def _leave(self) -> None:
        self._reaching.cancel()
        if self._server is not None:
            self._server.transport.close()

    def _hold(self, data: bytes) -> None:
        self._late.append((self._loop.time() + self._route.late_s, data))
        if len(self._late) == 1:
            self._loop.call_later(self._route.late_s, self._pass_on)

    def _pass_on(self) -> None:
        """What is due, in its order; where nobody waits for an answer any more, the connection ends with the last."""
        now_s = self._loop.time()
        while self._server is not None and self._late and self._late[0][0] <= now_s + _EARLY_S:
            self._server.transport.write(self._late.popleft()[1])
        if self._late:
            self._loop.call_later(self._late[0][0] - now_s, self._pass_on)
        elif self._gone:
            self._leave()

    def pause_writing(self) -> None:
        if self._server is not None and not self._server.transport.is_closing():
            self._server.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._server is not None and not self._server.transport.is_closing():
            self._server.transport.resume_reading()

    async def _reach(self) -> None:
        try:
            server = await _connected(self._route.server, _Server(self._route, self))
        except OSError:
            self.transport.abort()
            return
        self._server = server
        early = bytes(self._early)
        self._early.clear()
        if early:
            self.data_received(early)


async def _connected(address: Address, end: _Server) -> _Server:
    loop = asyncio.get_running_loop()
    if isinstance(address, int):
        await loop.create_connection(lambda: end, _HOST, address)
    else:
        await loop.create_unix_connection(lambda: end, address)
    return end


async def _listening(address: Address, route: Route) -> asyncio.Server:
    """Take connections from now on, for as long as somebody holds the server."""
    loop = asyncio.get_running_loop()
    if isinstance(address, int):
        return await loop.create_server(lambda: _Client(route), _HOST, address, backlog=_BACKLOG)
    return await loop.create_unix_server(lambda: _Client(route), address, backlog=_BACKLOG)


def _entrance(address: Address, server: asyncio.Server) -> Address:
    return int(server.sockets[0].getsockname()[1]) if isinstance(address, int) else address


async def _forward(addresses: Mapping[str, tuple[Address, Address]]) -> None:
    routes = {name: Route(server) for name, (_, server) in addresses.items()}
    servers = {name: await _listening(near, routes[name]) for name, (near, _) in addresses.items()}
    where = {name: _entrance(addresses[name][0], server) for name, server in servers.items()}
    sys.stdout.write(json.dumps(where) + "\n")
    sys.stdout.flush()
    reported = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reported), sys.stdin)
    while line := await reported.readline():
        order = json.loads(line)
        route = routes[order["route"]]
        route.delay_s, route.resetting, route.late_s = order["delay_s"], order["resetting"], order["late_s"]


if __name__ == "__main__":
    uvloop.run(_forward(json.loads(sys.argv[1])))
