"""How jobs stand and what happened in them, from their logs; lists, tools and models."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from aetheris.gateway.core import wire
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import NotFoundProblem
from aetheris.gateway.core.wire import Moved
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.end_waits import EndWait, EndWaits
from aetheris.gateway.feed import Feed
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.long_jobs import LongJobs
from aetheris.gateway.registry import Registry
from aetheris.gateway.views import JobQuery, Page, Row, Views
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import Sequence, logged_events, next_logged_event
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.events import JobSealed
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.redis.client import RedisUnavailable
from aetheris.runtime.redis.quarantines import Quarantined, QuarantineStore
from aetheris.views import standing
from aetheris.views.contracts import Contracts, Level

_BREATH = 500
"""Records after which a long job lets other requests go on."""
_OPEN = ("running", "waiting", "paused", "frozen", "stopping", "compensating", "cancelling")
"""The statuses of jobs in which a call may be open."""
_PAYLOADS = frozenset({"goal", "result"})
"""Of a job's view: what is for who may read payloads."""
_OPEN_JOBS = 50
"""Of each status, so many are looked at."""


class Reads:
    """Nothing is stored: the same log, the same answer."""

    def __init__(
        self,
        *,
        reader: JobReader,
        waits: EndWaits,
        feed: Feed,
        views: Views,
        quarantines: QuarantineStore,
        registry: Registry,
        deadlines: Deadlines,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._long = LongJobs(reader)
        self._waits = waits
        self._feed = feed
        self._views = views
        self._quarantines = quarantines
        self._registry = registry
        self._deadlines = deadlines
        self._clock = clock

    async def page(self, caller: Principal, query: JobQuery, cursor: str | None, limit: int) -> Page:
        """The tenant's jobs, newest first; raises BadRequest, Unavailable."""
        async with self._deadlines.deadline():
            return await self._views.page(caller.tenant, query, cursor, limit)

    async def job(self, caller: Principal, job_id: str, wait: EndWait | None = None) -> dict[str, Any]:
        """How a job stands, from its log: now, or when it has ended or the wait is over.

        Raises:
            NotFound, Unavailable.
        """
        if wait is not None:
            async with self._waits.listening(job_id) as news:
                await self._waits.ended(news, await self._reader.check(caller, job_id), wait)
        async with self._deadlines.deadline():
            row = await self._reader.row(caller, job_id)
            state = await self._long.state(row)
            if state is None:
                return {**row.summary(), "steps": []}
            view = standing.job_view(state, row.created_at)
            if not caller.reads_payloads(row.submitted_by):
                view = {name: value for name, value in view.items() if name not in _PAYLOADS}
            held = await self._held(state)
        return view if held is None else {**view, "why": f"{view['why']}; {held}" if "why" in view else held}

    async def records(self, caller: Principal, job_id: str, until: int | None = None) -> list[Record]:
        """A job's records, up to the end of the log or, without it, an offset.

        Raises:
            NotFound, Unavailable.
        """
        async with self._deadlines.deadline():
            row = await self._reader.row(caller, job_id)
            return await self._reader.records(row, until if until is not None else await self._reader.end(job_id))

    async def events(self, caller: Principal, job_id: str, after: int, limit: int) -> list[dict[str, Any]]:
        """A job's records with sequence above `after`, those that are void marked as such.

        Raises:
            NotFound, Unavailable.
        """
        async with self._deadlines.deadline():
            records = await self._long.events(await self._reader.row(caller, job_id), after, limit)
        found: list[dict[str, Any]] = []
        for count, one in enumerate(records, start=1):
            found.append(wire.told(one.sequence, one.record, is_void=one.is_void))
            if count % _BREATH == 0:
                await asyncio.sleep(0)
        return found

    async def record(self, caller: Principal, job_id: str, seq: int) -> dict[str, Any]:
        """The record of one event, byte for byte.

        Raises:
            NotFound: the job has no such event, or there is no such job. Unavailable.
        """
        async with self._deadlines.deadline():
            found = await self._long.events(await self._reader.row(caller, job_id), seq - 1, 1)
        for one in found:
            return wire.record_view(seq, one.record)
        raise NotFoundProblem("unknown_event", "the job has no such event")

    async def stream(self, row: Row, after: int) -> AsyncIterator[list[Moved]]:
        """A job's events with sequence above `after`, without void ones: history, then live, until the job is sealed.

        What was read together comes together.

        Raises:
            FeedClosed: resume later from the last sequence.
        """
        numbers, contracts = Sequence(), Contracts()
        async with self._reader.listening(row.job_id) as news:
            async for records in self._reader.spliced(row, news):
                found: list[Moved] = []
                for record in records:
                    event = next_logged_event(numbers, record)
                    moved = contracts.take(event)
                    if event.sequence is not None and event.sequence > after and not event.is_void:
                        found.append(Moved(event.sequence, event, moved))
                    if isinstance(event.event, JobSealed):
                        yield found
                        return
                if found:
                    yield found

    async def contracts(self, caller: Principal, job_id: str, level: Level) -> list[dict[str, Any]]:
        """The execution contracts of a job, as far as `level` lets be seen.

        Raises:
            NotFound, Unavailable.
        """
        found = Contracts()
        for count, event in enumerate(logged_events(await self.records(caller, job_id)), start=1):
            found.take(event)
            if count % _BREATH == 0:
                await asyncio.sleep(0)
        return found.view(level)

    async def opened_by(self, caller: Principal, worker_id: str) -> list[dict[str, Any]]:
        """What a worker has open in the caller's newest jobs that have not ended, as far as that can be read in time.

        Raises:
            Unavailable.
        """
        found: list[dict[str, Any]] = []
        async with self._deadlines.deadline():
            for status in _OPEN:
                for row in (await self._views.page(caller.tenant, JobQuery(status), None, _OPEN_JOBS)).rows:
                    state = (await self._reader.fold(row)).state
                    found += standing.opened_by(state, worker_id) if state is not None else []
        return found

    async def tools(self, caller: Principal) -> list[dict[str, Any]]:
        """The newest version of every tool; with `quarantined`, where calls of the caller's tenant wait."""
        held = await self._quarantined(caller.tenant, range(self._feed.partitions))
        return [
            entry.model_dump(mode="json", by_alias=True) | _quarantine_view(held.get(entry.name))
            for entry in self._registry.newest().values()
        ]

    def models(self) -> list[dict[str, Any]]:
        """The registered models."""
        return [entry.model_dump(mode="json") for entry in self._registry.models().values()]

    async def _held(self, state: JobState) -> str | None:
        """Which call of a job waits because its tool is in quarantine."""
        starting = list(standing.to_start(state))
        if not starting:
            return None
        (_, partition), _ = self._feed.place_of(state.job_id)
        held = await self._quarantined(state.created.tenant, (partition,))
        return next((f"{node} waits: {held[tool].reported}" for node, tool in starting if tool in held), None)

    async def _quarantined(self, tenant: str, partitions: Iterable[int]) -> dict[str, Quarantined]:
        """By tool, the longest; nothing where Redis doesn't answer."""
        try:
            found = await self._quarantines.shown(partitions, self._clock.now().isoformat())
        except RedisUnavailable:
            return {}
        mine = sorted((one for one in found if one.tenant == tenant), key=lambda one: one.until)
        return {one.tool: one for one in mine}


def _quarantine_view(held: Quarantined | None) -> dict[str, Any]:
    return {} if held is None else {"quarantined": {"until": held.until, "failures": held.failures}}
