"""Requests to humans: found in a job, shown, answers checked field by field, and what the log says of an answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from aetheris.gateway.core.answers import ObservedEvent, contract_status, ended
from aetheris.gateway.core.personal_arguments import check_subjects
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, ForbiddenProblem, NotFoundProblem
from aetheris.protocol.api import Action, AskedBy, RequestStanding, Responded, VoteCount
from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.fold.start import is_stopped
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import RejectReason
from aetheris.protocol.plan.forms import AnswerRefused, answers
from aetheris.protocol.planning.approvals import (
    arguments_of,
    contract_of,
    edited,
    fields_in,
    had_before,
    may_not_answer,
    request_id,
    votes_as_recorded,
    votes_that_count,
)
from aetheris.protocol.planning.continuation import edited_to
from aetheris.protocol.planning.outcome import step_status
from aetheris.protocol.planning.schemas import Schema

Requested = ev.ApprovalRequested | ev.JobWaiting
Given = ev.ApprovalDecided | ev.ApprovalVoted | ev.WaitCompleted


@dataclass(frozen=True, slots=True)
class HumanResponse:
    """What somebody says to a request."""

    request_id: str
    action: Action
    data: dict[str, Any]
    comment: str | None
    who: RecordedPrincipal
    signature: str | None = None

    @property
    def by(self) -> str:
        """His name."""
        return self.who.id


class Owner(NamedTuple):
    """Whose the job is that it is about."""

    tenant: str
    submitted_by: str


@dataclass(frozen=True, slots=True)
class Question:
    """A request as the log has it: the server uses this, and nothing that a client says of it."""

    asked: Requested
    owner: Owner
    tool: str = ""
    tool_version: str = ""

    @property
    def form(self) -> dict[str, Any]:
        """What a human is shown."""
        return self.asked.form or {}

    @property
    def key(self) -> str:
        """The idempotency key that it is about."""
        return self.asked.idempotency_key or ""


def question(asked: ev.Event, owner: Owner) -> Question | None:
    """The request in an event; None where it has none."""
    if not isinstance(asked, ev.ApprovalRequested | ev.JobWaiting) or asked.form is None:
        return None
    tool = asked.form.get("context", {}).get("tool", "")
    version = asked.tool_version if isinstance(asked, ev.ApprovalRequested) else ""
    return Question(asked, owner, tool, version)


def asked_in(kind: Literal["approval", "human"], payload: Mapping[str, Any]) -> Requested:
    """The event that the list repeats."""
    return (ev.ApprovalRequested if kind == "approval" else ev.JobWaiting).model_validate(payload)


def find(job: JobState, request: str) -> tuple[Question, KeyState] | None:
    """A request of a job; None if it never made it."""
    for key, state in job.keys.items():
        for asked, then in _asked_about(state):
            token = asked.generation if isinstance(asked, ev.ApprovalRequested) else 1
            if request_id(job.job_id, state.node_id, key, token) == request:
                found = question(asked, Owner(job.created.tenant, job.created.submitted_by))
                return (found, then) if found is not None else None
    return None


def _asked_about(state: KeyState) -> Iterator[tuple[Requested, KeyState]]:
    """Everything that was asked about a call, and how it stood then: a retry by hand is asked about anew."""
    asked = state.requested or state.waits_for
    if asked is not None:
        yield asked, state
    for requested, decision in state.answered:
        yield requested, state.model_copy(update={"requested": requested, "decision": decision})


def unknown() -> NotFoundProblem:
    """The refusal of what names no request."""
    return NotFoundProblem("unknown_request", "there is no such request")


def not_asked(job: JobState | None, request: str) -> NotFoundProblem | ConflictProblem:
    """The refusal of an answer to what was never asked: a contract may have the id that a request about it would."""
    status = contract_status(job, contract_of(request)) if job is not None else None
    if status is None:
        return unknown()
    return ConflictProblem("illegal_transition", f"the step is {status.value}, and asks nobody", state=status.value)


def check(question: Question, response: HumanResponse, schema: Schema | None, key: str | None = None) -> None:
    """Whether the answer fits the form, by whoever may give it; `key`: of his that signed it.

    Raises:
        BadRequest: naming the field.
        Forbidden: somebody else may answer.
    """
    refused = may_not_answer(question.asked, response.action, question.owner, response.who, key=key)
    if refused is not None:
        raise ForbiddenProblem("not_an_approver", refused)
    try:
        if isinstance(question.asked, ev.ApprovalRequested):
            _check_approval(question.asked, response, schema)
        else:
            _check_form(question, response)
    except AnswerRefused as error:
        field = "data" if error.field == "data" else f"data.{error.field}"
        raise BadRequestProblem(error.code, field, error.rule) from None


def _check_approval(asked: ev.ApprovalRequested, response: HumanResponse, schema: Schema | None) -> None:
    if response.action != "edit":
        if response.data:
            raise AnswerRefused("data", "only an edit changes something")
        return
    if asked.generation > 1:
        raise AnswerRefused("data", "what was tried already is approved as it is, or rejected")
    if schema is None:
        raise AnswerRefused("data", "the schema that the tool was pinned with is not registered any more")
    edited(asked, schema, response.data)


def check_edit(job: JobState, question: Question, response: HumanResponse, schema: Schema) -> None:
    """Whether an edit makes a call that the step never had; the answer fits the form, and is as it is recorded.

    Raises:
        BadRequest: it changes nothing, or is about too many persons.
        Conflict: it goes back to earlier arguments, which were decided on, or does again what the job adopted.
    """
    asked = question.asked
    if not isinstance(asked, ev.ApprovalRequested):
        return
    try:
        args = edited(asked, schema, response.data, hidden=True)
    except AnswerRefused as error:  # the same value as before, hidden
        raise BadRequestProblem(error.code, error.field, error.rule) from None
    check_subjects(args)
    before = had_before(job, asked.node_id, question.tool, args)
    if before is not None:
        raise ConflictProblem("edited_back", before, request_id=response.request_id)
    done = edited_to(job, asked.node_id, args)
    if done is not None:
        message = f"{done.node_id} of {done.job_id}, which the job continues, did just that: it is not done again"
        raise ConflictProblem("duplicate_of", message, duplicate_of=done.node_id, job_id=done.job_id)


def _check_form(question: Question, response: HumanResponse) -> None:
    if response.action == "edit":
        raise BadRequestProblem(
            "bad_request", "action", "a form of the plan is answered with approve, or refused with reject"
        )
    if response.action == "approve":
        answers(fields_in(question.form), response.data)
    elif response.data:
        raise AnswerRefused("data", "a refusal has none")


def stands(job: JobState, question: Question, state: KeyState, response: HumanResponse) -> ev.Event | None:
    """The same answer, where it was given before; None where the request is open.

    Raises:
        Conflict: another answer stands, nobody answered in time, or the job goes on no more.
    """
    if state.rejected_by is not None and (state.rejected_by, "reject") == (response.by, response.action):
        return ev.InvocationRejected(
            job_id=job.job_id,
            node_id=state.node_id,
            idempotency_key=question.key,
            reason=RejectReason.APPROVAL,
        )
    given = _given(state, question)
    if given is None and response.action == "approve":
        given = next((vote for vote in state.votes if vote.approver == response.by), None)
    if given is not None:
        if not _same(given, question, response):
            raise _answered(given)
        return given
    if state.status is not KeyStatus.NONE and not state.is_asking:
        status = step_status(state)
        raise ConflictProblem(
            "illegal_transition", f"the step is {status.value}: {state.reason or 'started'}", state=status
        )
    entry = job.entry(state.node_id)
    if job.terminal is not None:
        raise ended(job.terminal.event_type)
    if entry is None or is_stopped(job, entry):
        raise ConflictProblem("illegal_transition", "the job is stopping")
    return None


def _given(state: KeyState, question: Question) -> ev.ApprovalDecided | ev.WaitCompleted | None:
    if isinstance(question.asked, ev.ApprovalRequested):
        return state.decision
    return state.wait_ended


def _same(given: Given, question: Question, response: HumanResponse) -> bool:
    """A repeat: by the same name, to the same effect."""
    if isinstance(given, ev.WaitCompleted):
        return (
            given.by == response.by
            and response.action == "approve"
            and _equal(given.payload, _filled(question, response))
        )
    if isinstance(given, ev.ApprovalVoted):
        return True
    said_by = given.votes or (given.approver,)
    if given.decision.value != response.action or response.by not in said_by:
        return False
    shown = arguments_of(question.asked) if isinstance(question.asked, ev.ApprovalRequested) else None
    return response.action != "edit" or _equal(given.data, {**(shown or {}), **response.data})


def _filled(question: Question, response: HumanResponse) -> Any:
    try:
        return answers(fields_in(question.form), response.data, hidden=True)
    except AnswerRefused:
        return None


def _equal(one: Any, other: Any) -> bool:
    return canonical(one) == canonical(other)


def _answered(given: Given) -> ConflictProblem:
    if not isinstance(given, ev.ApprovalDecided):
        by = given.by if isinstance(given, ev.WaitCompleted) else given.approver
        return ConflictProblem("answered", f"it was answered by {by}", by=by)
    message = f"it was answered by {given.approver}: {given.decision.value}"
    return ConflictProblem("answered", message, by=given.approver, decision=given.decision.value)


def settles(question: Question, response: HumanResponse, command_id: str, event: ObservedEvent) -> bool:
    """Whether the event takes the answer; an edit is taken when the new call has been judged.

    Raises:
        Conflict: another answer came first, or the request is no more.
    """
    of_this = event.idempotency_key == question.key
    mine = event.caused_by == command_id
    if event.event_type == "approval_voted" and of_this and mine:
        return True
    if event.event_type == "approval_decided" and of_this:
        if not mine:
            raise ConflictProblem("answered", "somebody else has answered it")
        return response.action != "edit"
    if event.event_type == "wait_completed" and of_this:
        if not mine:
            raise ConflictProblem("answered", "somebody else has answered it")
        return True
    if event.event_type == "approval_requested" and mine:
        return True
    if event.event_type == "invocation_rejected" and (of_this or mine):
        return _rejection(response, event, mine=mine)
    if event.event_type in ("job_stopping", "job_completed", "job_failed", "job_cancelled"):
        raise ended(event.event_type)
    return False


def _rejection(response: HumanResponse, event: ObservedEvent, *, mine: bool) -> bool:
    """A no is an answer to a form; a call that an edit makes may be refused by the policy, and that is one too."""
    if mine and event.reason in (RejectReason.POLICY, RejectReason.BUDGET):
        return True
    if mine and response.action == "reject" and event.reason == RejectReason.APPROVAL:
        return True
    raise ConflictProblem("illegal_transition", f"the request is over: {event.reason}", reason=event.reason)


def standing(job: JobState, question: Question, state: KeyState) -> str:
    """waiting, approved, edited, rejected, answered, expired or cancelled."""
    given = _given(state, question)
    if isinstance(given, ev.ApprovalDecided):
        return {"approve": "approved", "edit": "edited", "reject": "rejected"}[given.decision.value]
    if given is not None:
        return "answered"
    if state.outcome is Settled.REJECTED:
        gone = {RejectReason.EXPIRED.value: "expired", RejectReason.APPROVAL.value: "rejected"}
        return gone.get(state.reason or "", "cancelled")
    entry = job.entry(state.node_id)
    closed = job.terminal is not None or entry is None or is_stopped(job, entry)
    return "cancelled" if closed else "waiting"


def standing_of(job: JobState, question: Question, state: KeyState) -> RequestStanding:
    """How an answered request stands.

    Raises:
        Conflict: nobody has answered it.
    """
    found = view(job, question, state)
    if found["status"] in ("waiting", "expired", "cancelled"):
        message = "it still waits for its answer" if found["status"] == "waiting" else "nobody has answered it"
        raise ConflictProblem("illegal_transition", message, state=found["execution_state"])
    return RequestStanding(**{name: found[name] for name in ("job_id", "node_id", "status", "execution_state")})


def responded(
    response: HumanResponse, command_id: str | None, event: ObservedEvent | None, votes: VoteCount | None = None
) -> Responded:
    """What became of an answer; `event` is what the log said to it, None if nothing in time."""
    found: dict[str, Any] = {"request_id": response.request_id, "action": response.action}
    found |= {"event": event.event_type if event is not None else None, "command_id": command_id, "votes": votes}
    if event is not None and event.event_type == "approval_requested" and event.form is not None:
        found["next_request_id"] = event.form.get("id")
    if response.who.breaks_glass:
        found["broke_glass"] = True
    return Responded(**found)


def votes_on(asked: Requested, owner: Owner, votes: Sequence[ev.ApprovalVoted]) -> VoteCount | None:
    """Who has said yes so far, of how many; None where one is enough."""
    if not isinstance(asked, ev.ApprovalRequested) or asked.approvals is None:
        return None
    return VoteCount(given=votes_that_count(asked, owner, votes_as_recorded(votes)), needed=asked.approvals)


def view(job: JobState, question: Question, state: KeyState) -> Mapping[str, Any]:
    """What GET /ecs/status/{request_id} answers."""
    given = _given(state, question)
    found: dict[str, Any] = {
        "request": question.form,
        "job_id": job.job_id,
        "node_id": state.node_id,
        "status": standing(job, question, state),
        "execution_state": step_status(state, over=job.terminal is not None).value,
    }
    votes = votes_on(question.asked, question.owner, state.votes)
    if votes is not None:
        found["votes"] = votes.model_dump()
    if isinstance(question.asked, ev.ApprovalRequested):
        found["asked_by"] = question.asked.model_dump(mode="json", include=set(AskedBy.model_fields), exclude_none=True)
    if isinstance(given, ev.ApprovalDecided):
        found["answer"] = given.model_dump(mode="json", include={"decision", "approver", "votes", "comment", "data"})
    elif given is not None:
        body = {"decision": "approve", "approver": given.by, "comment": given.comment, "data": given.payload}
        found["answer"] = body
    return found
