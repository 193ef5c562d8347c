"""Finished effects, undone by jobs of their own: what would be, and the job that does it (docs/compensation.md)."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from aetheris.gateway.core import bodies, undo_plans
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem
from aetheris.gateway.core.undo_plans import Effect, Undo, UndoHistory, UndoStatus
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.intake import Intake
from aetheris.gateway.job_histories import StoredResults
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.job_rows import JobRows
from aetheris.gateway.registry import Registry
from aetheris.gateway.views import JobQuery, Row, Views
from aetheris.protocol.api import Submitted
from aetheris.protocol.api_operations import UndoBody, UndoEffect, UndoJob, UndoPage
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import job_id_of
from aetheris.protocol.base.principals import Role
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.plan.graph import InvalidPlan
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import Blobs

LOOKED_THROUGH = 200
"""Lines of the list of jobs that one request looks through."""
LOOKED_AT = 20
"""Jobs whose logs it reads."""


@dataclass(frozen=True, slots=True)
class UndoQuery:
    """Which effects are meant: of the jobs that an agent submitted, of a tool, from a time on."""

    agent: str | None = None
    tool: str | None = None
    since: datetime | None = None

    def among(self, found: Sequence[Effect]) -> list[Effect]:
        """Those of a job's that are meant; what is in doubt has no time, and is always told."""
        least_ms = self.since.timestamp() * 1000 if self.since is not None else 0
        return [
            one
            for one in found
            if self.tool in (None, one.tool) and (one.at_ms >= least_ms or one.standing is UndoStatus.IN_DOUBT)
        ]


@dataclass(frozen=True, slots=True)
class _Looked:
    """A job as far as it can be undone, the jobs that undo it, and why nothing of it can be now.

    No `found`: it has not begun, or what it did is told of the job that it undoes.
    """

    found: UndoHistory | None = None
    undos: tuple[Undo, ...] = ()
    why: str | None = None

    @property
    def over(self) -> tuple[Undo, ...]:
        """The jobs that undo it of which nothing changes any more."""
        return self.undos if self.undos and self.undos[-1].is_over else self.undos[:-1]


