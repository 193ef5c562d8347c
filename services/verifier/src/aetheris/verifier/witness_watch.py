"""For how long seals wait for witnesses: a relay that does not run, or does not reach them, shows here."""

from collections import deque

import structlog

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import LogError
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.verifier.seallog import SealLog, SealLogForked

LOOK_S = 30.0

_log = structlog.get_logger(__name__)


class WitnessWatch:
    """Looks at the log of seals, and at what witnesses have seen of it; a restart begins to count anew."""

    def __init__(self, seals: SealLog, clock: Clock) -> None:
        self._seals = seals
        self._clock = clock
        self._sizes: deque[tuple[int, float]] = deque()
        """Sizes that the witnesses have not seen, and when each was first looked at."""

    def show(self, metrics: Metrics) -> None:
        """Let them say how long the oldest seal waits."""
        metrics.watch(Metric.UNWITNESSED, lambda: self.waits_s)

    @property
    def waits_s(self) -> int:
        """For how long the oldest leaf waits that not enough witnesses have seen; 0 where they have seen all."""
        first = next(iter(self._sizes), None)
        return 0 if first is None else int(self._clock.monotonic() - first[1])

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            try:
                await self._look()
            except (LogError, SealLogForked) as error:
                _log.warning("what witnesses have seen is not known", code=error.code, reason=str(error))
            await self._clock.sleep(LOOK_S)

    async def _look(self) -> None:
        size, seen = await self._seals.seen()
        while self._sizes and self._sizes[0][0] <= seen:
            self._sizes.popleft()
        if size > seen and (not self._sizes or self._sizes[-1][0] < size):
            self._sizes.append((size, self._clock.monotonic()))
