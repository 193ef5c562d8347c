"""Tells the gateway what starts jobs here, once something has changed, and every minute: for people to see."""

import asyncio
from contextlib import suppress

import structlog

from aetheris.protocol.api_schedules import TOLD_EVERY_S, SchedulerReport
from aetheris.runtime.base.clock import Clock
from aetheris.scheduler.core.told_starts import ToldStarts, fault_report
from aetheris.sdk.keyed_jobs import KeyedJobs, NotTaken

_log = structlog.get_logger(__name__)

PAUSE_S = 2.0
"""Between two reports at least: however much is started, the gateway is told so often and no more."""
_FAULT_WITHIN_S = 10.0


class StartsTeller:
    """No job rests on it: what can't be told is told later."""

    def __init__(self, jobs: KeyedJobs, starts: ToldStarts, scheduler: str, clock: Clock) -> None:
        self.changed = asyncio.Event()
        self.changed.set()
        self._jobs = jobs
        self._starts = starts
        self._scheduler = scheduler
        self._clock = clock

    async def run(self) -> None:
        """Tell, until it is cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), TOLD_EVERY_S)
            self.changed.clear()
            if not await _told(self._jobs, self._starts.report(self._scheduler, self._clock.now())):
                self.changed.set()
            await asyncio.sleep(PAUSE_S)


async def tell_fault(jobs: KeyedJobs, scheduler: str, fault: str) -> None:
    """Say why a file starts nothing, before the process ends; the gateway may be away."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_FAULT_WITHIN_S):
            await _told(jobs, fault_report(scheduler, fault))


async def _told(jobs: KeyedJobs, report: SchedulerReport) -> bool:
    try:
        await jobs.tell_schedules(report.model_dump(mode="json", exclude_none=True))
    except NotTaken as error:
        _log.warning("what starts jobs could not be told", code=str(error))
        return False
    return True
