"""What answers a session's requests on a memory system: the gateway's own rules, without HTTP."""

from collections.abc import Callable, Mapping
from typing import Any

from aetheris.gateway.core import session_asks
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, Problem
from aetheris.gateway.core.session_asks import FollowedSession
from aetheris.gateway.core.submissions import SubmissionRequest
from aetheris.protocol import api_sessions as api
from aetheris.protocol.base.ids import job_id_of
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import RegistryEntry, Signal, Submit
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.schemas import Schema
from aetheris.protocol.planning.sessions import (
    AskRefused,
    MadeCall,
    SessionAsk,
    SessionAttach,
    session_key,
)
from aetheris.sdk.client import ApiError, BadRequest, Conflict
from aetheris.sdk.client.calls import ApiCall


class StillWaits(Exception):
    """A call waits for a person's word, or its job is paused: let it go on, and make the call again."""


class SessionGateway:
    """Attaches, calls, completes, for one who submits."""

    def __init__(
        self,
        tenant: str,
        submitter: str,
        registry: Mapping[str, RegistryEntry],
        say: Callable[[Submit | Signal], Any],
        logged: Callable[[str], list[tuple[Event, int]]],
    ) -> None:
        """`say` has a command carried out; `logged`: the events of a job, with their offsets, if there is one."""
        self._tenant = tenant
        self._submitter = submitter
        self._registry = registry
        self._say = say
        self._logged = logged
        self._followed: dict[str, tuple[FollowedSession, int]] = {}

    def send(self, call: ApiCall) -> Any:
        """The answer to a request, as JSON.

        Raises:
            ApiError: as the gateway's client.
            StillWaits.
        """
        try:
            match call.path.split("/")[1:]:
                case ["sessions"]:
                    answer = self._attach(api.SessionAttachBody.model_validate(call.body))
                case ["sessions", job_id, "calls"]:
                    answer = self._call(job_id, api.SessionCallBody.model_validate(call.body))
                case ["sessions", job_id, "complete"]:
                    answer = self._complete(job_id, api.SessionCompleteBody.model_validate(call.body))
                case _:
                    raise LookupError(call.path)
        except Problem as problem:
            raise _told(problem) from None
        return answer.model_dump(mode="json")

    def _attach(self, wanted: api.SessionAttachBody) -> api.SessionStanding:
        key = session_asks.run_key(self._submitter, wanted.run_id)
        job_id, name = job_id_of(self._tenant, key), wanted.body or ""
        asked = SubmissionRequest(job_id, self._submitter, self._tenant, key)
        command = session_asks.begin_command(wanted, asked, self._registry)
        if not self._logged(job_id):
            self._say(command)
        elif self._state(job_id).created.request_hash != command.request_hash:
            raise ConflictProblem("run_differs", "this run was begun with other tools or options")
        followed = self._session(job_id)
        if followed.status is not None:
            return api.SessionStanding(job_id=job_id, body=name, status=followed.status, result=followed.result)
        session = followed.body
        if session is not None and session.may_attach(name):
            self._ask(job_id, SessionAsk(attach=SessionAttach(body=name, beside=wanted.beside)))
        session = self._session(job_id).body
        if session is None or not session.has_attached(name):
            raise ConflictProblem("superseded", "another process has attached to this run")
        recorded = sorted(session.expected) if session.in_charge == name else []
        return api.SessionStanding(job_id=job_id, body=name, status="attached", recorded=recorded)

    def _call(self, job_id: str, wanted: api.SessionCallBody) -> api.SessionCallAnswer:
        ended_before, node_id = True, wanted.node_id or ""
        while True:
            followed = self._session(job_id)
            session = followed.body
            if session is None:
                raise ConflictProblem("no_session", "the job is no session")
            ask = session_asks.call_asked(wanted, followed, wanted.asked, self._schema)
            verdict = session.calls.get(node_id) or session.judge(ask)
            if isinstance(verdict, AskRefused):
                raise session_asks.refusal(verdict, session, wanted.asked)
            if isinstance(verdict, MadeCall):
                if verdict.end is None:
                    raise StillWaits(f"{verdict.node.id} has not ended")
                name, state = verdict.node.id, followed.state_of(verdict.node.id)
                result = verdict.end.result
                return session_asks.call_answer(name, state, result=result, earlier=ended_before)
            ended_before, node_id = False, verdict.id
            self._ask(job_id, SessionAsk(call=ask))

    def _complete(self, job_id: str, wanted: api.SessionCompleteBody) -> api.SessionCompleted:
        followed = self._session(job_id)
        session = followed.body
        if followed.status is None and session is not None and not session.is_ending:
            ask = session_asks.completion(wanted, session, wanted.asked)
            verdict = session.judge(ask)
            if isinstance(verdict, AskRefused):
                raise session_asks.refusal(verdict, session, wanted.asked)
            self._ask(job_id, SessionAsk(complete=ask))
        status = self._session(job_id).status
        if status is None:
            raise StillWaits("a call of the run is open")
        return api.SessionCompleted(job_id=job_id, status=status)

    def _ask(self, job_id: str, ask: SessionAsk) -> None:
        followed = self._session(job_id)
        if followed.is_over or followed.body is None:
            raise session_asks.over(followed.status)
        number = followed.body.number
        self._say(
            Signal(
                job_id=job_id,
                by=self._submitter,
                tenant=self._tenant,
                correlation_key=session_key(number),
                payload=session_asks.payload_of(ask),
                as_of=self._state(job_id).last_offset,
            )
        )
        now = self._session(job_id)
        if now.body is not None and now.body.number == number and not now.is_over:
            raise StillWaits("its job does not go on")

    def _state(self, job_id: str) -> JobState:
        job = self._session(job_id).job
        if job is None:
            raise LookupError(job_id)
        return job

    def _session(self, job_id: str) -> FollowedSession:
        followed, count = self._followed.get(job_id, (FollowedSession(), 0))
        logged = self._logged(job_id)
        for event, offset in logged[count:]:
            followed.follow(event, offset)
        self._followed[job_id] = followed, len(logged)
        return followed

    def _schema(self, name: str, version: str, schema_hash: str) -> Schema | None:
        entry = self._registry.get(name)
        same = entry is not None and (entry.version, entry.schema_hash) == (version, schema_hash)
        return entry.schema_ if entry is not None and same else None


def _told(problem: Problem) -> ApiError:
    kind = BadRequest if isinstance(problem, BadRequestProblem) else Conflict
    return kind(problem.code, problem.message, problem.details)
