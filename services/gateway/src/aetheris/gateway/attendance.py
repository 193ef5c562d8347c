"""Lets whoever orders later rules see this gateway, and which versions it knows, in the group of gateways.

It reads nothing by that group, and commits nothing there.
"""

import asyncio

import structlog

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.kafka.topics import BrokerRefused
from aetheris.runtime.log.interface import Log, LogUnreachable, MembershipLost

GROUP = "aetheris.gateway"
AGAIN_S = 1.0

_log = structlog.get_logger(__name__)


class Attendance:
    """A member of the group for as long as it runs; it joins again where the brokers have lost it."""

    def __init__(self, log: Log, name: str, clock: Clock) -> None:
        self._log = log
        self._name = name
        self._clock = clock
        self._absent: str | None = None

    def unready(self) -> str | None:
        """Why who orders rules can't see it; None also while it joins, as nobody is told who is there meanwhile."""
        return self._absent

    async def run(self) -> None:
        """Be there, until cancelled."""
        while True:
            membership = self._log.attendance(GROUP, self._name, Topic.POLICIES)
            try:
                await membership.start(self._joined, _nothing)
                await membership.keep()
            except (LogUnreachable, MembershipLost, BrokerRefused) as error:  # who may not be seen serves all the same
                self._absent = f"is not seen in {GROUP}: {error}"
                _log.warning("a gateway is not seen by who orders rules", group=GROUP, error=str(error))
            finally:
                await membership.stop()
            await self._clock.sleep(AGAIN_S)

    async def _joined(self, _partitions: frozenset[int]) -> None:
        self._absent = None


async def _nothing(_partitions: frozenset[int]) -> None:
    await asyncio.sleep(0)
