"""What becomes of what a person asks of a job: it stands already, or a command is sent that some event answers.

Each decision raises what refuses it: BadRequest, Forbidden, NotFound, Conflict, NotBegun.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aetheris.gateway.core import access, answers, resolution_votes
from aetheris.gateway.core.answers import ObservedEvent
from aetheris.gateway.core.personal_arguments import refusal
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, NotBegun, NotFoundProblem
from aetheris.protocol.api import CancelBody, Commanded, PauseInForce, ReasonBody, ResolveBody, SignalBody
from aetheris.protocol.base.principals import Role
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.begun import is_end_key
from aetheris.protocol.messages.commands import (
    Cancel,
    CancelContract,
    JobCommand,
    Pause,
    Resolve,
    Resume,
    Signal,
)
from aetheris.protocol.planning.invocation import has_hidden
from aetheris.protocol.planning.sessions import SESSION_NODE, is_session, session_key
from aetheris.views import standing


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job as its log says up to the offset `end`; `state` is None before its birth."""

    job_id: str
    state: JobState | None
    end: int

    @property
    def begun(self) -> JobState:
        """The job; raises NotBegun."""
        if self.state is None:
            raise NotBegun
        return self.state


@dataclass(frozen=True, slots=True)
class Stands:
    """What was asked for is so already."""

    answer: Commanded


@dataclass(frozen=True, slots=True)
class Send:
    """A command to append; which event answers it (of its ce_id), and the answer, as far as it is known before."""

    command: JobCommand
    settles: Callable[[str, ObservedEvent], bool]
    answer: Commanded

    def answered(self, command_id: str, event: ObservedEvent | None) -> Commanded:
        """The answer, with the event that came; None if none came in time."""
        event_type = event.event_type if event is not None else None
        return self.answer.model_copy(update={"event": event_type, "command_id": command_id})


Decision = Stands | Send
Decide = Callable[[Principal, JobSnapshot], Decision]


def cancel(wanted: CancelBody, caller: Principal, job: JobSnapshot) -> Decision:
    """Ask a job to stop; before its birth too. Who is of another tenant than the job is recorded with his own."""
    across = wanted.tenant if wanted.tenant != caller.tenant else None
    found = Commanded(job_id=job.job_id) if across is None else Commanded(job_id=job.job_id, tenant=across)
    if job.state is not None and answers.stands_against_cancel(job.state, compensate=wanted.compensate):
        return Stands(found.model_copy(update={"status": standing.job_status(job.state)}))
    command = Cancel(
        job_id=job.job_id,
        by=caller.id,
        tenant=caller.tenant,
        principal=caller.recorded if across is not None else None,
        reason=wanted.reason,
        compensate=wanted.compensate,
    )
    return Send(command, answers.answers_cancel, found.model_copy(update={"status": "cancelling"}))


def pause(wanted: ReasonBody, caller: Principal, job: JobSnapshot) -> Decision:
    """Keep a job from starting anything."""
    state, found = job.begun, Commanded(job_id=job.job_id, status="paused")
    answers.check_pausable(state)
    if state.paused is not None:
        reported = PauseInForce.model_validate(standing.pause_view(state.paused))
        return Stands(found.model_copy(update={"event": "job_paused", "command_id": None, "paused": reported}))
    number = state.pauses + 1
    command = Pause(job_id=job.job_id, by=caller.id, tenant=caller.tenant, number=number, reason=wanted.reason)
    return Send(command, lambda _, event: answers.answers_pause("job_paused", number, event), found)


def resume(wanted: ReasonBody, caller: Principal, job: JobSnapshot) -> Decision:
    """End the pause that a job is in."""
    number = answers.pause_to_end(job.begun)
    command = Resume(job_id=job.job_id, by=caller.id, tenant=caller.tenant, number=number, reason=wanted.reason)
    found = Commanded(job_id=job.job_id, status="running")
    return Send(command, lambda _, event: answers.answers_pause("job_resumed", number, event), found)


