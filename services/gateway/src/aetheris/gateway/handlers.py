"""What the API does: write commands, wait for the event that answers them, read jobs from the log."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import structlog

from aetheris.gateway.core import answers, reconciling, requests, submissions, wire
from aetheris.gateway.core.problems import Conflict, NotBegun, NotFound, TooLarge, Unavailable
from aetheris.gateway.core.wire import Moved
from aetheris.gateway.feed import Feed, FeedClosed, Subscription
from aetheris.gateway.index import Index
from aetheris.gateway.registry import Registry
from aetheris.gateway.tokens import Caller
from aetheris.gateway.untaken import Untaken
from aetheris.gateway.views import Page, Row, Views, ViewsLost, timestamp
from aetheris.protocol.base.ids import derived, job_id_of
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import Sequence, fold_into, since_birth, tell, told
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    Cancel,
    CancelContract,
    JobCommand,
    Pause,
    Reconcile,
    Resolve,
    Respond,
    Resume,
    Signal,
    Submit,
)
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.planning.approvals import job_of
from aetheris.protocol.planning.confirmation import recorded_effects, silent_effects
from aetheris.protocol.planning.continuation import Ended
from aetheris.protocol.planning.schemas import Schema
from aetheris.protocol.views import standing
from aetheris.protocol.views.contracts import Contracts, Level
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.ids import fresh_id
from aetheris.runtime.log.history import History
from aetheris.runtime.log.interface import Appender, Log, LogError
from aetheris.runtime.process.withheld import write_all
from aetheris.runtime.redis.client import RedisUnavailable
from aetheris.runtime.telemetry.spans import Kind, Span
from aetheris.runtime.telemetry.tracer import Telemetry, whole

_log = structlog.get_logger(__name__)

SOURCE = "aetheris/gateway"

_LIST_LAG_S = 1.0
"""After so long without an answer the log is asked whether somebody else had answered before."""
_BREATH = 500
"""Records after which a long fold lets other requests go on."""
_PORTION = 100
"""Events of a stream that are sent at once, at most."""

_ENDS = {f"io.aetheris.job_{status}.v1".encode(): status for status in ("completed", "failed", "cancelled")}
"""ce_type → the status of a job that it ends."""
_FIRST_LOOK_S = 0.1
"""After so long a wait asks the list whether the job had ended before it listened; then each time twice as late."""

_OPEN = ("running", "waiting", "paused", "stopping", "compensating", "cancelling")
"""The statuses of jobs in which a call may be open."""
_OPEN_JOBS = 50
"""Of each status, so many are looked at."""

Answers = Callable[[answers.Heard], bool]
"""Whether an event answers a command with yes; raises Conflict where it answers with no."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a request waits for its job's end; until its client has `left` at most."""

    within_s: int
    left: asyncio.Future[None]


