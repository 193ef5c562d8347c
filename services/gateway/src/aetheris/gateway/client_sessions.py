"""Sessions: runs of code outside that attach to a job and have it make their calls (docs/sessions.md).

Each session that somebody asks of is followed, from its birth and then live, for as long as requests come: a call costs
what is new in its job, however long that is. What is asked is written into the log one by one, each under the number
that the session's body waits for; where another gateway was first, what that one wrote is read, and judged anew.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from aetheris.gateway.command_writer import CommandWriter
from aetheris.gateway.commands import Reply
from aetheris.gateway.core import access, bodies, session_asks
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem, TooMany, Unavailable
from aetheris.gateway.core.session_asks import FollowedSession
from aetheris.gateway.core.submissions import SubmissionRequest
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.feed import FeedClosed
from aetheris.gateway.intake import Intake
from aetheris.gateway.job_histories import StoredResults
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.registry import Registry
from aetheris.gateway.views import Row
from aetheris.protocol import api_sessions as api
from aetheris.protocol.base.ids import job_id_of
from aetheris.protocol.fold.state import KeyState
from aetheris.protocol.messages.commands import Signal
from aetheris.protocol.plan.graph import Node
from aetheris.protocol.planning.sessions import (
    AskRefused,
    MadeCall,
    SessionAsk,
    SessionAttach,
    SessionBody,
    SessionCall,
    SessionComplete,
    session_key,
)
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.blobs.store import Blobs
from aetheris.runtime.log.interface import LogError

_log = structlog.get_logger(__name__)

MOST_FOLLOWED = 1_000
"""ClientSessions at a time; those of which nobody asks anything make room first."""
_BREATH = 500
"""Records after which a long fold lets other requests go on."""
LINGERS_S = 60.0
"""So long a session is followed behind the last request."""


class _LiveSession:
    """One session, followed."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.followed = FollowedSession()
        self._asked: tuple[str | None, set[str]] = (None, set())
        """What the process in charge has asked for here."""
        self.sending = asyncio.Lock()
        self.failed: Exception | None = None
        self.users = 0
        self.task: asyncio.Task[None] | None = None
        self.leaving: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()

    def asked(self, body: str, said: Iterable[str]) -> set[str]:
        """What a process has asked for: what it says of it, and what was seen of it here."""
        in_charge = self.followed.body.in_charge if self.followed.body is not None else None
        if body != in_charge:
            return set(said)
        if self._asked[0] != in_charge:
            self._asked = (in_charge, set())
        self._asked[1].update(said)
        return self._asked[1]

    def changed(self) -> None:
        """Something was read."""
        self._news.set()
        self._news = asyncio.Event()

    async def news(self) -> None:
        """Wait until something was read; raises Unavailable: nothing more will be."""
        if self.failed is not None:
            raise Unavailable("deadline", "the session can't be followed now; ask again")
        await self._news.wait()


