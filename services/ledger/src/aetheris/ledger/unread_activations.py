"""A partition names an activation that this process has not read: it reads their topic to its end (docs/policy.md)."""

import asyncio
from collections.abc import Callable

import structlog

from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.partition import Partition
from aetheris.ledger.core.policy_in_force import PolicyInForce
from aetheris.ledger.operator_log import report_forged_barrier, report_missing
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import LogError
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.telemetry.metrics import Metrics

_RETRY_PAUSE_S = 0.2

_log = structlog.get_logger(__name__)


class UnreadActivations:
    """Of one partition. An activation lies in its topic before anything names it: what is not there nobody has said."""

    def __init__(
        self,
        partition: Partition,
        in_force: PolicyInForce,
        policies: OrderTable[PolicyActivations],
        *,
        metrics: Metrics,
        clock: Clock,
        wake_up: Callable[[], None],
    ) -> None:
        """`wake_up` has the partition take a round."""
        self._partition = partition
        self._in_force = in_force
        self._policies = policies
        self._metrics = metrics
        self._clock = clock
        self._wake_up = wake_up
        self._asking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """After a round: read the topic for a barrier, and for what jobs name, once; each by itself."""
        named, missing = self._partition.unknown_activation, self._in_force.missing
        if not named:
            missing.pop(self._partition.number, None)
        is_news = named > missing.get(self._partition.number, 0)
        if (is_news or self._partition.unknown_barriers) and self._asking is None:
            self._asking = asyncio.create_task(self._ask(named, self._partition.unknown_barriers))

    async def close(self) -> None:
        """Somebody else has the partition."""
        self._in_force.missing.pop(self._partition.number, None)
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, named: int, barriers: int) -> None:
        try:
            await self._policies.caught_up()
        except LogError as error:
            _log.warning("what is activated is not known yet", error=str(error))
            await self._clock.sleep(_RETRY_PAUSE_S)
        else:
            self._read(named, barriers)
        self._asking = None
        self._wake_up()

    def _read(self, named: int, barriers: int) -> None:
        number = self._partition.number
        if self._partition.activations_known(barriers, Now(self._clock.monotonic(), self._clock.now())):
            report_forged_barrier(number, self._in_force)
        if named and self._partition.unknown_activation >= named:
            self._in_force.missing[number] = named
            report_missing(number, named, self._in_force, self._metrics)
