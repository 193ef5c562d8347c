"""Whether the brokers answer, asked again and again: a process that hangs keeps its connections, and says nothing."""

import asyncio
from contextlib import suppress

from aetheris.runtime.kafka.brokers import Brokers
from aetheris.runtime.kafka.connection import Address, Disconnected, KafkaConnection
from aetheris.runtime.kafka.wire import API_VERSIONS

EVERY_S = 1.0
WITHIN_S = 3.0
"""A broker that takes longer does not answer: readiness turns `EVERY_S` + `WITHIN_S` after it hangs, at the latest."""


class Pulse:
    """One small question to each broker, on a connection of its own."""

    def __init__(self, brokers: Brokers, every_s: float = EVERY_S, within_s: float = WITHIN_S) -> None:
        self._brokers = brokers
        self._every_s = every_s
        self._within_s = within_s
        self._connections: dict[Address, KafkaConnection] = {}
        self._answered: dict[Address, bool] = {}

    def unready(self) -> str | None:
        """Why the log can't be relied on now; None where at least half of the brokers answer."""
        silent = sorted(f"{host}:{port}" for (host, port), answered in self._answered.items() if not answered)
        if 2 * len(silent) <= len(self._answered):
            return None
        return f"brokers don't answer: {', '.join(silent)}"

    async def run(self) -> None:
        """Ask, until cancelled."""
        try:
            while True:
                known = self._brokers.addresses()
                for gone in self._answered.keys() - known:
                    del self._answered[gone]
                asking = [self._ask(address) for address in known]
                self._answered.update(zip(known, await asyncio.gather(*asking), strict=True))
                await asyncio.sleep(self._every_s)
        finally:
            for connection in self._connections.values():
                connection.close()

    async def _ask(self, address: Address) -> bool:
        with suppress(Disconnected, TimeoutError):
            async with asyncio.timeout(self._within_s):
                connection = self._connections.get(address)
                if connection is not None and not connection.lost:
                    with suppress(Disconnected):  # as where its login has ended: a new one says more
                        await connection.call(API_VERSIONS, b"")
                        return True
                connection = self._connections[address] = await self._brokers.connect(address)
                await connection.call(API_VERSIONS, b"")
                return True
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
        return False