class Undos:
    """Nothing is kept: all follows from the logs of the jobs."""

    def __init__(
        self,
        *,
        reader: JobReader,
        rows: JobRows,
        views: Views,
        intake: Intake,
        registry: Registry,
        blobs: Blobs,
        deadlines: Deadlines,
        clock: Clock,
        listed_for_s: float,
    ) -> None:
        self._reader = reader
        self._rows = rows
        self._views = views
        self._intake = intake
        self._registry = registry
        self._blobs = StoredResults(blobs)
        self._deadlines = deadlines
        self._clock = clock
        self._listed_for_ms = round(listed_for_s * 1000)

    async def preview(self, caller: Principal, query: UndoQuery, cursor: str | None) -> UndoPage:
        """The effects that are meant, of some jobs, newest job first, each in the order in which it is undone.

        Raises:
            BadRequest, Unavailable.
        """
        listed = JobQuery(agent=query.agent)
        found: list[UndoJob] = []
        async with self._deadlines.deadline():
            no_more_s = self._clock.monotonic() + self._deadlines.request_s / 2
            page = await self._views.page(caller.tenant, listed, cursor, LOOKED_THROUGH)
            following = page.cursor
            for count, row in enumerate(rows := list(self._that_may_have(page.rows, query)), start=1):
                looked = await self._look(caller, row)
                effects = query.among(await self._effects(looked, looked.undos))
                if effects or (looked.why is not None and query.tool is None):
                    found.append(_shown(caller, row, looked, effects))
                is_late = self._clock.monotonic() > no_more_s
                if (count == LOOKED_AT or is_late) and count < len(rows):
                    following = self._views.cursor_behind(row, listed)
                    break
        return UndoPage(jobs=tuple(found), cursor=following)

    async def undo(self, caller: Principal, job_id: str, raw: bytes) -> Submitted:
        """Take the next job that undoes what is meant of a job; the same request, said again, names the same one.

        Raises:
            BadRequest, NotFound, Conflict, TooMany, Unavailable.
        """
        body, _ = bodies.parsed(raw)
        wanted = bodies.validated(UndoBody, body)
        async with self._deadlines.deadline():
            row = await self._reader.row(caller, job_id)
            looked = await self._look(caller, row)
            if looked.why is not None:
                raise ConflictProblem("not_undoable", looked.why)
            told = await self._effects(looked, looked.over)
        meant = UndoQuery(tool=wanted.tool, since=wanted.since).among(told)
        effects = [one for one in meant if one.standing is UndoStatus.UNDOABLE]
        key = undo_plans.key_behind(job_id, looked.over)
        request_hash = digest([key, [one.node_id for one in effects]])
        if looked.over != looked.undos:
            return await self._standing(looked.undos[-1], request_hash, job_id)
        if not effects:
            raise ConflictProblem("nothing_to_undo", "nothing that is meant can be undone, or is not undone yet")
        if len(looked.undos) == undo_plans.MOST_UNDOS:
            raise ConflictProblem("not_undoable", f"{undo_plans.MOST_UNDOS} jobs have tried: see why they failed")
        try:
            plan = undo_plans.plan(effects, self._registry.newest())
        except InvalidPlan as error:
            raise BadRequestProblem("invalid_plan", error.field, error.rule) from None
        command = Submit(
            job_id=job_id_of(caller.tenant, key),
            by=caller.id,
            tenant=caller.tenant,
            request_hash=request_hash,
            plan=plan,
            idempotency_key=key,
        )
        try:
            taken = await self._intake.take(command)
        except ConflictProblem as standing:
            raise _under_way(command.job_id) from standing
        return taken.answer(undoes=job_id)

    async def _standing(self, last: Undo, request_hash: str, job_id: str) -> Submitted:
        async with self._deadlines.deadline():
            row = await self._rows.listed(last.job_id)
        if row is None or row.request_hash != request_hash:
            raise _under_way(last.job_id)
        return Submitted(job_id=last.job_id, status=row.status, undoes=job_id)

    def _that_may_have(self, rows: Sequence[Row], query: UndoQuery) -> Iterator[Row]:
        """Without those that were sealed before the time that is asked about."""
        least_ms = query.since.timestamp() * 1000 if query.since is not None else 0
        for row in rows:
            sealed_ms = row.ends_ms - self._listed_for_ms if row.ends_ms is not None else None
            if sealed_ms is None or sealed_ms >= least_ms:
                yield row

    async def _look(self, caller: Principal, row: Row) -> _Looked:
        found = await self._history(row)
        if found is None:
            return _Looked(why="it has not begun")
        if undo_plans.is_undo(found.ended.job):
            return _Looked()
        return _Looked(found, await self._undos(caller, row.job_id), await self._stands_against(caller, row, found))

    async def _effects(self, looked: _Looked, undos: Sequence[Undo]) -> list[Effect]:
        """Its effects, as they stood when no other jobs than these undid it."""
        if looked.found is None:
            return []
        registry = self._registry.newest()
        return await asyncio.to_thread(undo_plans.effects, looked.found, undos, registry, self._blobs)

    async def _stands_against(self, caller: Principal, row: Row, found: UndoHistory) -> str | None:
        if found.ended.job.terminal is None:
            return "it has not ended: `aetheris cancel ID --compensate` ends it, and undoes what it did"
        if found.ended.job.needs_upgrade:
            return "it holds records of a newer version than this one"
        if found.ended.seal is None:
            return "it is not sealed yet: ask again"
        try:
            continuing = await self._intake.living_continuation(caller.tenant, row.job_id)
        except ConflictProblem as error:
            return error.message
        return f"job {continuing.job_id} continues it, and has not ended" if continuing is not None else None

    async def _history(self, row: Row) -> UndoHistory | None:
        records = await self._reader.records(row, await self._reader.end(row.job_id))
        return await asyncio.to_thread(undo_plans.history, records)

    async def _undos(self, caller: Principal, job_id: str) -> tuple[Undo, ...]:
        """The jobs that undo a job, in their order: none begins before the one before it is sealed."""
        found: list[Undo] = []
        while len(found) < undo_plans.MOST_UNDOS and (not found or found[-1].is_over):
            row = await self._rows.listed(job_id_of(caller.tenant, undo_plans.key_behind(job_id, found)))
            if row is None:
                break
            told = await self._history(row)
            found.append(Undo(row.job_id, told.ended if told is not None else None))
        return tuple(found)


def _under_way(job_id: str) -> ConflictProblem:
    return ConflictProblem("undoing", f"job {job_id} undoes some of it: ask again when it has ended", job_id=job_id)


def _shown(caller: Principal, row: Row, looked: _Looked, effects: Sequence[Effect]) -> UndoJob:
    reads = not caller.roles.isdisjoint({Role.READ, Role.READ_PAYLOADS})
    return UndoJob(
        job_id=row.job_id,
        status=row.status,
        submitted_by=row.submitted_by,
        why=looked.why,
        undone_by=tuple(one.job_id for one in looked.undos),
        effects=tuple(
            UndoEffect(
                node_id=one.node_id,
                tool=one.tool,
                at=one.at or None,
                external_id=one.external_id if reads else None,
                standing=one.standing.value,
                why=one.why,
                job_id=one.job_id,
                undo_tool=one.call.tool_name if one.call is not None else None,
            )
            for one in effects
        ),
    )