def resolve(execution_id: str, wanted: ResolveBody, caller: Principal, job: JobSnapshot) -> Decision:
    """Hand on what a human found out about a parked step."""
    state = job.begun
    key = _known(answers.key_to_resolve(state, execution_id))
    answers.check_resolvable(state.keys[key], wanted.verdict)
    if wanted.accept_code is not None:
        answers.check_accepts_code(state, state.keys[key])
    if wanted.result is not None and has_hidden(state, state.keys[key].node_id):
        raise refusal("result", "x-personal isn't served there: the result of a call with hidden values, in the clear")
    who = caller.speaks(breaks_glass=wanted.break_glass)
    answers.check_resolver(state, state.keys[key], who, wanted.verdict)
    command = Resolve.model_validate(
        {
            "job_id": job.job_id,
            "by": caller.id,
            "tenant": caller.tenant,
            "principal": who,
            "execution_id": execution_id,
            "verdict": wanted.verdict,
            "evidence": wanted.evidence,
            "result": wanted.result,
            "accept_code": wanted.accept_code,
            "as_of": job.end - 1,
        }
    )
    found = Commanded(job_id=job.job_id, execution_id=execution_id, verdict=wanted.verdict)
    if who.breaks_glass:
        found = found.model_copy(update={"broke_glass": True})
    tally = resolution_votes.on_parked(state, state.keys[key], who, wanted.verdict, wanted.result)
    if tally is not None:
        return _vote(tally, command, found)
    return Send(command, lambda command_id, event: answers.answers_resolve(command_id, key, event), found)


def call_off(execution_id: str, wanted: ReasonBody, caller: Principal, job: JobSnapshot) -> Decision:
    """Cancel one step; what is under way is settled first."""
    state, found = job.begun, Commanded(job_id=job.job_id, execution_id=execution_id)
    key = _known(answers.key_to_call_off(state, execution_id))
    if state.keys[key].cancel_requested:
        return Stands(found.model_copy(update={"event": "invocation_cancel_requested", "command_id": None}))
    command = CancelContract(
        job_id=job.job_id,
        by=caller.id,
        tenant=caller.tenant,
        execution_id=execution_id,
        reason=wanted.reason,
        as_of=job.end - 1,
    )
    return Send(command, answers.StepCancelled(key).settles, found)


def check_signal(wanted: SignalBody, caller: Principal, job: JobSnapshot) -> None:
    """Whether he may signal it, whatever the payload says: of what is hidden of it nothing is known yet."""
    _check_may_signal(caller, job.begun, wanted.correlation_key)
    _check_is_no_others(job.begun, wanted.correlation_key)
    if wanted.correlation_key not in job.begun.signals:
        answers.signal_received(job.begun, wanted.correlation_key, None, caller.recorded)


def signal(wanted: SignalBody, caller: Principal, job: JobSnapshot) -> Decision:
    """Put a signal into a job's inbox."""
    name, payload = wanted.correlation_key, wanted.payload
    found = Commanded(job_id=job.job_id, correlation_key=name)
    _check_may_signal(caller, job.begun, name)
    _check_is_no_others(job.begun, name)
    stands = answers.signal_received(job.begun, name, payload, caller.recorded)
    if stands is not None:
        return Stands(found.model_copy(update={"event": stands.event_type, "command_id": stands.command_id}))
    command = Signal(
        job_id=job.job_id,
        by=caller.id,
        tenant=caller.tenant,
        principal=caller.recorded,
        correlation_key=name,
        payload=payload,
        as_of=job.end - 1,
    )
    if answers.accepts(job.begun, name):
        tally = resolution_votes.on_confirmation(job.begun, caller.recorded)
        if tally is not None:
            return _vote(tally, command, found)
    return Send(command, lambda _, event: answers.answers_signal(name, payload, event), found)


def _vote(tally: resolution_votes.VoteTally, command: JobCommand, found: Commanded) -> Decision:
    """A word where others must say the same; said again it stands."""
    found = found.model_copy(update={"votes": tally.count})
    if tally.stands:
        return Stands(found.model_copy(update={"event": "resolution_voted"}))
    return Send(command, tally.settles, found)


def _check_may_signal(caller: Principal, job: JobState, correlation_key: str) -> None:
    """Accepting what could not be confirmed is a decision about calls; any other signal steers the job.

    Raises:
        Forbidden: he has not the role for it.
    """
    if answers.accepts(job, correlation_key):
        needed, may = Role.RESOLVE, Role.RESOLVE in caller.roles
    else:
        own = Role.SUBMIT in caller.roles and job.created.submitted_by == caller.id
        needed, may = Role.OPERATE, own or Role.OPERATE in caller.roles
    if not may:
        raise access.missing(needed)


def _check_is_no_others(job: JobState, correlation_key: str) -> None:
    """What is asked of a session is judged where it is asked (`gateway.client_sessions`), and by its own client alone.

    Nor does anybody but its planner say how a job has ended.

    Raises:
        BadRequest.
    """
    if is_end_key(correlation_key):
        raise BadRequestProblem("unknown_key", "correlation_key", "how a child job ends is told by the system alone")
    entry = job.entry(SESSION_NODE)
    if entry is not None and is_session(entry.node) and correlation_key.startswith(session_key("")):
        raise BadRequestProblem("unknown_key", "correlation_key", "a session is asked by /api/sessions")


def _known(key: str | None) -> str:
    if key is None:
        raise NotFoundProblem("unknown_contract", "this job has no such execution contract")
    return key
