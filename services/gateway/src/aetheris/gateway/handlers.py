"""What the API does: write commands, wait for the event that answers them, read jobs from the log."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import structlog

from aetheris.gateway.core import answers, standing, submissions, wire
from aetheris.gateway.feed import Feed, FeedClosed, Subscription
from aetheris.gateway.history import fold_into, since_birth
from aetheris.gateway.index import Index
from aetheris.gateway.problems import Conflict, NotFound, Unavailable
from aetheris.gateway.registry import Registry
from aetheris.gateway.tokens import Caller
from aetheris.gateway.views import Page, Row, Views, ViewsLost, timestamp
from aetheris.protocol.commands import Cancel, JobCommand, Resolve, Submit
from aetheris.protocol.envelope import draft
from aetheris.protocol.fold import JobState
from aetheris.protocol.ids import derived, job_id_of
from aetheris.protocol.records import Record
from aetheris.protocol.topics import Topic
from aetheris.streams.clock import Clock
from aetheris.streams.history import History
from aetheris.streams.ids import fresh_id
from aetheris.streams.log import Appender, GroupTooLarge, Log, LogError
from aetheris.streams.redis import RedisUnavailable

_log = structlog.get_logger(__name__)

SOURCE = "aetheris/gateway"

_BREATH = 500
"""Records after which a long fold lets other requests go on."""

Answers = Callable[[answers.Heard], bool]
"""Whether an event answers a command with yes; raises Conflict where it answers with no."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event of a job with its place in it, from 1."""

    sequence: int
    record: Record


