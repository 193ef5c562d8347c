"""Requests that wait for their job's end (`Prefer: wait=N`)."""

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass

from aetheris.gateway.core.problems import Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.feed import FeedClosed, JobFeed
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.views import Row, Views
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.provenance import Provenance, Standing
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_event
from aetheris.protocol.messages.events import JobCreated, KeyRevoked
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.keys.records import RecordKeys
from aetheris.views import standing

_ENDS = {f"io.aetheris.job_{status}.v1".encode(): status for status in ("completed", "failed", "cancelled")}
"""ce_type → the status of a job that it ends."""
_BIRTH = f"io.aetheris.{JobCreated.event_type}.v1".encode()
HEARD = frozenset({*_ENDS, _BIRTH, f"io.aetheris.{KeyRevoked.event_type}.v1".encode()})
"""With what may keep an end from counting."""
_FIRST_LOOK_S = 0.1
"""After so long a wait asks the list whether the job had ended before it listened; then each time twice as late."""


@dataclass(frozen=True, slots=True)
class EndWait:
    """How long a request waits for its job's end; until its client has `left` at most."""

    within_s: int
    left: asyncio.Future[None]


class EndWaits:
    """Listens first: no end is missed."""

    def __init__(self, reader: JobReader, views: Views, deadlines: Deadlines, clock: Clock, keys: RecordKeys) -> None:
        """`keys` know the roots whose jobs' ends are believed as they are heard."""
        self._keys = keys
        self._reader = reader
        self._views = views
        self._deadlines = deadlines
        self._clock = clock

    def listening(self, job_id: str) -> AbstractAsyncContextManager[JobFeed]:
        """Listen to a job's end; raises Unavailable."""
        return self._reader.listening(job_id, HEARD)

    async def ended(self, news: JobFeed, row: Row, wait: EndWait, *, is_new: bool = False) -> str:
        """The status that a job ended with; where the wait is over before, the one that the list has.

        A record that says so is news only: the fold says whether it counts. An end that came before `news` is seen in
        the list, which follows the log. `is_new`: the row was made behind `news`, so this has all from its `since` on.
        """
        heard = _HeardEnd(row.since if is_new else None, self._keys.provenance())
        wait.left.add_done_callback(lambda _: news.close())
        over_s, pause_s = self._clock.monotonic() + wait.within_s, _FIRST_LOOK_S
        while row.status not in _ENDS.values() and (left_s := over_s - self._clock.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(pause_s, left_s)):
                    record = await news.get()
                status = heard.take(record)
                if status is None and record.header("ce_type") in _ENDS:
                    status = await self._folded(row)
                if status is not None:
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


class _HeardEnd:
    """Judges an end by what of its job was heard from the birth on, which spares reading the log where that suffices.

    A birth under a root that is known here, then what that revokes, then the end: the fold, which has all between as
    well, knows no fewer keys, and the first end that counts ends a job whatever came before it.
    """

    def __init__(self, since: int | None, provenance: Provenance) -> None:
        """`since`: an offset from which on all of the job is heard, and below which nothing of it lies."""
        self._since = since
        self._provenance = provenance
        self._is_born = False

    def take(self, record: Record) -> str | None:
        """The status that the next record ends the job with; None where it ends nothing, or that is for the fold."""
        if self._since is None or record.offset < self._since:
            return None
        try:
            found = decode_event(record)
        except Undecodable:
            return None
        if not isinstance(found, Envelope):
            return None
        counts = self._provenance.judge(record, found.body) is Standing.COUNTS
        if isinstance(found.body, JobCreated):
            self._is_born = self._is_born or counts
            return None
        status = _ENDS.get(record.header("ce_type") or b"")
        return status if counts and self._is_born else None
