"""Requests to humans: listed, shown from the log, answered."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from aetheris.gateway.command_writer import CommandWriter
from aetheris.gateway.commands import Reply
from aetheris.gateway.core import access, bodies, requests, signed_answers
from aetheris.gateway.core.answers import ObservedEvent
from aetheris.gateway.core.personal_arguments import check_editable
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.feed import JobFeed
from aetheris.gateway.hidden_submissions import HiddenSubmissions
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.job_rows import JobRows
from aetheris.gateway.registry import Registry
from aetheris.gateway.views import Row, Views
from aetheris.protocol.api import RequestBody, RequestStanding, RespondBody, Responded, VoteCount
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.hidden_values import holds_hidden
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import OpenRequest, Respond
from aetheris.protocol.messages.envelope import Envelope, decode_event
from aetheris.protocol.planning.approval_text import verified_votes
from aetheris.protocol.planning.approvals import job_of, may_not_answer
from aetheris.protocol.planning.schemas import Schema
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.subjects.hidden_store import SealedValue

_LIST_LAG_S = 1.0
"""After so long without an answer the log is asked whether somebody else had answered before."""


class HumanRequests:
    """A request is answered from the list where that has it: its job is read only where it must be."""

    def __init__(
        self,
        *,
        reader: JobReader,
        writer: CommandWriter,
        views: Views,
        rows: JobRows,
        registry: Registry,
        deadlines: Deadlines,
        clock: Clock,
        signers: AllowedSigners,
        hidden: HiddenSubmissions,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._views = views
        self._rows = rows
        self._registry = registry
        self._deadlines = deadlines
        self._clock = clock
        self._signers = signers
        self._hidden = hidden

    async def open(self, caller: Principal, cursor: str | None, limit: int) -> dict[str, Any]:
        """The tenant's open requests, oldest first; raises Unavailable."""
        async with self._deadlines.deadline():
            page = await self._views.asked(caller.tenant, cursor, limit)
        rows = [
            {
                "request_id": request.id,
                "job_id": row.job_id,
                "submitted_by": row.submitted_by,
                **request.model_dump(mode="json", exclude={"id", "offset", "asked", "approvals", "votes"}),
                "votes": _votes_in_list(request),
            }
            for row, request in page.requests
        ]
        return {"approvals": rows, "cursor": page.cursor}

    async def request(self, caller: Principal, request_id: str) -> dict[str, Any]:
        """A request, and how it stands, from the log.

        Raises:
            NotFound, Unavailable.
        """
        async with self._deadlines.deadline():
            state, found = await self._request(caller, request_id)
        if state is None or found is None:
            raise requests.unknown()
        shown = dict(requests.view(state, *found))
        signable = signed_answers.to_sign(state, found[0], caller.id, self._signers, self._clock.now())
        return shown | {"to_sign": signable.model_dump()} if signable is not None else shown

    async def standing(self, caller: Principal, raw: bytes) -> RequestStanding:
        """Whether an answered request has let its job go on: an answer does that by itself.

        Raises:
            BadRequest, NotFound, Conflict, Unavailable.
        """
        request_id = bodies.read(RequestBody, raw).request_id
        async with self._deadlines.deadline():
            state, asked = await self._request(caller, request_id)
        if state is None or asked is None:
            raise requests.not_asked(state, request_id)
        return requests.standing_of(state, *asked)

    async def respond(self, caller: Principal, raw: bytes) -> Reply[Responded]:
        """Hand on a human's answer.

        Raises:
            BadRequest, Forbidden, NotFound, Conflict, Unavailable.
        """
        wanted = bodies.read(RespondBody, raw)
        who = caller.speaks(breaks_glass=wanted.break_glass)
        response = requests.HumanResponse(
            wanted.request_id, wanted.action, wanted.data, wanted.comment, who, wanted.signature
        )
        async with self._deadlines.deadline():
            row = await self._row(caller, response.request_id)
        async with self._reader.listening(row.job_id) as news:
            async with self._deadlines.deadline():
                question, given, as_of = await self._asked(row, response)
                if given is not None:
                    return Reply(True, requests.responded(response, given.caused_by, _observed_event(given, question)))
                await self._check(row, question, response)
                response, sealed = await self._said(row, question, response)
                await self._check_edit(row, question, response)
                await self._hidden.keep(sealed)
                command_id = await self._writer.send(_command(row, caller, response, as_of), row.trace)
            observed = await self._answered(news, row, question, response, command_id)
        caused_by = (
            observed.caused_by if observed is not None else None
        )  # the list may not know yet who answered before
        votes = await self._votes(row, question, response) if observed is not None else None
        return Reply(observed is not None, requests.responded(response, caused_by or command_id, observed, votes))

    async def _votes(self, row: Row, question: requests.Question, response: requests.HumanResponse) -> VoteCount | None:
        """How many have said yes behind this one; nothing where one is enough."""
        if response.action != "approve" or requests.votes_on(question.asked, question.owner, ()) is None:
            return None
        async with self._deadlines.deadline():
            state, found = await self._reader_request(row, response.request_id)
        return requests.votes_on(found[0].asked, question.owner, found[1].votes) if state and found else None

    async def _reader_request(
        self, row: Row, request_id: str
    ) -> tuple[JobState | None, tuple[requests.Question, KeyState] | None]:
        state = (await self._reader.fold(row)).state
        return state, requests.find(state, request_id) if state is not None else None

    async def _row(self, caller: Principal, request_id: str) -> Row:
        job_id = job_of(request_id)
        row = await self._rows.listed(job_id) if job_id is not None else None
        if row is None or row.tenant != caller.tenant:
            raise requests.unknown()
        access.check_reach(caller, row.submitted_by)
        return row

    async def _request(
        self, caller: Principal, request_id: str
    ) -> tuple[JobState | None, tuple[requests.Question, KeyState] | None]:
        """(the job that a request's id names, the request; None where it never made it)."""
        return await self._reader_request(await self._row(caller, request_id), request_id)

    async def _asked(
        self, row: Row, response: requests.HumanResponse
    ) -> tuple[requests.Question, ev.Event | None, int]:
        """(a request, the same answer where it was given before, the offset that says so).

        Raises:
            NotFound, Conflict.
        """
        listed = await self._listed(row, response.request_id)
        if listed is not None:
            question, as_of = listed
            return question, None, as_of
        return await self._standing_answer(row, response)

    async def _said(
        self, row: Row, question: requests.Question, response: requests.HumanResponse
    ) -> tuple[requests.HumanResponse, Sequence[SealedValue]]:
        """(an answer as it may be written, what must be kept before); the same where it is so already."""
        fills_in = "approve" if isinstance(question.asked, ev.JobWaiting) else "edit"
        if response.action != fills_in or holds_hidden(response.data):
            return response, ()
        data, sealed = await self._hidden.hide_answer(row.tenant, row.job_id, question.form, response.data)
        return replace(response, data=data), sealed

    async def _listed(self, row: Row, request_id: str) -> tuple[requests.Question, int] | None:
        """(an open request, from the list or from where that says that it is; its offset); None if it isn't listed."""
        listed = next((request for request in row.requests if request.id == request_id), None)
        if listed is None:
            return None
        if listed.asked is not None:
            question = requests.question(requests.asked_in(listed.kind, listed.asked), _owner(row))
            return (question, listed.offset) if question is not None else None
        place = listed.offset
        for record in await self._reader.between(row.job_id, place, place + 1):
            found = decode_event(record)
            if isinstance(found, Envelope):
                question = requests.question(found.body, _owner(row))
                listable = question is not None and question.form.get("id") == request_id
                return (question, place) if question is not None and listable else None
        return None

    async def _standing_answer(
        self, row: Row, response: requests.HumanResponse
    ) -> tuple[requests.Question, ev.Event | None, int]:
        """As `_asked`, of a request that isn't listed as open."""
        seen = await self._reader.fold(row)
        found = requests.find(seen.state, response.request_id) if seen.state is not None else None
        if seen.state is None or found is None:
            raise requests.not_asked(seen.state, response.request_id)
        question, state = found
        if may_not_answer(question.asked, response.action, question.owner, response.who) is None:
            response, _ = await self._said(row, question, response)  # who may not makes no person's key by it
        votes = verified_votes(seen.state, question.key, state, self._signers, self._clock.now())
        stands = requests.stands(seen.state, question, state.model_copy(update={"votes": votes}), response)
        return question, stands, seen.end - 1

    async def _check(self, row: Row, question: requests.Question, response: requests.HumanResponse) -> None:
        """Raises: BadRequest, Forbidden, Conflict, Unavailable."""
        schema = self._schema(question)
        requests.check(question, response, schema, await self._signed_by(row, question, response))
        if response.action == "edit":
            signed = signed_answers.wants_signature(question) is not None
            check_editable(schema, question.form, response.data, signed=signed)

    def _schema(self, question: requests.Question) -> Schema | None:
        return self._registry.schema(question.tool, question.tool_version) if question.tool else None

    async def _signed_by(self, row: Row, question: requests.Question, response: requests.HumanResponse) -> str | None:
        if signed_answers.wants_signature(question) is None:
            return None
        async with self._deadlines.deadline():
            state = (await self._reader.fold(row)).state
        if state is None:
            raise requests.unknown()
        return signed_answers.signed_by(state, question, response, self._signers, self._clock.now())

    async def _check_edit(self, row: Row, question: requests.Question, response: requests.HumanResponse) -> None:
        schema = self._schema(question) if response.action == "edit" else None
        if schema is None:
            return
        async with self._deadlines.deadline():
            state = (await self._reader.fold(row)).state
        if state is not None:
            requests.check_edit(state, question, response, schema)

    async def _answered(
        self, news: JobFeed, row: Row, question: requests.Question, response: requests.HumanResponse, command_id: str
    ) -> ObservedEvent | None:
        """The event that answers; where none comes soon, or one says no, the log is asked.

        The list may have been behind it: then the same answer was given before, and the job has gone on.

        Raises:
            Conflict: what came first contradicts it.
        """
        ends_s = self._clock.monotonic() + self._writer.answer_s
        settles = partial(requests.settles, question, response, command_id)
        for within_s in (_LIST_LAG_S, self._writer.answer_s):
            refused: ConflictProblem | None = None
            try:
                observed = await self._writer.hear(news, 0, settles, min(within_s, ends_s - self._clock.monotonic()))
            except ConflictProblem as conflict:
                observed, refused = None, conflict
            if observed is not None:
                return observed
            async with self._deadlines.deadline():
                _, given, _ = await self._standing_answer(row, response)
            if given is not None:
                return _observed_event(given, question)
            if refused is not None:
                raise refused
        return None


def _votes_in_list(request: OpenRequest) -> dict[str, Any] | None:
    return None if request.approvals is None else {"given": list(request.votes), "needed": request.approvals}


def _owner(row: Row) -> requests.Owner:
    return requests.Owner(row.tenant, row.submitted_by)


def _observed_event(given: ev.Event, question: requests.Question) -> ObservedEvent:
    return ObservedEvent(given.event_type, given.caused_by, question.key, None, None)


def _command(row: Row, caller: Principal, response: requests.HumanResponse, as_of: int) -> Respond:
    return Respond(
        job_id=row.job_id,
        by=caller.id,
        tenant=caller.tenant,
        principal=response.who,
        request_id=response.request_id,
        action=response.action,
        data=response.data,
        comment=response.comment,
        signature=response.signature,
        as_of=as_of,
    )
