"""How a person's order gets into a topic that others answer, and how long their answers are waited for."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.message_signer import signed
from aetheris.gateway.views import timestamp
from aetheris.protocol.base.records import Draft
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.interface import Appender


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderWriter:
    """What all orders of this gateway are written with."""

    partitions: Callable[[], Awaitable[int]]
    """How many have to answer."""
    appender: Appender
    deadlines: Deadlines
    clock: Clock
    answer_s: float
    keys: RecordKeys = UNSIGNED

    def now(self) -> str:
        """When an order is given that is given now."""
        return timestamp(self.clock.now())

    async def count(self) -> int:
        """The partitions; raises Unavailable."""
        async with self.deadlines.deadline():
            return await self.partitions()

    async def append(self, record: Draft) -> None:
        """Write it, signed; raises LogError, Unavailable where this gateway's certificate has ended."""
        await self.appender.append([(signed(record, self.keys),)])