class ClientSessions:
    """Attaches, calls, completes; every request may be repeated, and is then the same one."""

    def __init__(
        self,
        *,
        reader: JobReader,
        intake: Intake,
        writer: CommandWriter,
        registry: Registry,
        deadlines: Deadlines,
        blobs: Blobs,
    ) -> None:
        self._reader = reader
        self._intake = intake
        self._writer = writer
        self._registry = registry
        self._deadlines = deadlines
        self._results = StoredResults(blobs)
        self._live: dict[str, _LiveSession] = {}

    async def attach(self, caller: Principal, raw: bytes, within_s: float | None) -> Reply[api.SessionStanding]:
        """Begin a run, or take it over: from here on the process of this name is its body, and no other.

        Raises:
            BadRequest, Conflict, TooMany, Unavailable.
        """
        wanted = bodies.read(api.SessionAttachBody, raw)
        key = session_asks.run_key(caller.id, wanted.run_id)
        job_id = job_id_of(caller.tenant, key)
        asked = SubmissionRequest(job_id, caller.id, caller.tenant, key)
        command = session_asks.begin_command(wanted, asked, self._registry.newest())
        try:
            taken = await self._intake.take(command)
        except ConflictProblem as standing:
            raise ConflictProblem(
                "run_differs", "this run was begun with other tools or options", **standing.details
            ) from None
        name = wanted.body or fresh_id()
        ask = SessionAsk(attach=SessionAttach(body=name, beside=wanted.beside))

        async def attached(live: _LiveSession) -> api.SessionStanding | None:
            session = live.followed.body
            if live.followed.status is not None:
                result = {"result": live.followed.result} if live.followed.status == "completed" else {}
                return api.SessionStanding(job_id=job_id, body=name, status=live.followed.status, **result)
            if live.followed.is_over:
                raise session_asks.over(None)
            if session is None:
                return None
            if session.has_attached(name):
                recorded = sorted(session.expected) if session.in_charge == name else []
                return api.SessionStanding(job_id=job_id, body=name, status="attached", recorded=recorded)
            if not session.may_attach(name):
                raise session_asks.refusal(AskRefused("superseded"), session, ())
            await self._send(live, caller, job_id, ask, lambda session: session.may_attach(name))
            return None

        async with self._following(taken.row) as live:
            found = await self._until(live, attached, within_s)
        return Reply(found is not None, found or api.SessionStanding(job_id=job_id, body=name, status="pending"))

    async def call(
        self, caller: Principal, job_id: str, raw: bytes, within_s: float | None
    ) -> Reply[api.SessionCallAnswer]:
        """Have a call made, or take what it came to before.

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        wanted = bodies.read(api.SessionCallBody, raw)
        pending, looks = api.SessionCallAnswer(status="open", node_id=wanted.node_id), list[None]()

        async def called(live: _LiveSession) -> tuple[str, KeyState] | None:
            nonlocal pending
            looks.append(None)
            session = live.followed.body
            if session is None:
                return None
            asked = live.asked(wanted.body, wanted.asked)
            ask = session_asks.call_asked(wanted, live.followed, asked, self._registry.schema)
            verdict = session.calls.get(pending.node_id or "") or session.judge(ask)
            if isinstance(verdict, AskRefused):
                await self._refuse(live, ask, verdict, asked)
                return None
            node = verdict.node if isinstance(verdict, MadeCall) else verdict
            asked.add(node.id)
            pending = api.SessionCallAnswer(node_id=node.id, status="open")
            if isinstance(verdict, MadeCall):
                state = live.followed.state_of(node.id)
                if verdict.end is not None and state is not None:
                    return node.id, state
                if live.followed.status is not None:
                    raise session_asks.over(live.followed.status)
                return None
            await self._send(live, caller, job_id, SessionAsk(call=ask), lambda now: isinstance(now.judge(ask), Node))
            return None

        async with self._deadlines.deadline():
            row = await self._own(caller, job_id)
        async with self._following(row) as live:
            found = await self._until(live, called, within_s)
        if found is None:
            return Reply(False, pending)
        node_id, state = found
        result = await self._result(state)
        return Reply(True, session_asks.call_answer(node_id, state, result=result, earlier=len(looks) == 1))

    async def complete(
        self, caller: Principal, job_id: str, raw: bytes, within_s: float | None
    ) -> Reply[api.SessionCompleted]:
        """End a run, with a result, when its open calls have ended.

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        wanted = bodies.read(api.SessionCompleteBody, raw)

        async def completed(live: _LiveSession) -> api.SessionCompleted | None:
            session = live.followed.body
            if live.followed.status is not None:
                return api.SessionCompleted(job_id=job_id, status=live.followed.status)
            if session is None or session.is_ending:
                return None
            asked = live.asked(wanted.body, wanted.asked)
            ask = session_asks.completion(wanted, session, asked)
            verdict = session.judge(ask)
            if isinstance(verdict, AskRefused):
                await self._refuse(live, ask, verdict, asked)
            else:
                todo = SessionAsk(complete=ask)
                await self._send(live, caller, job_id, todo, lambda now: isinstance(now.judge(ask), Node))
            return None

        async with self._deadlines.deadline():
            row = await self._own(caller, job_id)
        async with self._following(row) as live:
            found = await self._until(live, completed, within_s)
        return Reply(found is not None, found or api.SessionCompleted(job_id=job_id, status="pending"))

    async def _own(self, caller: Principal, job_id: str) -> Row:
        row = await self._reader.row(caller, job_id)
        _check_own(caller, row)
        return row

    async def _until(
        self, live: _LiveSession, found: Callable[[_LiveSession], Awaitable[Any]], within_s: float | None
    ) -> Any:
        """What is found once the log says it; None where that takes longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._writer.answer_s if within_s is None else within_s):
                while True:
                    if live.followed.is_no_session:
                        raise ConflictProblem("no_session", "the job is no session")
                    seen = live.followed.job.last_offset if live.followed.job is not None else -1
                    answer = await found(live)
                    if answer is not None:
                        return answer
                    now = live.followed.job.last_offset if live.followed.job is not None else -1
                    if now == seen:
                        await live.news()
        return None

    async def _send(
        self,
        live: _LiveSession,
        caller: Principal,
        job_id: str,
        ask: SessionAsk,
        is_wanted: Callable[[SessionBody], bool],
    ) -> None:
        """Write an ask under the number that the body waits for, unless it is needless by then; until it was heard.

        Raises:
            BadRequest, Conflict, Unavailable.
        """
        payload = session_asks.payload_of(ask)
        async with live.sending:
            followed = live.followed
            while not followed.listens:
                if followed.is_over:
                    raise session_asks.over(followed.status)
                await live.news()
            session = followed.body
            if session is None or followed.job is None or not is_wanted(session):
                return
            number = session.number
            command = Signal(
                job_id=job_id,
                by=caller.id,
                tenant=caller.tenant,
                principal=caller.recorded,
                correlation_key=session_key(number),
                payload=payload,
                as_of=followed.job.last_offset,
            )
            async with self._deadlines.deadline():
                await self._writer.send(command, followed.job.trace)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._writer.answer_s):  # then whoever is next asks again, if need be
                    while session.number == number and not followed.is_over:
                        await live.news()

    async def _refuse(
        self,
        live: _LiveSession,
        ask: SessionCall | SessionComplete,
        refused: AskRefused,
        asked: Collection[str],
    ) -> None:
        """Refuse an ask, as long as that is so by all that is in the log by now.

        Raises:
            BadRequest, Conflict, Unavailable.
        """
        fresh = FollowedSession()
        async with self._deadlines.deadline():
            end = await self._reader.end(live.row.job_id)
            for count, record in enumerate(await self._reader.records(live.row, end)):
                fresh.take(record)
                if count % _BREATH == 0:
                    await asyncio.sleep(0)
        session = fresh.body
        if session is None:
            return
        again = session.judge(ask)
        if not isinstance(again, AskRefused) or again.code != refused.code:
            return
        raise session_asks.over(fresh.status) if again.code == "over" else session_asks.refusal(again, session, asked)

    async def _result(self, state: KeyState) -> Any:
        """Raises Unavailable."""
        if state.result_ref is None:
            return state.result
        try:
            return await asyncio.to_thread(self._results.__getitem__, state.result_ref.sha256)
        except KeyError:
            raise Unavailable("blobs_unreachable", "the call's large result can't be had now") from None

    @asynccontextmanager
    async def _following(self, row: Row) -> AsyncGenerator[_LiveSession]:
        live = self._live.get(row.job_id)
        if live is None or live.failed is not None:
            self._make_room()
            live = self._live[row.job_id] = _LiveSession(row)
            live.task = asyncio.create_task(self._follow(row, live))
        live.users += 1
        if live.leaving is not None:
            live.leaving.cancel()
            live.leaving = None
        try:
            yield live
        finally:
            live.users -= 1
            if not live.users:
                live.leaving = asyncio.get_running_loop().call_later(LINGERS_S, self._leave, row.job_id, live)

    def _make_room(self) -> None:
        if len(self._live) < MOST_FOLLOWED:
            return
        unused = next((name for name, live in self._live.items() if not live.users), None)
        if unused is None:
            raise TooMany("sessions", "as many sessions are in use as the gateway follows: try again")
        self._leave(unused, self._live[unused])

    def _leave(self, job_id: str, live: _LiveSession) -> None:
        if live.users:
            return
        if live.task is not None:
            live.task.cancel()
        if self._live.get(job_id) is live:
            del self._live[job_id]

    async def _follow(self, row: Row, live: _LiveSession) -> None:
        try:
            async with self._reader.listening(row.job_id) as news:
                async for records in self._reader.spliced(row, news):
                    for record in records:
                        live.followed.take(record)
                    live.changed()
                    await asyncio.sleep(0)
        except (FeedClosed, LogError, Unavailable) as error:
            _log.warning("a session is not followed any more", job_id=row.job_id, reason=type(error).__name__)
            live.failed = error
        except Exception as error:  # whoever waits is told
            _log.error("a session can't be followed", job_id=row.job_id, error=type(error).__name__)
            live.failed = error
            raise
        finally:
            live.changed()


def _check_own(caller: Principal, row: Row) -> None:
    """Whose run it is nobody else learns; raises NotFound."""
    if row.submitted_by != caller.id:
        raise access.unknown_job()
