"""Submissions, and the continuations of ended jobs: taken, each once for its Idempotency-Key."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from aetheris.gateway.core import bodies, submissions, undo_plans
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem, TooLarge, Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.end_waits import EndWait, EndWaits
from aetheris.gateway.feed import Feed
from aetheris.gateway.hidden_submissions import HiddenSubmissions
from aetheris.gateway.index import JobIndex
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.job_rows import JobRows
from aetheris.gateway.limiter import Limiter
from aetheris.gateway.reads import Reads
from aetheris.gateway.registry import Registry
from aetheris.gateway.submission_writer import SubmissionWriter
from aetheris.gateway.views import Row, Views, timestamp
from aetheris.protocol.api import Submitted
from aetheris.protocol.base.ids import job_id_of
from aetheris.protocol.base.principals import Role
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.planning.continuation import MAX_CONTINUED, EndedJob, ended
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.redis.client import RedisUnavailable
from aetheris.runtime.subjects.hidden_store import SealedValue

_log = structlog.get_logger(__name__)

ENDED = frozenset({"completed", "failed", "cancelled"})
_MOST_DEAD = 16
"""Jobs behind each other that were to continue one, and were created on what is not so."""

_REPEAT_S = 2.0
"""So long a repeat waits for its receipt."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A submission's job, its receipt, and whether it was taken now."""

    row: Row
    receipt: str | None = None
    is_new: bool = True

    def answer(self, **said: str) -> Submitted:
        """What its client gets, and what else is `said` of it."""
        receipt = {"receipt": self.receipt} if self.receipt is not None else {}
        return Submitted(**{"job_id": self.row.job_id, "status": self.row.status, **receipt, **said})


