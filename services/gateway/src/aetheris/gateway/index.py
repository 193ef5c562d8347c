"""jobs.index, projected into the views: once from its beginning, then as it grows, again when Redis lost them.

A sealed job's row lasts for a time from its seal on. Where its records lie is kept here, in memory, for ever: some 80
bytes a job, as in the planner. By that it is found, and its row made again (`job_rows`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from aetheris.gateway.views import Row, Views, ViewsLost
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobBehind, JobIndexEntry, Message
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_message
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.log.interface import Log, LogUnreachable, Place
from aetheris.runtime.log.job_lines import JobLine, JobLines, line_of
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.pump import Pump
from aetheris.runtime.log.replay import replay
from aetheris.runtime.redis.client import RedisUnavailable

_log = structlog.get_logger(__name__)

_RETRY_S = 0.5
_PAUSE_S = 0.02
_LOOK_S = 1.0
"""Pause between looks at whether Redis still has the views; a read that finds them lost wakes at once."""


Entry = tuple[Record, Message]
"""A record of jobs.index, and what it says."""


class JobIndex:
    """Keeps the views as jobs.index has them; writes idempotent rows, so several gateways may do it at a time."""

    def __init__(self, log: Log, views: Views, clock: Clock, listed_for_s: float) -> None:
        self._log = log
        self._views = views
        self._clock = clock
        self._listed_for_ms = round(listed_for_s * 1000)
        self._arrived: list[Record] = []
        self._ahead: dict[str, Row] = {}
        self._lines = JobLines()
        self._first = 0
        """How many partitions the installation began with, as this topic has."""
        self._live: dict[str, tuple[int, int]] = {}
        """Jobs that are not sealed: the partition and the offset of their creation."""
        self._learned: Callable[[str, int], None] = lambda _job_id, _partition: None
        self._wake_up = asyncio.Event()
        self._doubted = False
        """A read found the views lost."""
        self._loaded = False
        self._built = "nothing yet"

    async def announce(self, row: Row) -> None:
        """Show a submitted job at once, ahead of jobs.index; kept here until that has it.

        Raises:
            RedisUnavailable: it will be shown when Redis is back.
        """
        self._ahead[row.job_id] = row
        await self._views.put([row])

    def line(self, job_id: str) -> JobLine | None:
        """What jobs.index says of a job that is sealed, as far as it was read."""
        try:
            return line_of(self._lines.get, job_id)
        except ValueError:
            return None

    def lies_in(self, job_id: str) -> int | None:
        """The partition of a job, as far as it is known."""
        live = self._live.get(job_id)
        if live is not None:
            return live[0]
        line = self.line(job_id)
        return None if line is None else line.lies_in(job_id, self._first)

    def birth_of(self, job_id: str) -> int | None:
        """The offset of the creation of a job that is known, and not sealed."""
        live = self._live.get(job_id)
        return None if live is None else live[1]

    def on_learned(self, listener: Callable[[str, int], None]) -> None:
        """Call `listener` with each job that becomes known, and its partition."""
        self._learned = listener

    def check_whole(self) -> None:
        """Raises ViewsLost while a job that isn't known here may be known to the log."""
        if not self._loaded:
            raise ViewsLost

    def report_loss(self) -> None:
        """A read found the views lost: look now."""
        self._doubted = True
        self._wake_up.set()

    def unready(self) -> str | None:
        """Why jobs can't be listed; None if they can."""
        return None if self._loaded else f"the list of jobs is being built from the log: {self._built}"

    async def run(self) -> None:
        """Build and follow, until cancelled."""
        while True:
            try:
                positions = await self._build()
                if positions is not None:
                    self._loaded = True
                    await self._follow(positions)
            except (RedisUnavailable, LogUnreachable) as error:
                _log.warning("views interrupted", reason=error.code)
                await self._clock.sleep(_RETRY_S)
            self._loaded = False

    async def _build(self) -> Mapping[Place, int] | None:
        """Every row anew; where to go on from, or None if Redis lost data meanwhile."""
        build = fresh_id()
        run_id = await self._views.begin(build)
        self._first = await self._log.partitions(Topic.JOBS_INDEX)
        places = [(Topic.JOBS_INDEX, number) for number in range(self._first)]
        begins, ends = await self._log.beginning_offsets(places), await self._log.end_offsets(places)
        whole = sum(ends[place] - begins[place] for place in places)
        for what in (self._take_lines, self._project):  # what is known to be sealed is not listed as it was before
            done = 0
            self._built = f"0 of {whole} records"
            for place, end in ends.items():
                async for records in replay(self._log, place, begins[place], end):
                    await what(_entries(record for record in records if record.offset < end))
                    await self._views.go_on(build)
                    self._built = f"{done + min(records[-1].offset + 1, end) - begins[place]} of {whole} records"
                done += end - begins[place]
        await self._views.put(list(self._ahead.values()))
        return ends if await self._views.complete(build, run_id) else None

    async def _follow(self, positions: Mapping[Place, int]) -> None:
        """Project what is appended, until Redis has lost the views."""
        self._arrived = []
        pump = Pump(self._log, self._arrive, _PAUSE_S)
        pump.add(positions)
        reading = asyncio.create_task(pump.run())
        look_s = 0.0
        try:
            while not reading.done():
                if self._doubted or self._clock.monotonic() >= look_s:
                    self._doubted = False
                    if await self._views.lost():
                        break
                    await self._views.sweep(self._now_ms())
                    look_s = self._clock.monotonic() + _LOOK_S
                await self._rung()
                records, self._arrived = self._arrived, []
                entries = _entries(records)
                await self._take_lines(entries)
                await self._project(entries)
                if not records:
                    await pump.check_silence()
        finally:
            reading.cancel()
            await asyncio.wait({reading})
        if not reading.cancelled():
            reading.result()

    async def _rung(self) -> None:
        """Records arrived, a read found the views lost, or it is time to look."""
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._wake_up.wait()
        except TimeoutError:
            return
        finally:
            self._wake_up.clear()

    def _arrive(self, _place: Place, records: list[Record]) -> None:
        self._arrived.extend(records)
        self._wake_up.set()

    async def _take_lines(self, entries: Sequence[Entry]) -> None:
        """Know from now on where sealed jobs lie."""
        for record, entry in entries:
            if isinstance(entry, JobIndexEntry):
                self._take_place(entry)
            if isinstance(entry, JobBehind) or (isinstance(entry, JobIndexEntry) and entry.stretches):
                self._lines[(record.key or b"").decode(errors="replace")] = record.value

    def _take_place(self, entry: JobIndexEntry) -> None:
        """Where a job lies that lives; of one that is sealed its line says so."""
        job_id, is_new = entry.job_id, entry.job_id not in self._live
        if entry.stretches:
            self._live.pop(job_id, None)
        elif is_new and job_id not in self._lines:
            place = partition_of(job_id, self._first) if entry.partition is None else entry.partition
            self._live[job_id] = place, entry.birth
            self._learned(job_id, place)

    async def _project(self, entries: Sequence[Entry]) -> None:
        rows: dict[str, Row] = {}
        over: list[str] = []
        now_ms = self._now_ms()
        for record, entry in entries:
            if not isinstance(entry, JobIndexEntry):
                continue
            ends_ms = record.timestamp_ms + self._listed_for_ms if entry.stretches else None
            if ends_ms is not None and ends_ms <= now_ms:
                over.append(entry.job_id)
                rows.pop(entry.job_id, None)
            elif ends_ms is not None or entry.job_id not in self._lines:
                rows[entry.job_id] = _row_of(entry, record.offset, ends_ms)  # the last of a batch says it all
            self._ahead.pop(entry.job_id, None)
        await self._views.put(list(rows.values()))
        await self._views.drop(over)

    def _now_ms(self) -> int:
        return round(self._clock.now().timestamp() * 1000)


def _entries(records: Iterable[Record]) -> list[Entry]:
    found: list[Entry] = []
    for record in records:
        try:
            envelope = decode_message(record) if record.value else None
        except Undecodable:
            continue
        if isinstance(envelope, Envelope):
            found.append((record, envelope.body))
    return found


def _row_of(entry: JobIndexEntry, offset: int, ends_ms: int | None) -> Row:
    return Row(
        job_id=entry.job_id,
        tenant=entry.tenant,
        status=entry.status,
        request_hash=entry.request_hash,
        submitted_by=entry.submitted_by,
        created_at=entry.created_at,
        birth=entry.birth,
        offset=offset,
        requests=entry.requests,
        trace=entry.trace,
        paused=entry.paused,
        frozen=entry.frozen,
        labels=entry.labels or {},
        ends_ms=ends_ms,
    )
