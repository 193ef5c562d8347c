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

        Its end is told by the log at once. One that came before `news` is seen in the list, which follows the log.
        """
        wait.left.add_done_callback(lambda _: news.close())
        over_s, pause_s = self._clock.monotonic() + wait.within_s, _FIRST_LOOK_S
        while row.status not in _ENDS.values() and (left_s := over_s - self._clock.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(pause_s, left_s)):
                    return _ENDS[(await news.get()).header("ce_type") or b""]
            except TimeoutError:
                row = await self._listed(row)
                pause_s *= 2
            except FeedClosed:
                break
        return row.status

    async def _listed(self, row: Row) -> Row:
        """A job's row as it is now, if that can be said."""
        with suppress(Unavailable):
            async with self._deadlines.deadline():
                return await self._views.job(row.job_id) or row
        return row