class Intake:
    """Takes jobs in."""

    def __init__(
        self,
        *,
        reads: Reads,
        reader: JobReader,
        writer: SubmissionWriter,
        waits: EndWaits,
        limits: Limiter,
        feed: Feed,
        index: JobIndex,
        views: Views,
        rows: JobRows,
        registry: Registry,
        deadlines: Deadlines,
        clock: Clock,
        hidden: HiddenSubmissions,
    ) -> None:
        self._reads = reads
        self._reader = reader
        self._writer = writer
        self._waits = waits
        self._limits = limits
        self._feed = feed
        self._index = index
        self._views = views
        self._rows = rows
        self._registry = registry
        self._deadlines = deadlines
        self._clock = clock
        self._hidden = hidden

    async def submit(
        self, caller: Principal, raw: bytes, idempotency_key: str | None, wait: EndWait | None = None
    ) -> Submitted:
        """Take a submission, and say how its job stands: at once, or when it has ended or the wait is over.

        The same key and request name the same job.

        Raises:
            BadRequest, Conflict, TooMany, Unavailable.
        """
        job_id = job_id_of(caller.tenant, idempotency_key) if idempotency_key is not None else fresh_id()
        asked = submissions.SubmissionRequest(job_id, caller.id, caller.tenant, idempotency_key)
        registry = self._registry.newest()
        command = submissions.submit_command(raw, asked, registry, self._registry.models())
        self._limits.take_submission(command.tenant, command.by)
        hidden: Sequence[SealedValue] = ()
        if self._hidden.are_in(command, registry):
            async with self._deadlines.deadline():
                command, hidden = await self._hidden.hide(command, raw, registry, self._take_room)
        if wait is None:
            return (await self._taken(command, hidden)).answer()
        async with self._waits.listening(job_id) as news:
            taken = await self._taken(command, hidden)
            status = await self._waits.ended(news, taken.row, wait, is_new=taken.is_new)
        if not taken.is_new:
            status = (await self._reads.job(caller, job_id))["status"]
        return taken.answer(status=status)

    async def continue_job(self, caller: Principal, job_id: str, raw: bytes) -> Submitted:
        """Continue a failed or cancelled job in a new one; the same request names the same job.

        Raises:
            BadRequest, NotFound, Conflict, TooMany, Unavailable.
        """
        before = await self._ended(caller, job_id)
        async with self._deadlines.deadline():
            continuing, key = await self._next(caller.tenant, job_id)
            await self._check_not_undone(caller.tenant, before, continuing)
        asked = submissions.SubmissionRequest(
            continuing, caller.id, caller.tenant, key, Role.RESOLVE in caller.roles, caller.recorded
        )
        registry, models = self._registry.newest(), self._registry.models()
        command = submissions.continue_command(raw, asked, before, registry, models)
        try:
            taken = await self.take(command)
        except ConflictProblem as standing:
            raise ConflictProblem(
                "continued", f"job {command.job_id} continues it already", **standing.details
            ) from None
        return taken.answer(continues=job_id)

    async def take(self, command: Submit) -> Taken:
        """Take a submission of the gateway's own making; the same command names the same job.

        Raises:
            BadRequest, Conflict, TooMany, Unavailable.
        """
        self._limits.take_submission(command.tenant, command.by)
        return await self._taken(command)

    async def living_continuation(self, tenant: str, job_id: str) -> Row | None:
        """The job that has not ended among those that continue one, each the one before it; None where all have.

        Raises:
            Conflict: what continues it can't be found out.
            ViewsLost, RedisUnavailable, LogError: within a deadline.
        """
        for _ in range(MAX_CONTINUED):
            job_id, _ = await self._next(tenant, job_id)
            row = await self._rows.listed(job_id)
            if row is None or row.status not in ENDED:
                return row
        return None

    async def _check_not_undone(self, tenant: str, before: EndedJob, continuing: str) -> None:
        """What was undone, or is about to be, is not adopted as done, whichever job before did it."""
        if await self._rows.listed(continuing) is not None:
            return
        chain = before.job.created.continues
        behind = [one.job_id for one in chain.adopted] if chain is not None else []
        for job_id in dict.fromkeys((before.job.job_id, *behind)):
            undo = await self._rows.listed(job_id_of(tenant, undo_plans.first_key(job_id)))
            if undo is not None:
                message = f"job {undo.job_id} undoes what job {job_id} did"
                raise ConflictProblem("undone", message, job_id=undo.job_id)

    async def _ended(self, caller: Principal, job_id: str) -> EndedJob:
        """A job with its seal, where it has one.

        Raises:
            NotFound, Conflict, Unavailable.
        """
        async with self._deadlines.deadline():
            row = await self._reader.row(caller, job_id)
            records = await self._reader.records(row, await self._reader.end(job_id))
        found = await asyncio.to_thread(ended, records)
        if found is None:
            raise ConflictProblem("illegal_transition", "the job has not begun")
        return found

    async def _next(self, tenant: str, job_id: str) -> tuple[str, str]:
        """(the id of the job that continues one, the key that it follows from).

        One that was created on what is not so has run nothing, and is in nobody's way: the next has an id of its own.

        Raises:
            Conflict: too many were created so.
            ViewsLost, RedisUnavailable, LogError: within a deadline.
        """
        key = f"continues {job_id}"  # what no client can send: it has a space
        for _ in range(_MOST_DEAD):
            following = job_id_of(tenant, key)
            if not await self._is_dead(following):
                return following, key
            key = f"continues {job_id} after {following}"
        message = f"{_MOST_DEAD} jobs that were to continue job {job_id} never began: see why they failed"
        raise ConflictProblem("not_continuable", message)

    async def _is_dead(self, job_id: str) -> bool:
        row = await self._rows.listed(job_id)
        if row is None or row.status != "failed":
            return False
        state = (await self._reader.fold(row)).state
        return state is not None and isinstance(state.terminal, ev.JobFailed) and bool(state.terminal.unfounded)

    async def _taken(self, command: Submit, hidden: Sequence[SealedValue] = ()) -> Taken:
        """`hidden` is what must be kept before anything names it."""
        async with self._deadlines.deadline():
            standing = await self._standing(command) if command.idempotency_key is not None else None
            if standing is not None:
                return Taken(standing, await self._receipt_of_repeat(command, standing), is_new=False)
            if not hidden:  # what is hidden has taken it before anybody got a key
                await self._limits.take_room(command.tenant)  # who is refused has claimed nothing
            is_first = command.idempotency_key is not None and await self._claim(command)
            return await self._take(command, hidden, is_first=is_first)

    async def _take_room(self, command: Submit) -> None:
        """One job more is open, unless one of this id stands; raises TooMany. Of those who come at once, too."""
        if command.idempotency_key is None or await self._rows.listed(command.job_id) is None:
            await self._limits.take_room(command.tenant)

    async def _receipt_of_repeat(self, command: Submit, standing: Row) -> str | None:
        """It is laid into the log without its plan; where that takes nothing, its job is answered all the same."""
        try:
            async with asyncio.timeout(_REPEAT_S):
                return await self._writer.send_again(submissions.repeated(command), standing.trace)
        except (TooLarge, Unavailable, TimeoutError):
            return None

    async def _standing(self, command: Submit) -> Row | None:
        """The job that an Idempotency-Key already named; None where it must be submitted (again)."""
        row = await self._rows.listed(command.job_id)
        if row is not None and row.request_hash != command.request_hash:
            raise _came_otherwise(command)
        return row

    async def _claim(self, command: Submit) -> bool:
        """Whether it is the first that comes under this id; raises Conflict where another request holds that."""
        held = await self._views.claim(command.job_id, command.request_hash)
        if held not in (None, command.request_hash):
            raise _came_otherwise(command)
        return held is None

    async def _release(self, command: Submit) -> None:
        try:
            await self._views.release(command.job_id, command.request_hash)
        except RedisUnavailable as error:
            _log.warning("a key stays claimed", reason=error.code)

    async def _take(self, command: Submit, hidden: Sequence[SealedValue], *, is_first: bool) -> Taken:
        _, since = self._feed.place_of(command.job_id)
        row = Row(
            job_id=command.job_id,
            tenant=command.tenant,
            status="submitted",
            request_hash=command.request_hash,
            submitted_by=command.by,
            created_at=timestamp(self._clock.now()),
            since=since,
            trace=command.options.trace,
            labels=command.labels or {},
        )
        try:
            await self._hidden.keep(hidden)
            receipt = await self._writer.send(command, row.trace)
        except (TooLarge, Unavailable) as error:  # surely not sent: who asks otherwise next is not in its way
            if is_first:
                await self._release(command)
            raise bodies.plan_too_large() if isinstance(error, TooLarge) else error from None
        try:
            await self._index.announce(row)
        except RedisUnavailable as error:  # the command is in the log: it is taken, and will be shown
            _log.warning("submitted, not shown yet", reason=error.code)
        return Taken(row, receipt)


def _came_otherwise(command: Submit) -> ConflictProblem:
    message = "this Idempotency-Key came with another request"
    return ConflictProblem("idempotency_conflict", message, job_id=command.job_id)