class Jobs:
    """Jobs of tenants: what belongs to another is not there."""

    def __init__(
        self,
        *,
        log: Log,
        history: History,
        appender: Appender,
        feed: Feed,
        index: Index,
        views: Views,
        registry: Registry,
        verifier: httpx.AsyncClient,
        clock: Clock,
        answer_s: float,
        request_s: float,
    ) -> None:
        self._log = log
        self._history = history
        self._appender = appender
        self._feed = feed
        self._index = index
        self._views = views
        self._registry = registry
        self._verifier = verifier
        self._clock = clock
        self._answer_s = answer_s
        self._request_s = request_s

    # Commands

    async def submit(self, caller: Caller, raw: bytes, idempotency_key: str | None) -> tuple[str, str]:
        """Take a submission: (job_id, status). The same key and request name the same job.

        Raises:
            BadRequest, Conflict, Unavailable.
        """
        job_id = job_id_of(caller.tenant, idempotency_key) if idempotency_key is not None else fresh_id()
        asked = submissions.Asked(job_id, caller.name, caller.tenant, idempotency_key)
        command = submissions.submit_command(raw, asked, self._registry.newest())
        async with self._deadline():
            standing = await self._standing(command) if idempotency_key is not None else None
            return (job_id, standing.status) if standing is not None else await self._submit(command)

    async def cancel(self, caller: Caller, job_id: str, raw: bytes) -> tuple[bool, dict[str, Any]]:
        """Ask a job to stop: (whether the log has answered, the answer).

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        wanted = submissions.read_cancel(raw)
        with self._feed.subscribe(job_id) as news:
            async with self._deadline():
                state, end = await self._fold(await self._row(caller, job_id))
                if state is not None and answers.stands_against_cancel(state):
                    return True, {"job_id": job_id, "status": standing.job_status(state)}
                command_id = await self._send(
                    Cancel(
                        job_id=job_id,
                        by=caller.name,
                        tenant=caller.tenant,
                        reason=wanted.reason,
                        compensate=wanted.compensate,
                    )
                )
            event = await self._answer(news, end, lambda heard: answers.answers_cancel(command_id, heard))
        return event is not None, {"job_id": job_id, "status": "cancelling", "event": event, "command_id": command_id}

    async def resolve(self, caller: Caller, job_id: str, execution_id: str, raw: bytes) -> tuple[bool, dict[str, Any]]:
        """Hand on what a human found out about a parked step: (whether the log has answered, the answer).

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        wanted = submissions.read_resolve(raw)
        with self._feed.subscribe(job_id) as news:
            async with self._deadline():
                state, end = await self._fold(await self._row(caller, job_id))
                key = answers.key_to_resolve(state, execution_id) if state is not None else None
                if state is None or key is None:
                    raise NotFound("unknown_contract", "this job has no such execution contract")
                answers.check_resolvable(state.keys[key], wanted.verdict)
                command_id = await self._send(
                    Resolve.model_validate(
                        {
                            "job_id": job_id,
                            "by": caller.name,
                            "tenant": caller.tenant,
                            "execution_id": execution_id,
                            "verdict": wanted.verdict,
                            "evidence": wanted.evidence,
                            "result": wanted.result,
                        }
                    )
                )
            event = await self._answer(news, end, lambda heard: answers.answers_resolve(command_id, key, heard))
        found = {"job_id": job_id, "execution_id": execution_id, "verdict": wanted.verdict}
        return event is not None, {**found, "event": event, "command_id": command_id}

    # Reads

    async def page(self, caller: Caller, status: str | None, cursor: str | None, limit: int) -> Page:
        """The tenant's jobs, newest first; raises Unavailable."""
        async with self._deadline():
            return await self._views.page(caller.tenant, status, cursor, limit)

    async def job(self, caller: Caller, job_id: str) -> dict[str, Any]:
        """How a job stands, from its log.

        Raises:
            NotFound, Unavailable.
        """
        async with self._deadline():
            row = await self._row(caller, job_id)
            state, _ = await self._fold(row)
        return standing.job_view(state, row.created_at) if state is not None else {**row.summary(), "steps": []}

    async def events(self, caller: Caller, job_id: str, after: int, limit: int) -> list[dict[str, Any]]:
        """A job's events with sequence above `after`.

        Raises:
            NotFound, Unavailable.
        """
        found: list[dict[str, Any]] = []
        async with self._deadline():
            row = await self._row(caller, job_id)
            numbers = wire.Sequence()
            for record in await self._records(row, await self._end(job_id)):
                sequence = numbers.number(record)
                if sequence is not None and sequence > after and len(found) < limit:
                    found.append(wire.event_view(sequence, record))
        return found

    async def check(self, caller: Caller, job_id: str) -> Row:
        """The row of a job that the caller may see.

        Raises:
            NotFound, Unavailable.
        """
        async with self._deadline():
            return await self._row(caller, job_id)

    async def stream(self, row: Row, after: int) -> AsyncIterator[Numbered]:
        """A job's events with sequence above `after`: history, then live, until the job is sealed.

        Raises:
            FeedClosed: resume later from the last sequence.
        """
        numbers = wire.Sequence()
        with self._feed.subscribe(row.job_id) as news:
            async for record in self._spliced(row, news):
                sequence = numbers.number(record)
                if sequence is not None and sequence > after:
                    yield Numbered(sequence, record)
                if wire.event_type_of(record) == "job_sealed":
                    return

    async def verify(self, caller: Caller, job_id: str) -> tuple[int, Any]:
        """The verifier's (status, proof).

        Raises:
            NotFound, Unavailable.
        """
        return await self._ask_verifier(caller, job_id, "verify")

    async def evidence(self, caller: Caller, job_id: str) -> tuple[int, Any]:
        """The verifier's (status, the job's raw stream and the keys that its seals are checked with).

        Raises:
            NotFound, Unavailable.
        """
        return await self._ask_verifier(caller, job_id, "stream")

    def tools(self) -> list[dict[str, Any]]:
        """The newest version of every tool."""
        return [entry.model_dump(mode="json", by_alias=True) for entry in self._registry.newest().values()]

    # How

    async def _ask_verifier(self, caller: Caller, job_id: str, what: str) -> tuple[int, Any]:
        async with self._deadline():
            await self._row(caller, job_id)
            try:
                answer = await self._verifier.get(f"/jobs/{job_id}/{what}")
                return answer.status_code, answer.json()
            except (httpx.HTTPError, ValueError):
                raise Unavailable("verifier_unreachable", "the verifier does not answer") from None

    async def _standing(self, command: Submit) -> Row | None:
        """The job that an Idempotency-Key already named; None where it must be submitted (again)."""
        row = await self._views.job(command.job_id)
        if row is not None and row.request_hash == command.request_hash:
            return row
        held = row.request_hash if row is not None else await self._views.claim(command.job_id, command.request_hash)
        if held != command.request_hash:
            raise Conflict(
                "idempotency_conflict", "this Idempotency-Key came with another request", job_id=command.job_id
            )
        return None

    async def _submit(self, command: Submit) -> tuple[str, str]:
        _, since = self._feed.place_of(command.job_id)
        row = Row(
            job_id=command.job_id,
            tenant=command.tenant,
            status="submitted",
            request_hash=command.request_hash,
            submitted_by=command.by,
            created_at=timestamp(self._clock.now()),
            since=since,
        )
        try:
            await self._send(command, derived("command", command.job_id, "submit"))
        except GroupTooLarge:
            raise submissions.plan_too_large() from None
        try:
            await self._index.announce(row)
        except RedisUnavailable as error:  # the command is in the log: it is taken, and will be shown
            _log.warning("submitted, not shown yet", reason=error.code)
        return command.job_id, row.status

    async def _send(self, command: JobCommand, command_id: str | None = None) -> str:
        """Append a command; its ce_id."""
        if self._appender.stuck_s() > self._request_s:  # no use in queueing more behind what nobody takes
            raise Unavailable("log_unreachable", "Kafka takes no records")
        ce_id = command_id if command_id is not None else fresh_id()
        record = draft(
            Topic.JOBS_COMMANDS,
            command,
            key=command.job_id,
            id=ce_id,
            source=SOURCE,
            time=timestamp(self._clock.now()),
        )
        await self._appender.append([(record,)])
        return ce_id

    async def _answer(self, news: Subscription, since: int, settles: Answers) -> str | None:
        """The type of the event that answers a command; None if none came in time.

        Raises:
            Conflict: what came first contradicts it.
        """
        try:
            async with asyncio.timeout(self._answer_s):
                while True:
                    record = await news.get()
                    heard = answers.heard(record)
                    if record.offset >= since and settles(heard):
                        return heard.event_type
        except (TimeoutError, FeedClosed):
            return None

    async def _row(self, caller: Caller, job_id: str) -> Row:
        row = await self._views.job(job_id)
        if row is None or row.tenant != caller.tenant:
            raise NotFound("unknown_job", "there is no such job")
        return row

    async def _fold(self, row: Row) -> tuple[JobState | None, int]:
        """(the job as its log says, None before its birth; the offset up to which it was read)."""
        end = await self._end(row.job_id)
        state: JobState | None = None
        for count, record in enumerate(await self._records(row, end), start=1):
            state = fold_into(state, record)
            if count % _BREATH == 0:
                await asyncio.sleep(0)
        return state, end

    async def _end(self, job_id: str) -> int:
        """The end of the job's partition."""
        place, _ = self._feed.place_of(job_id)
        return (await self._log.end_offsets([place], self._request_s))[place]

    async def _records(self, row: Row, end: int) -> list[Record]:
        """The job's records below `end`, from its birth on."""
        (_, partition), _ = self._feed.place_of(row.job_id)
        start = row.first_offset
        if start is None:
            return []
        return list(since_birth(await self._history.read_job(row.job_id, partition, start, end, self._request_s)))

    async def _spliced(self, row: Row, news: Subscription) -> AsyncIterator[Record]:
        end = await self._end(row.job_id)
        for record in await self._records(row, end):
            yield record
        while True:
            record = await news.get()
            if record.offset >= end:
                yield record

    @asynccontextmanager
    async def _deadline(self) -> AsyncGenerator[None]:
        """What does not answer in time, or at all, is a 503."""
        try:
            async with asyncio.timeout(self._request_s):
                yield
        except TimeoutError:
            raise Unavailable("deadline", "Kafka, Redis or the verifier is late; what was sent may still act") from None
        except ViewsLost:
            self._index.report_loss()
            raise
        except RedisUnavailable as error:
            raise Unavailable(error.code, "Redis does not answer") from None
        except LogError as error:
            raise Unavailable(error.code, "Kafka does not answer") from None
