"""When it is time: what was missed is started first, then each schedule at its own times."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import structlog

from aetheris.runtime.base.clock import Clock
from aetheris.scheduler.core.job_starts import JobSchedule, due_times, next_time, schedule_key
from aetheris.scheduler.core.told_starts import StartSource
from aetheris.scheduler.job_writer import JobWriter
from aetheris.sdk.keyed_jobs import NotTaken

_log = structlog.get_logger(__name__)

LOOK_S = 30.0
"""The longest pause between two looks: a clock that was put right is noticed."""
RETRY_S = 2.0
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class Clockwork:
    """Keeps nothing: what is due follows from the time alone, and a time that comes twice names one job."""

    def __init__(self, schedules: Sequence[JobSchedule], writer: JobWriter, clock: Clock) -> None:
        self._schedules = schedules
        self._writer = writer
        self._clock = clock
        self._done = dict.fromkeys(range(len(schedules)), _NEVER)
        """Up to when each was looked at; at first never: all that may be made up for is."""

    async def run(self, stop: asyncio.Event) -> None:
        """Start jobs until `stop` is set."""
        while not stop.is_set():
            pause_s = await self.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)

    async def look(self) -> float:
        """Start what is due now; in how many seconds to look again."""
        now = self._clock.now()
        waits = [LOOK_S]
        for place, schedule in enumerate(self._schedules):
            try:
                for due in due_times(schedule, self._done[place], now):
                    occasion = {"schedule": schedule.name, "due": due.isoformat()}
                    source, key = StartSource("schedule", schedule.name), schedule_key(schedule.name, due)
                    await self._writer.start(source, schedule.plan, occasion, key)
            except NotTaken as error:
                _log.warning("a schedule waits", schedule=schedule.name, code=str(error))
                waits.append(RETRY_S)
                continue
            self._done[place] = now
            following = next_time(schedule, now)
            if following is not None:
                waits.append(max(0.01, (following - self._clock.now()).total_seconds()))
        return min(waits)