def ended(status: str) -> bool:
    """Whether a job of this status has ended."""
    return status in _ENDS.values()


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
        untaken: Untaken,
        registry: Registry,
        verifier: httpx.AsyncClient,
        clock: Clock,
        telemetry: Telemetry,
        answer_s: float,
        request_s: float,
    ) -> None:
        self._log = log
        self._history = history
        self._appender = appender
        self._feed = feed
        self._index = index
        self._views = views
        self._untaken = untaken
        self._registry = registry
        self._verifier = verifier
        self._clock = clock
        self._telemetry = telemetry
        self._answer_s = answer_s
        self._request_s = request_s

    # Commands

    async def submit(
        self, caller: Caller, raw: bytes, idempotency_key: str | None, wait: Wait | None = None
    ) -> tuple[str, str]:
        """Take a submission: (job_id, status), at once or when the job has ended or the wait is over.

        The same key and request name the same job.

        Raises:
            BadRequest, Conflict, Unavailable.
        """
        job_id = job_id_of(caller.tenant, idempotency_key) if idempotency_key is not None else fresh_id()
        asked = submissions.Asked(job_id, caller.name, caller.tenant, idempotency_key)
        command = submissions.submit_command(raw, asked, self._registry.newest(), self._registry.models())
        if wait is None:
            row, _ = await self._taken(command)
            return job_id, row.status
        async with self._listening(job_id, _ENDS) as news:
            row, is_new = await self._taken(command)
            if is_new:
                return job_id, await self._ended(news, row, wait)
            await self._ended(news, row, wait)
        return job_id, (await self.job(caller, job_id))["status"]

    async def go_on_from(self, caller: Caller, job_id: str, raw: bytes) -> tuple[str, str]:
        """Continue a failed or cancelled job: (the new job_id, status); the same request names the same job.

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        row = await self._row(caller, job_id)
        async with self.deadline():
            state, end = await self._fold(row)
            records = await self._records(row, end)
        if state is None:
            raise Conflict("illegal_transition", "the job has not begun")
        sealed = next((one.said for one in tell(records) if isinstance(one.said, ev.JobSealed)), None)
        key = f"continues {job_id}"  # what no client can send: it has a space
        asked = submissions.Asked(job_id_of(caller.tenant, key), caller.name, caller.tenant, key)
        registry, models = self._registry.newest(), self._registry.models()
        command = submissions.continue_command(raw, asked, Ended(state, sealed), registry, models)
        try:
            taken, _ = await self._taken(command)
        except Conflict as standing:
            raise Conflict("continued", f"job {command.job_id} continues it already", **standing.details) from None
        return taken.job_id, taken.status

    async def cancel(self, caller: Caller, job_id: str, raw: bytes) -> tuple[bool, dict[str, Any]]:
        """Ask a job to stop: (whether the log has answered, the answer).

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        wanted = submissions.read_cancel(raw)
        async with self._listening(job_id) as news:
            async with self.deadline():
                row = await self._row(caller, job_id)
                state, end = await self._fold(row)
                if state is not None and answers.stands_against_cancel(state, compensate=wanted.compensate):
                    return True, {"job_id": job_id, "status": standing.job_status(state)}
                command_id = await self._send(
                    Cancel(
                        job_id=job_id,
                        by=caller.name,
                        tenant=caller.tenant,
                        reason=wanted.reason,
                        compensate=wanted.compensate,
                    ),
                    row.trace,
                )
            event = await self._answer(news, end, lambda heard: answers.answers_cancel(command_id, heard))
        return event is not None, {"job_id": job_id, "status": "cancelling", "event": event, "command_id": command_id}

    async def pause(self, caller: Caller, job_id: str, raw: bytes) -> tuple[bool, dict[str, Any]]:
        """Keep a job from starting anything: (whether the log has answered, the answer).

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        wanted = submissions.read_pause(raw)
        async with self._listening(job_id) as news:
            async with self.deadline():
                state, end = await self._planned(caller, job_id, news)
                answers.check_pausable(state)
                if state.paused is not None:
                    found = {"job_id": job_id, "status": "paused", "event": "job_paused", "command_id": None}
                    return True, found | {"paused": standing.pause_view(state.paused)}
                number = state.pauses + 1
                command = Pause(
                    job_id=job_id, by=caller.name, tenant=caller.tenant, number=number, reason=wanted.reason
                )
                command_id = await self._send(command, state.trace)
            event = await self._answer(news, end, lambda heard: answers.answers_pause("job_paused", number, heard))
        return event is not None, {"job_id": job_id, "status": "paused", "event": event, "command_id": command_id}

    async def resume(self, caller: Caller, job_id: str, raw: bytes) -> tuple[bool, dict[str, Any]]:
        """End the pause that a job is in: (whether the log has answered, the answer).

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        wanted = submissions.read_pause(raw)
        async with self._listening(job_id) as news:
            async with self.deadline():
                state, end = await self._planned(caller, job_id, news)
                number = answers.pause_to_end(state)
                command = Resume(
                    job_id=job_id, by=caller.name, tenant=caller.tenant, number=number, reason=wanted.reason
                )
                command_id = await self._send(command, state.trace)
            event = await self._answer(news, end, lambda heard: answers.answers_pause("job_resumed", number, heard))
        return event is not None, {"job_id": job_id, "status": "running", "event": event, "command_id": command_id}

    async def resolve(self, caller: Caller, job_id: str, execution_id: str, raw: bytes) -> tuple[bool, dict[str, Any]]:
        """Hand on what a human found out about a parked step: (whether the log has answered, the answer).

        Raises:
            BadRequest, Forbidden, NotFound, Conflict, Unavailable.
        """
        wanted = submissions.read_resolve(raw)
        async with self._listening(job_id) as news:
            async with self.deadline():
                state, end = await self._fold(await self._row(caller, job_id))
                key = answers.key_to_resolve(state, execution_id) if state is not None else None
                if state is None:
                    raise NotBegun
                if key is None:
                    raise NotFound("unknown_contract", "this job has no such execution contract")
                answers.check_resolvable(state.keys[key], wanted.verdict)
                answers.check_resolver(state, state.keys[key], caller.name)
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
                            "as_of": end - 1,
                        }
                    ),
                    state.trace,
                )
            event = await self._answer(news, end, lambda heard: answers.answers_resolve(command_id, key, heard))
        found = {"job_id": job_id, "execution_id": execution_id, "verdict": wanted.verdict}
        return event is not None, {**found, "event": event, "command_id": command_id}

    async def call_off(self, caller: Caller, job_id: str, execution_id: str, raw: bytes) -> tuple[bool, dict[str, Any]]:
        """Cancel one step: (whether the log has answered, the answer). What is under way is settled first.

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        wanted = submissions.read_call_off(raw)
        found = {"job_id": job_id, "execution_id": execution_id}
        async with self._listening(job_id) as news:
            async with self.deadline():
                state, end = await self._planned(caller, job_id, news)
                key = answers.key_to_call_off(state, execution_id)
                if key is None:
                    raise NotFound("unknown_contract", "this job has no such execution contract")
                if state.keys[key].cancel_requested:
                    return True, {**found, "event": "invocation_cancel_requested", "command_id": None}
                command = CancelContract(
                    job_id=job_id,
                    by=caller.name,
                    tenant=caller.tenant,
                    execution_id=execution_id,
                    reason=wanted.reason,
                    as_of=end - 1,
                )
                command_id = await self._send(command, state.trace)
            event = await self._answer(news, end, lambda heard: answers.answers_resolve(command_id, key, heard))
        return event is not None, {**found, "event": event, "command_id": command_id}

    async def signal(self, caller: Caller, job_id: str, raw: bytes) -> tuple[bool, dict[str, Any]]:
        """Put a signal into a job's inbox: (whether the log has answered, the answer).

        Raises:
            BadRequest, Forbidden, NotFound, Conflict, Unavailable.
        """
        wanted = submissions.read_signal(raw)
        found = {"job_id": job_id, "correlation_key": wanted.correlation_key}
        async with self._listening(job_id) as news:
            async with self.deadline():
                state, end = await self._planned(caller, job_id, news)
                stands = answers.signal_received(state, wanted.correlation_key, wanted.payload, caller.name)
                if stands is not None:
                    return True, {**found, "event": stands.event_type, "command_id": stands.command_id}
                command = Signal(
                    job_id=job_id,
                    by=caller.name,
                    tenant=caller.tenant,
                    correlation_key=wanted.correlation_key,
                    payload=wanted.payload,
                    as_of=end - 1,
                )
                command_id = await self._send(command, state.trace)
            event = await self._answer(
                news, end, lambda heard: answers.answers_signal(wanted.correlation_key, wanted.payload, heard)
            )
        return event is not None, {**found, "event": event, "command_id": command_id}

    async def reconcile(self, caller: Caller, job_id: str, *, asked: bool = True) -> tuple[bool, dict[str, Any]]:
        """Compare what a job did with the outside: (whether every effect was answered for, the answer).

        Where nobody `asked` for it, nothing is written about a job that did nothing to compare.

        Raises:
            NotFound, Unavailable.
        """
        async with self._listening(job_id) as news:
            async with self.deadline():
                row = await self._row(caller, job_id)
                end = await self._end(job_id)
                records = await self._records(row, end)
                job, effects = await asyncio.to_thread(lambda: recorded_effects(tell(records)))
                if job is None:
                    raise NotBegun
                silent = len(silent_effects(job, tell(records)))
                wanted = reconciling.wanted(effects, silent, self._registry.verifies)
                command = Reconcile(job_id=job_id, by=caller.name, tenant=caller.tenant, birth=job.birth, as_of=end - 1)
                command_id = await self._send(command, row.trace) if asked or wanted.effects else ""
            said = await self._confirmations(news, command_id, wanted.effects)
        return len(said) == wanted.effects, reconciling.answer(job_id, command_id, wanted, said)

    async def _confirmations(self, news: Subscription, command_id: str, count: int) -> list[dict[str, Any]]:
        """What the verifier says of each resource, each once, as far as it is said in time."""
        said: dict[str, dict[str, Any]] = {}
        with suppress(TimeoutError, FeedClosed):
            async with asyncio.timeout(self._answer_s):
                while len(said) < count:
                    one = reconciling.confirmation(await news.get(), command_id)
                    if one is not None:
                        said.setdefault(one["id"], one)
        return list(said.values())

    async def opened_by(self, caller: Caller, worker_id: str) -> list[dict[str, Any]]:
        """What a worker has open in the caller's newest jobs that have not ended, as far as that can be read in time.

        Raises:
            Unavailable.
        """
        found: list[dict[str, Any]] = []
        async with self.deadline():
            for status in _OPEN:
                for row in (await self._views.page(caller.tenant, status, None, _OPEN_JOBS)).rows:
                    state, _ = await self._fold(row)
                    found += standing.opened_by(state, worker_id) if state is not None else []
        return found

    async def respond(self, caller: Caller, raw: bytes) -> tuple[bool, dict[str, Any]]:
        """Hand on a human's answer to a request: (whether the log has answered, the answer).

        Raises:
            BadRequest, Forbidden, NotFound, Conflict, Unavailable.
        """
        wanted = submissions.read_respond(raw)
        said = requests.Answer(wanted.request_id, wanted.action, wanted.data, wanted.comment, caller.name)
        found: dict[str, Any] = {"request_id": said.request_id, "action": said.action}
        async with self.deadline():
            row = await self._row_of_request(caller, said.request_id)
        async with self._listening(row.job_id) as news:
            async with self.deadline():
                listed = await self._listed(row, said.request_id)
                if listed is not None:
                    question, as_of = listed
                else:
                    question, given, as_of = await self._standing_answer(row, said)
                    if given is not None:
                        return True, {**found, "event": given.event_type, "command_id": given.caused_by}
                schema = self._registry.schema(question.tool, question.tool_version) if question.tool else None
                requests.check(question, said, schema)
                if said.action == "edit" and schema is not None:
                    await self._check_edit(row, question, said, schema)
                command_id = await self._send(
                    Respond(
                        job_id=row.job_id,
                        by=caller.name,
                        tenant=caller.tenant,
                        request_id=said.request_id,
                        action=said.action,
                        data=said.data,
                        comment=said.comment,
                        as_of=as_of,
                    ),
                    row.trace,
                )
            heard = await self._respond_heard(news, row, question, said, command_id)
        if heard is None:
            return False, {**found, "event": None, "command_id": command_id}
        if heard.event_type == "approval_requested" and heard.form is not None:
            found["next_request_id"] = heard.form.get("id")
        return True, {**found, "event": heard.event_type, "command_id": command_id}

    async def go_on(self, caller: Caller, raw: bytes) -> dict[str, Any]:
        """Whether an answered request has let its job go on: an answer does that by itself.

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        request_id = submissions.read_continue(raw).request_id
        async with self.deadline():
            state, asked = await self._request(caller, request_id)
        if state is None or asked is None:
            raise requests.not_asked(state, request_id)
        found = requests.view(state, *asked)
        if found["status"] in ("waiting", "expired", "cancelled"):
            message = "it still waits for its answer" if found["status"] == "waiting" else "nobody has answered it"
            raise Conflict("illegal_transition", message, state=found["execution_state"])
        return {name: found[name] for name in ("job_id", "node_id", "status", "execution_state")}

    # Reads

    async def request(self, caller: Caller, request_id: str) -> dict[str, Any]:
        """A request to a human, and how it stands, from the log.

        Raises:
            NotFound, Unavailable.
        """
        async with self.deadline():
            state, found = await self._request(caller, request_id)
        if state is None or found is None:
            raise requests.unknown()
        return dict(requests.view(state, *found))

    async def asked(self, caller: Caller, cursor: str | None, limit: int) -> dict[str, Any]:
        """The tenant's open requests to humans, oldest first; raises Unavailable."""
        async with self.deadline():
            page = await self._views.asked(caller.tenant, cursor, limit)
        rows = [
            {
                "request_id": request.id,
                "job_id": row.job_id,
                "submitted_by": row.submitted_by,
                **request.model_dump(mode="json", exclude={"id", "offset", "asked"}),
            }
            for row, request in page.requests
        ]
        return {"approvals": rows, "cursor": page.cursor}

    async def page(self, caller: Caller, status: str | None, cursor: str | None, limit: int) -> Page:
        """The tenant's jobs, newest first; raises Unavailable."""
        async with self.deadline():
            return await self._views.page(caller.tenant, status, cursor, limit)

    async def job(self, caller: Caller, job_id: str, wait: Wait | None = None) -> dict[str, Any]:
        """How a job stands, from its log: now, or when it has ended or the wait is over.

        Raises:
            NotFound, Unavailable.
        """
        if wait is not None:
            async with self._listening(job_id, _ENDS) as news:
                await self._ended(news, await self.check(caller, job_id), wait)
        async with self.deadline():
            row = await self._row(caller, job_id)
            state, _ = await self._fold(row)
        return standing.job_view(state, row.created_at) if state is not None else {**row.summary(), "steps": []}

    async def events(self, caller: Caller, job_id: str, after: int, limit: int) -> list[dict[str, Any]]:
        """A job's events with sequence above `after`.

        Raises:
            NotFound, Unavailable.
        """
        found: list[dict[str, Any]] = []
        numbers = Sequence()
        for record in await self.records(caller, job_id):
            sequence = numbers.number(record)
            if sequence is not None and sequence > after and len(found) < limit:
                found.append(wire.event_view(sequence, record))
        return found

    async def records(self, caller: Caller, job_id: str, until: int | None = None) -> list[Record]:
        """A job's records, up to the end of the log or, without it, an offset.

        Raises:
            NotFound, Unavailable.
        """
        async with self.deadline():
            row = await self._row(caller, job_id)
            return await self._records(row, until if until is not None else await self._end(job_id))

    async def contracts(self, caller: Caller, job_id: str, level: Level) -> list[dict[str, Any]]:
        """The execution contracts of a job, as far as `level` lets be seen.

        Raises:
            NotFound, Unavailable.
        """
        found = Contracts()
        for count, event in enumerate(tell(await self.records(caller, job_id)), start=1):
            found.take(event)
            if count % _BREATH == 0:
                await asyncio.sleep(0)
        return found.view(level)

    async def check(self, caller: Caller, job_id: str) -> Row:
        """The row of a job that the caller may see.

        Raises:
            NotFound, Unavailable.
        """
        async with self.deadline():
            return await self._row(caller, job_id)

    async def stream(self, row: Row, after: int) -> AsyncIterator[list[Moved]]:
        """A job's events with sequence above `after`: history, then live, until the job is sealed.

        What was read together comes together.

        Raises:
            FeedClosed: resume later from the last sequence.
        """
        numbers, contracts = Sequence(), Contracts()
        async with self._listening(row.job_id) as news:
            async for records in self._spliced(row, news):
                found: list[Moved] = []
                for record in records:
                    event = told(numbers, record)
                    moved = contracts.take(event)
                    if event.sequence is not None and event.sequence > after:
                        found.append(Moved(event.sequence, event, moved))
                    if event.type == "job_sealed":
                        yield found
                        return
                if found:
                    yield found

    async def proof(self, caller: Caller, job_id: str, what: str) -> httpx.Response:
        """The verifier's answer about a job: verify, stream, evidence or inclusion.

        Raises:
            NotFound, Unavailable.
        """
        async with self.deadline():
            row = await self._row(caller, job_id)
            answer = await self._ask_verifier(f"/jobs/{job_id}/{what}")
        if answer.status_code == NotFound.status and row.birth is None:
            raise NotBegun
        return answer

    async def seals(self, what: str, params: Mapping[str, str]) -> httpx.Response:
        """The verifier's answer about the log of seals, which holds hashes only: checkpoint, consistency or leaves.

        Raises:
            Unavailable.
        """
        async with self.deadline():
            return await self._ask_verifier(f"/seals/{what}", params)

    def tools(self) -> list[dict[str, Any]]:
        """The newest version of every tool."""
        return [entry.model_dump(mode="json", by_alias=True) for entry in self._registry.newest().values()]

    def models(self) -> list[dict[str, Any]]:
        """The registered models."""
        return [entry.model_dump(mode="json") for entry in self._registry.models().values()]

    # How

    async def _row_of_request(self, caller: Caller, request_id: str) -> Row:
        job_id = job_of(request_id)
        row = await self._views.job(job_id) if job_id is not None else None
        if row is None or row.tenant != caller.tenant:
            raise requests.unknown()
        return row

    async def _request(
        self, caller: Caller, request_id: str
    ) -> tuple[JobState | None, tuple[requests.Question, KeyState] | None]:
        """(the job that a request's id names, the request; None where it never made it)."""
        state, _ = await self._fold(await self._row_of_request(caller, request_id))
        return state, requests.find(state, request_id) if state is not None else None

    async def _listed(self, row: Row, request_id: str) -> tuple[requests.Question, int] | None:
        """(an open request, from the list or from where that says that it is; its offset); None if it isn't listed."""
        listed = next((request for request in row.requests if request.id == request_id), None)
        if listed is None:
            return None
        if listed.asked is not None:
            question = requests.question(requests.asked_in(listed.kind, listed.asked), row.submitted_by)
            return (question, listed.offset) if question is not None else None
        (_, partition), _ = self._feed.place_of(row.job_id)
        place = listed.offset
        for record in await self._history.read_job(row.job_id, partition, place, place + 1, self._request_s):
            found = decode_event(record)
            if isinstance(found, Envelope):
                question = requests.question(found.body, row.submitted_by)
                listable = question is not None and question.form.get("id") == request_id
                return (question, place) if question is not None and listable else None
        return None

    async def _standing_answer(self, row: Row, said: requests.Answer) -> tuple[requests.Question, ev.Event | None, int]:
        """(a request that isn't listed as open, the same answer where it was given before, the last offset read).

        Raises:
            NotFound, Conflict.
        """
        state, end = await self._fold(row)
        found = requests.find(state, said.request_id) if state is not None else None
        if state is None or found is None:
            raise requests.not_asked(state, said.request_id)
        return found[0], requests.stands(state, *found, said), end - 1

    async def _check_edit(self, row: Row, question: requests.Question, said: requests.Answer, schema: Schema) -> None:
        """Raises: Conflict, Unavailable."""
        async with self.deadline():
            state, _ = await self._fold(row)
        if state is not None:
            requests.check_edit(state, question, said, schema)

    async def _respond_heard(
        self, news: Subscription, row: Row, question: requests.Question, said: requests.Answer, command_id: str
    ) -> answers.Heard | None:
        """The event that answers; where none comes soon, or one says no, the log is asked.

        The list may have been behind it: then the same answer was given before, and the job has gone on.

        Raises:
            Conflict: what came first contradicts it.
        """
        ends_s = self._clock.monotonic() + self._answer_s

        def settles(heard: answers.Heard) -> bool:
            return requests.settles(question, said, command_id, heard)

        for within_s in (_LIST_LAG_S, self._answer_s):
            refused: Conflict | None = None
            try:
                heard = await self._hear(news, 0, settles, min(within_s, ends_s - self._clock.monotonic()))
            except Conflict as conflict:
                heard, refused = None, conflict
            if heard is not None:
                return heard
            async with self.deadline():
                _, given, _ = await self._standing_answer(row, said)
            if given is not None:
                return answers.Heard(given.event_type, given.caused_by, question.key, None, None)
            if refused is not None:
                raise refused
        return None

    async def _ask_verifier(self, path: str, params: Mapping[str, str] | None = None) -> httpx.Response:
        try:
            return await self._verifier.get(path, params=params)
        except httpx.HTTPError:
            raise Unavailable("verifier_unreachable", "the verifier does not answer") from None

    async def _ended(self, news: Subscription, row: Row, wait: Wait) -> str:
        """The status that a job ended with; where the wait is over before, the one that the list has.

        Its end is told by the log at once. One that came before `news` is seen in the list, which follows the log.
        """
        wait.left.add_done_callback(lambda _: news.close())
        over_s, pause_s = self._clock.monotonic() + wait.within_s, _FIRST_LOOK_S
        while not ended(row.status) and (left_s := over_s - self._clock.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(pause_s, left_s)):
                    return _ENDS[(await news.get()).header("ce_type") or b""]
            except TimeoutError:
                row = await self._seen(row)
                pause_s *= 2
            except FeedClosed:
                break
        return row.status

    async def _seen(self, row: Row) -> Row:
        """A job's row as it is now, if that can be said."""
        with suppress(Unavailable):
            async with self.deadline():
                return await self._views.job(row.job_id) or row
        return row

    async def _taken(self, command: Submit) -> tuple[Row, bool]:
        """(the row of a submission's job, whether it was taken now)."""
        async with self.deadline():
            standing = await self._standing(command) if command.idempotency_key is not None else None
            return (standing, False) if standing is not None else (await self._submit(command), True)

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

    async def _submit(self, command: Submit) -> Row:
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
        )
        try:
            await self._send(command, row.trace, derived("command", command.job_id, "submit"))
        except TooLarge:
            raise submissions.plan_too_large() from None
        try:
            await self._index.announce(row)
        except RedisUnavailable as error:  # the command is in the log: it is taken, and will be shown
            _log.warning("submitted, not shown yet", reason=error.code)
        return row

    async def _send(self, command: JobCommand, trace: bool | None, command_id: str | None = None) -> str:
        """Append a command, `trace` being its job's option; its ce_id."""
        if self._appender.stuck_s() > self._request_s:  # no use in queueing more behind what nobody takes
            raise Unavailable("log_unreachable", "Kafka takes no records")
        ce_id = command_id if command_id is not None else fresh_id()
        with self._traced(command, trace) as span:
            record = draft(
                Topic.JOBS_COMMANDS,
                command,
                key=command.job_id,
                id=ce_id,
                source=SOURCE,
                time=timestamp(self._clock.now()),
                traceparent=span.traceparent,
            )
            for refusal in await write_all(self._appender, [(record,)]):
                _log.error("a command is refused", job_id=command.job_id, reason=refusal.why)
                raise TooLarge
        return ce_id

    def _traced(self, command: JobCommand, trace: bool | None) -> AbstractContextManager[Span]:
        """In the job's own trace, whose root a submission is."""
        kind = type(command).__name__.lower()
        attributes = {"aetheris.job_id": command.job_id}
        return self._telemetry.span(
            whole(command.job_id, trace),
            f"command {kind}",
            kind=Kind.SERVER,
            attributes=attributes,
            root=isinstance(command, Submit),
        )

    async def _answer(self, news: Subscription, since: int, settles: Answers) -> str | None:
        """The type of the event that answers a command; None if none came in time.

        Raises:
            Conflict: what came first contradicts it.
        """
        heard = await self._hear(news, since, settles, self._answer_s)
        return heard.event_type if heard is not None else None

    async def _hear(self, news: Subscription, since: int, settles: Answers, within_s: float) -> answers.Heard | None:
        try:
            async with asyncio.timeout(within_s):
                while True:
                    record = await news.get()
                    heard = answers.heard(record)
                    if record.offset >= since and settles(heard):
                        return heard
        except (TimeoutError, FeedClosed):
            return None

    async def _row(self, caller: Caller, job_id: str) -> Row:
        row = await self._views.job(job_id) or await self._untaken.find(job_id)
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

    async def _planned(self, caller: Caller, job_id: str, news: Subscription) -> tuple[JobState, int]:
        """As `_fold`, of a job whose plan is in the log; of one just submitted that is awaited.

        Raises:
            NotFound, Unavailable.
        """
        while True:
            state, end = await self._fold(await self._row(caller, job_id))
            if state is not None and state.revision >= 0:
                return state, end
            try:
                await news.get()
            except FeedClosed:
                raise Unavailable("deadline", "the gateway is stopping; ask again") from None

    async def _end(self, job_id: str) -> int:
        """The end of the job's partition."""
        place, _ = self._feed.place_of(job_id)
        return (await self._log.end_offsets([place], self._request_s))[place]

    async def _records(self, row: Row, end: int) -> list[Record]:
        """The job's records below `end`, from its birth on."""
        (_, partition), _ = self._feed.place_of(row.job_id)
        start = row.first_offset
        if start is None or start >= end:
            return []
        return list(since_birth(await self._history.read_job(row.job_id, partition, start, end, self._request_s)))

    async def _spliced(self, row: Row, news: Subscription) -> AsyncIterator[list[Record]]:
        end = await self._end(row.job_id)
        history = await self._records(row, end)
        for start in range(0, len(history), _PORTION):
            yield history[start : start + _PORTION]
        while True:
            yield [record for record in await news.take(_PORTION) if record.offset >= end]

    @asynccontextmanager
    async def _listening(
        self, job_id: str, types: Container[bytes | None] | None = None
    ) -> AsyncGenerator[Subscription]:
        async with AsyncExitStack() as leaving:
            async with self.deadline():
                news = await leaving.enter_async_context(self._feed.subscribe(job_id, types))
            yield news

    @asynccontextmanager
    async def deadline(self) -> AsyncGenerator[None]:
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
