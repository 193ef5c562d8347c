"""Judging jobs while they run: at once where a record looks odd, else in turn, within a small share of the time.

Brief jobs cost nothing here: they are judged when they are sealed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from aetheris.proofs import Violation
from aetheris.proofs.audit import violations_in
from aetheris.runtime.base.clock import Clock
from aetheris.verifier.core.partition import AuditedJob, Partition

PAUSE_S = 1.0
"""Between two rounds over the jobs that have come on."""
REST = 50
"""Judging in turn takes at most 1/50 of the time."""

Report = Callable[[AuditedJob, Iterable[Violation]], Awaitable[None]]


class AuditWatch:
    """One at a time, in a thread, over a copy of a job's facts."""

    def __init__(self, core: Partition, report: Report, clock: Clock) -> None:
        self._core = core
        self._report = report
        self._clock = clock
        self._looking: asyncio.Task[None] | None = None
        self._next_s: float | None = None

    def hurry(self) -> None:
        """Judge what looks odd, now; raises what a look before ended with."""
        if self._core.odd and self._is_free():
            self._looking = asyncio.create_task(self._look_at_odd())

    def next_round_s(self) -> float | None:
        """When the next round is due, if one has to be asked for (on the clock's monotonic time)."""
        if self._next_s is not None or not self._core.moved:
            return None
        self._next_s = self._clock.monotonic() + PAUSE_S
        return self._next_s

    def go_round(self) -> float | None:
        """Judge what has come on; when to come again, None where nothing moves."""
        began_s = self._clock.monotonic()
        if self._next_s is not None and began_s >= self._next_s:
            due = self._core.due_for_a_look()
            self._next_s = began_s + PAUSE_S if self._core.moved else None
            if due and self._is_free():
                self._looking = asyncio.create_task(self._look_in_turn(due))
        return self._next_s

    async def close(self) -> None:
        """Whoever comes next looks at everything anew."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _is_free(self) -> bool:
        if self._looking is not None and self._looking.done():
            done, self._looking = self._looking, None
            done.result()
        return self._looking is None

    async def _look_at_odd(self) -> None:
        while self._core.odd:
            _, job = self._core.odd.popitem()
            await self._judge(job)

    async def _look_in_turn(self, jobs: Iterable[str]) -> None:
        for job_id in jobs:
            job = self._core.jobs.get(job_id) if job_id in self._core.moved else None
            if job is not None:
                began_s = self._clock.monotonic()
                await self._judge(job)
                await self._clock.sleep(REST * (self._clock.monotonic() - began_s))
            await self._look_at_odd()

    async def _judge(self, job: AuditedJob) -> None:
        self._core.looked_at.add(job.job_id)
        try:
            await self._look_at(job)
        finally:
            self._core.looked_at.discard(job.job_id)

    async def _look_at(self, job: AuditedJob) -> None:
        facts, broken = list(job.audit.history.facts), job.audit.broken_records
        job.looked = len(facts)
        self._core.moved.pop(job.job_id, None)
        try:
            broken = (*broken, *await asyncio.to_thread(violations_in, facts))
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            self._core.stand_still(job, error)
        await self._report(job, broken)
