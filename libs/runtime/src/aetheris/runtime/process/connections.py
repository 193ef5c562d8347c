"""Who is connected: bounded in all and per client address, and accepted for as long as the process lives.

A newcomer is let in. Where there is no room, the connection goes that its client has left waiting for longest: one that
never sent a request first. So a thousand that say nothing cost the others nothing. Only where all are at work is a
newcomer refused.
"""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ssl import SSLContext

_NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_S = 0.05
"""Between two tries to accept where the system has no file descriptor for it."""


@dataclass(eq=False, slots=True)
class Connection:
    """One of them; `drop` ends it at once."""

    address: str
    drop: Callable[[], None]
    heard: bool = False
    """Whether it has ever sent a whole request."""
    left: bool = False


@dataclass(slots=True)
class _Address:
    count: int = 0
    unheard: dict[Connection, None] = field(default_factory=dict[Connection, None])
    idle: dict[Connection, None] = field(default_factory=dict[Connection, None])

    @property
    def waiting(self) -> int:
        return len(self.unheard) + len(self.idle)


class Connections:
    """Those that are open."""

    def __init__(self, most: int, most_of_an_address: int) -> None:
        self._most = most
        self._most_of_an_address = most_of_an_address
        self._addresses: dict[str, _Address] = {}
        self.count = 0

    def enter(self, host: str, drop: Callable[[], None]) -> Connection | None:
        """Let one in, in place of another where there is no room; None where everybody is at work."""
        address = _address(host)
        known = self._addresses.get(address)
        if known is not None and known.count >= self._most_of_an_address and not self._drop_of(known):
            return None
        if self.count >= self._most and not self.make_room():
            return None
        connection = Connection(address, drop)
        known = self._addresses.setdefault(address, _Address())
        known.unheard[connection] = None
        known.count += 1
        self.count += 1
        return connection

    def make_room(self) -> bool:
        """Drop the one that has waited for longest, of the address with most that wait; False where none waits."""
        crowded = max(self._addresses.values(), key=lambda one: one.waiting, default=None)
        return crowded is not None and self._drop_of(crowded)

    def works(self, connection: Connection) -> None:
        """A whole request was heard: until `waits` it is not dropped for another."""
        connection.heard = True
        if not connection.left:
            known = self._addresses[connection.address]
            known.unheard.pop(connection, None)
            known.idle.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        """It has its answer."""
        if connection.heard and not connection.left:
            self._addresses[connection.address].idle[connection] = None

    def leave(self, connection: Connection) -> None:
        """It has ended."""
        if connection.left:
            return
        connection.left = True
        known = self._addresses[connection.address]
        known.unheard.pop(connection, None)
        known.idle.pop(connection, None)
        known.count -= 1
        self.count -= 1
        if not known.count:
            del self._addresses[connection.address]

    def _drop_of(self, known: _Address) -> bool:
        oldest = next(iter(known.unheard or known.idle), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.drop()
        return True


class Listener:
    """Accepts until it is closed, also while the process has no file descriptor left."""

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        protocol: Callable[[Connection], asyncio.BaseProtocol],
        handshake_s: float,
        tls: Callable[[], SSLContext] | None = None,
    ) -> None:
        listening.setblocking(False)
        self._socket = listening
        self._connections = connections
        self._protocol = protocol
        self._handshake_s = handshake_s
        self._tls = tls
        self._opening: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Accept from now on."""
        self._accepting = asyncio.ensure_future(self._accept())

    async def close(self) -> None:
        """Accept no longer, and let go of who has not come in yet."""
        tasks = [task for task in (self._accepting, *self._opening) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(self._socket)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._connections.make_room()
                    await asyncio.sleep(_PAUSE_S)
                continue
            self._admit(accepted, str(peer[0]) if peer else "")
            await asyncio.sleep(0)

    def _admit(self, accepted: socket.socket, host: str) -> None:
        opening: asyncio.Task[None] | None = None

        def drop() -> None:
            if opening is not None:
                opening.cancel()

        connection = self._connections.enter(host, drop)
        if connection is None:
            with suppress(OSError):
                if self._tls is None:
                    accepted.send(_NO_ROOM)
                accepted.close()
            return
        opening = asyncio.ensure_future(self._open(accepted, connection))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, connection: Connection) -> None:
        tls = None if self._tls is None else self._tls()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(connection),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self._handshake_s,
            )
        except OSError:  # the client's own end, its time was over, or no TLS that both speak
            self._gone(accepted, connection)
        except BaseException:
            self._gone(accepted, connection)
            raise

    def _gone(self, accepted: socket.socket, connection: Connection) -> None:
        self._connections.leave(connection)
        with suppress(OSError):
            accepted.close()


def _address(host: str) -> str:
    """Of IPv6 the network of 64 bits, which is one client's."""
    if ":" not in host:
        return host
    known = ipaddress.IPv6Address(host.partition("%")[0])
    return str(known.ipv4_mapped or ipaddress.IPv6Network((int(known), 64), strict=False))
