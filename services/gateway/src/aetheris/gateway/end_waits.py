"""Requests that wait for their job's end (`Prefer: wait=N`)."""

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass

from aetheris.gateway.core.problems import Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.feed import FeedClosed, JobFeed
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.views import Row, Views
from aetheris.runtime.base.clock import Clock
from aetheris.views import standing

_ENDS = {f"io.aetheris.job_{status}.v1".encode(): status for status in ("completed", "failed", "cancelled")}
"""ce_type → the status of a job that it ends."""
_FIRST_LOOK_S = 0.1
"""After so long a wait asks the list whether the job had ended before it listened; then each time twice as late."""


@dataclass(frozen=True, slots=True)
class EndWait:
    """How long a request waits for its job's end; until its client has `left` at most."""

    within_s: int
    left: asyncio.Future[None]


class EndWaits:
    """Listens first: no end is missed."""

    def __init__(self, reader: JobReader, views: Views, deadlines: Deadlines, clock: Clock) -> None:
        self._reader = reader
        self._views = views
        self._deadlines = deadlines
        self._clock = clock

    def listening(self, job_id: str) -> AbstractAsyncContextManager[JobFeed]:
        """Listen to a job's end; raises Unavailable."""
        return self._reader.listening(job_id, _ENDS)

    async def ended(self, news: JobFeed, row: Row, wait: EndWait) -> str:
        """The status that a job ended with; where the wait is over before, the one that the list has.

        A record that says so is news only: the fold says whether it counts. An end that came before `news` is seen in
        the list, which follows the log.
        """
        wait.left.add_done_callback(lambda _: news.close())
        over_s, pause_s = self._clock.monotonic() + wait.within_s, _FIRST_LOOK_S
        while row.status not in _ENDS.values() and (left_s := over_s - self._clock.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(pause_s, left_s)):
                    await news.get()
                if (status := await self._folded(row)) is not None:
                    return status
            except TimeoutError:
                row = await self._listed(row)
                pause_s *= 2
            except FeedClosed:
                break
        return row.status

    async def _folded(self, row: Row) -> str | None:
        """The status that a job's log ends with; None where it has not ended, or that can't be said now."""
        with suppress(Unavailable):
            async with self._deadlines.deadline():
                state = (await self._reader.fold(await self._views.job(row.job_id) or row)).state
            return standing.job_status(state) if state is not None and state.terminal is not None else None
        return None

    async def _listed(self, row: Row) -> Row:
        """A job's row as it is now, if that can be said."""
        with suppress(Unavailable):
            async with self._deadlines.deadline():
                return await self._views.job(row.job_id) or row
        return row
