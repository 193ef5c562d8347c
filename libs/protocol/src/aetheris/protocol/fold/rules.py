"""Who may run: one fold of a job's records, the same for everyone (docs/guarantees.md, "The log is the lock").

`apply` never looks at event ids, clocks or headers: only at payloads, in log order. What is not listed in the
rules is void and leaves the state as it was. Folding the same prefix gives the same answer everywhere.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from aetheris.protocol.fold.bodies import has_open_calls, may_end, note_start, workflow_accepted
from aetheris.protocol.fold.child_calls import call_planned, edit_entry
from aetheris.protocol.fold.job_waits import wait_completed, waiting, waits_are_over
from aetheris.protocol.fold.reports import is_proved_doubt, is_proved_end
from aetheris.protocol.fold.revisions import planned
from aetheris.protocol.fold.start import UNTOUCHED, why_void
from aetheris.protocol.fold.state import (
    IN_FLIGHT,
    OPEN,
    JobState,
    KeyState,
    KeyStatus,
    Settled,
    StartedInvocation,
)
from aetheris.protocol.fold.workers import HUMAN
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision, Outcome, RejectReason, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectClass


def apply(job: JobState, event: Event, offset: int) -> bool:
    """Fold one event into `job`; whether it changed anything that decides (False: void)."""
    job.last_offset = offset
    rule = _RULES.get(type(event))
    return rule(job, event, offset) if rule is not None else False


def _created(job: JobState, e: ev.JobCreated, offset: int) -> bool:
    return False


def _started(job: JobState, e: ev.ToolInvocationStarted, offset: int) -> bool:
    entry = job.entry(e.node_id)
    if why_void(job, e, entry) is not None:
        _remember_void(job, e)
        return False
    state = job.key(e.idempotency_key, e.node_id)
    if job.void_starts:
        _forget_void(job, e.idempotency_key, e.token)
    state.status, state.current_invocation, state.started = KeyStatus.STARTED, e.invocation_id, e
    state.unresolved |= {e.invocation_id}
    state.invocations[e.invocation_id] = StartedInvocation(e.external_key, e.worker_id, e.incarnation, offset)
    state.in_doubt = state.parked = state.retry_due = None
    job.invocation_keys[e.invocation_id] = e.idempotency_key
    if job.open_waits:
        job.open_waits.pop(("executor", e.node_id), None)
    if job.bodies is not None and entry is not None:
        note_start(job, entry, e)
    if entry is not None and entry.irreversible:
        same = job.keys_by_content.setdefault((e.content_key, e.occurrence), [])
        if e.idempotency_key not in same:
            same.append(e.idempotency_key)
    return True


def _remember_void(job: JobState, e: ev.ToolInvocationStarted) -> None:
    """A repeat of it must not come alive; what no later place could let start needs no memory."""
    state = job.keys.get(e.idempotency_key, UNTOUCHED)
    over = (
        state.status is KeyStatus.SETTLED
        or e.token < state.fencing_token
        or (e.token == state.fencing_token and state.status not in OPEN)
    )
    if over or job.terminal is not None or e.invocation_id in job.invocation_keys:
        return
    known = job.void_starts.get(e.idempotency_key, frozenset[tuple[str, int]]())
    job.void_starts[e.idempotency_key] = known | {(e.invocation_id, e.token)}


def _forget_void(job: JobState, key: str, token: int) -> None:
    """No `started` of this generation of the key, or an earlier one, counts from here on."""
    later = frozenset(void for void in job.void_starts.pop(key, ()) if void[1] > token)
    if later:
        job.void_starts[key] = later


def _finished(job: JobState, e: ev.ToolInvocationFinished, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or state.node_id != e.node_id or not is_proved_end(e):
        return False
    if job.bodies is not None and not may_end(job, e):
        return False
    if state.status is KeyStatus.SETTLED:
        return _after_settlement(job, state, e)
    if e.outcome.took_effect:
        return _succeed(state, e)
    if e.outcome is Outcome.PERMANENT:
        return _fail(state, e)
    return _prove_unexecuted(state, e)


def _succeed(state: KeyState, e: ev.ToolInvocationFinished) -> bool:
    if e.invocation_id not in state.unresolved:
        return False
    _settle(state, Settled.SUCCESS, e, sure=False)
    state.partial = e.outcome is Outcome.COMPENSATABLE
    state.result, state.result_ref, state.result_hash = e.result, e.result_ref, e.output_hash
    state.usage = e.usage
    state.external_id, state.reason = e.external_id, None  # an earlier try's failure is no reason any more
    return True


def _fail(state: KeyState, e: ev.ToolInvocationFinished) -> bool:
    if e.invocation_id != state.current_invocation:
        return False
    if e.via in (Via.EXECUTOR, Via.LATE) and e.invocation_id in state.unresolved:
        sure = state.unresolved == frozenset((e.invocation_id,))
    elif e.via is Via.LEDGER and state.status in (KeyStatus.STARTED, KeyStatus.REOPENED):
        sure = state.status is KeyStatus.REOPENED and not state.unresolved
    elif e.via is Via.HUMAN and state.status is KeyStatus.PARKED:
        sure = False
    else:
        return False
    _settle(state, Settled.FAILED, e, sure=sure)
    state.reason = e.error
    return True


def _prove_unexecuted(state: KeyState, e: ev.ToolInvocationFinished) -> bool:
    """Retryable: only the try itself can say so, where it certainly took no effect."""
    if e.invocation_id not in state.unresolved:
        return False
    state.unresolved -= {e.invocation_id}
    state.uncalled += e.uncalled is True
    if e.invocation_id == state.current_invocation and state.status in (KeyStatus.STARTED, KeyStatus.PARKED):
        _reopen(state)
        state.reason = e.error
        if not state.unresolved:
            state.external_attempt += 1
    return True


def _settle(state: KeyState, outcome: Settled, e: ev.ToolInvocationFinished, *, sure: bool) -> None:
    state.status, state.outcome, state.sure = KeyStatus.SETTLED, outcome, sure
    state.settled_by, state.via = e.invocation_id, e.via


def _reopen(state: KeyState) -> None:
    state.status = KeyStatus.REOPENED
    state.fencing_token += 1


def _after_settlement(job: JobState, state: KeyState, e: ev.ToolInvocationFinished) -> bool:
    """A success from another validly started invocation is evidence of a second effect."""
    invocation = state.invocations.get(e.invocation_id)
    if not e.outcome.took_effect or invocation is None:
        return False
    if state.outcome is Settled.SUCCESS and state.settled_by == e.invocation_id:
        return False
    entry = job.entry(state.node_id)
    if entry is None or entry.effect_class is EffectClass.PURE:
        return False
    settled = state.invocations.get(state.settled_by or "")
    same_key = (
        state.outcome is Settled.SUCCESS and settled is not None and settled.external_key == invocation.external_key
    )
    if (entry.effect_class is EffectClass.IDEMPOTENT and same_key) or e.invocation_id in state.alarms:
        return False
    state.alarms += (e.invocation_id,)
    return True


def _reopened(job: JobState, e: ev.InvocationReopened, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or e.invocation_id != state.current_invocation:
        return False
    if not _may_reopen(job, state, e):
        return False
    _reopen(state)
    if e.by == "human":
        _ask_anew(job, state)
    return True


def _may_reopen(job: JobState, state: KeyState, e: ev.InvocationReopened) -> bool:
    """A person what is parked, the ledger what is started; by a probe also what is parked, if the try can't act."""
    if e.by == "human":
        return state.status is KeyStatus.PARKED
    if state.status is KeyStatus.PARKED and e.by == "probe":
        invocation = state.invocations[e.invocation_id]
        return e.invocation_id in state.returned or (invocation.worker_id, invocation.incarnation) in job.gone
    return state.status is KeyStatus.STARTED


def _ask_anew(job: JobState, state: KeyState) -> None:
    """What was said before holds for what was tried before: a retry by hand may act a second time."""
    entry = job.entry(state.node_id)
    if state.requested is not None:
        state.answered += ((state.requested, state.decision),)
    elif entry is None or not entry.irreversible:
        return
    state.asks, state.requested, state.decision = state.fencing_token, None, None
    state.votes, state.allowed = (), ()


def _parked(job: JobState, e: ev.InvocationParked, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or e.invocation_id != state.current_invocation or state.status is not KeyStatus.STARTED:
        return False
    state.status, state.parked, state.resolutions = KeyStatus.PARKED, e, ()
    return True


def _resolution_voted(job: JobState, e: ev.ResolutionVoted, offset: int) -> bool:
    """Kept for who counts them; what is said again by the same name is void."""
    if e.verdict == "accepted":
        waiting = job.open_waits.get(("confirmation", None))
        if waiting is None or waiting.correlation_key != e.correlation_key or _has_accepted(job, e):
            return False
        job.acceptances += (e,)
        return True
    state = job.keys.get(e.idempotency_key or "")
    parked = state is not None and state.status is KeyStatus.PARKED and state.node_id == e.node_id
    if state is None or not parked or e.invocation_id != state.current_invocation or not _is_news(state, e):
        return False
    state.resolutions += ((offset, e),)
    return True


def _has_accepted(job: JobState, e: ev.ResolutionVoted) -> bool:
    return any((vote.by, vote.correlation_key) == (e.by, e.correlation_key) for vote in job.acceptances)


def _is_news(state: KeyState, e: ev.ResolutionVoted) -> bool:
    """Whether it is another word than his last one, and said behind that: a repeat of one that he took back is not."""
    offset, last = state.last_word(e.by)
    is_other = last is None or (last.verdict, last.output_hash) != (e.verdict, e.output_hash)
    return is_other and e.as_of is not None and e.as_of >= offset


def _rejected(job: JobState, e: ev.InvocationRejected, offset: int) -> bool:
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or state.status not in OPEN:
        return False
    overrules_yes = e.reason in (RejectReason.APPROVAL, RejectReason.EDITED, RejectReason.EXPIRED)
    if overrules_yes and state.decision is not None and state.decision.decision is Decision.APPROVE:
        return False
    if job.bodies is not None and has_open_calls(job, e.node_id):
        return False
    state.status, state.outcome, state.sure = KeyStatus.SETTLED, Settled.REJECTED, not state.unresolved
    state.reason, state.detail, state.duplicate_of, state.rejected_by = str(e.reason), e.detail, e.duplicate_of, e.by
    job.void_starts.pop(e.idempotency_key, None)
    waits_are_over(job, e.node_id)
    return True


def _allowed(job: JobState, e: ev.PolicyAllowed, offset: int) -> bool:
    """Before the first try: it says who decides about the call, and nobody changes that while the call is in flight."""
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or state.needs_yes or state.invocations or state.allowed_as(e.tool_version):
        return False
    state.allowed += (e,)
    return True


def _approval_requested(job: JobState, e: ev.ApprovalRequested, offset: int) -> bool:
    """Before the try that it asks about: what has started needs no answer, and could not wait for one."""
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or state.requested is not None or e.generation != state.asks:
        return False
    if state.status not in OPEN or state.fencing_token != state.asks:
        return False
    state.requested = e
    return True


def _voted(job: JobState, e: ev.ApprovalVoted, offset: int) -> bool:
    """Kept for who counts them; what may start follows from decisions alone."""
    state = job.keys.get(e.idempotency_key)
    if state is None or state.node_id != e.node_id or state.requested is None or state.decision is not None:
        return False
    said = (e.approver, e.signature)
    if e.generation != state.asks or any((vote.approver, vote.signature) == said for vote in state.votes):
        return False
    state.votes += (e,)
    return True


def _decided(job: JobState, e: ev.ApprovalDecided, offset: int) -> bool:
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or state.decision is not None or e.generation != state.asks:
        return False
    state.decision = e
    job.open_waits.pop(("approval", e.node_id), None)
    if e.decision is Decision.EDIT and e.data is not None and state.status is KeyStatus.NONE:
        edit_entry(job, e.node_id, e.data, e.idempotency_key)
    return True


def _in_doubt(job: JobState, e: ev.InvocationInDoubt, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or e.invocation_id not in state.invocations or not is_proved_doubt(e):
        return False
    reported = e.returned and e.invocation_id not in state.returned
    if reported:
        state.returned |= {e.invocation_id}
    if (
        state.status is not KeyStatus.STARTED
        or state.current_invocation != e.invocation_id
        or state.in_doubt is not None
    ):
        return reported
    state.in_doubt = e.error_class
    return True


def _probed(job: JobState, e: ev.InvocationProbed, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or e.invocation_id not in state.invocations:
        return False
    state.probes += ((offset, e),)
    return True


def _cancel_asked(job: JobState, e: ev.InvocationCancelRequested, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or state.status not in IN_FLIGHT or state.cancel_requested:
        return False
    state.cancel_requested = True
    return True


def _retry_scheduled(job: JobState, e: ev.RetryScheduled, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or state.status is not KeyStatus.REOPENED:
        return False
    if state.current_invocation != e.invocation_id or state.retry_due is not None:
        return False
    state.retry_due = e.due_at
    return True


def _worker_ended(job: JobState, e: ev.WorkerEnded, offset: int) -> bool:
    who = (e.worker_id, e.incarnation)
    own_word = e.how == HUMAN and e.by in (None, job.created.submitted_by)
    if who in job.gone or (own_word and who in job.ended_workers):
        return False
    job.ended_workers.setdefault(who, offset)
    if not own_word:
        job.gone.add(who)
    return True


def _node_finished(job: JobState, e: ev.NodeFinished, offset: int) -> bool:
    earlier = job.finished.get(e.node_id)
    if earlier is not None and not (e.result_type == "compensated" and earlier.result_type != "compensated"):
        return False
    job.finished[e.node_id] = e
    return True


def _cancel(job: JobState, e: ev.CancelRequested, offset: int) -> bool:
    if job.cancel is not None:
        return False
    job.cancel, job.paused = e, None  # what a cancel undoes goes on
    return True


def _paused(job: JobState, e: ev.JobPaused, offset: int) -> bool:
    """The next one by its number: one that is written late, or again, is void."""
    if job.terminal is not None or job.cancel is not None or job.paused is not None or e.number != job.pauses + 1:
        return False
    job.paused, job.pauses = e, e.number
    return True


def _resumed(job: JobState, e: ev.JobResumed, offset: int) -> bool:
    if job.paused is None or e.number != job.paused.number:
        return False
    job.paused = None
    return True


def _frozen(job: JobState, e: ev.JobFrozen, offset: int) -> bool:
    """The next one of its scope by its number: one that is written late, or again, is void."""
    concerned = e.scope.concerns(job.created.tenant, job.created.submitted_by)
    if job.terminal is not None or not concerned or e.number <= job.freezes.get(e.scope, 0):
        return False
    job.frozen[e.scope], job.freezes[e.scope] = e, e.number
    return True


def _unfrozen(job: JobState, e: ev.JobUnfrozen, offset: int) -> bool:
    freeze = job.frozen.get(e.scope)
    if freeze is None or e.number != freeze.number or (e.ordered is not None and e.ordered >= e.number):
        return False
    del job.frozen[e.scope]
    if e.ordered is not None:
        job.freezes[e.scope] = e.ordered
    return True


def _stopping(job: JobState, e: ev.JobStopping, offset: int) -> bool:
    if job.stopping is not None and job.stopping.up_to_revision >= e.up_to_revision:
        return False
    job.stopping = e
    return True


def _terminal(job: JobState, e: Event, offset: int) -> bool:
    if job.terminal is not None:
        return False
    job.terminal, job.paused = e, None
    job.frozen.clear()
    return True


def _signalled(job: JobState, e: ev.SignalReceived, offset: int) -> bool:
    if e.correlation_key in job.signals:
        return False
    job.signals[e.correlation_key] = e
    return True


def _revoked(job: JobState, e: ev.KeyRevoked, offset: int) -> bool:
    """What the key signs behind it is judged before it gets here (`fold.provenance`)."""
    if job.created.installation is None or e.key_id in job.revoked:
        return False
    job.revoked |= {e.key_id}
    return True


def _repeated(job: JobState, e: ev.BirthRepeated, offset: int) -> bool:
    """Who took a repeat for the birth, long after the seal, forgets the job again."""
    if job.sealed or e.birth >= job.creation_offset:
        return False
    job.sealed = True
    return True


def _sealed(job: JobState, e: ev.JobSealed, offset: int) -> bool:
    if job.sealed:
        return False
    job.sealed = True
    return True


_Rule = Callable[[JobState, Any, int], bool]

_RULES: Mapping[type[Event], _Rule] = cast(
    "Mapping[type[Event], _Rule]",
    {
        ev.JobCreated: _created,
        ev.PlanGenerated: planned,
        ev.CallPlanned: call_planned,
        ev.WorkflowAccepted: workflow_accepted,
        ev.ToolInvocationStarted: _started,
        ev.ToolInvocationFinished: _finished,
        ev.InvocationReopened: _reopened,
        ev.InvocationParked: _parked,
        ev.InvocationRejected: _rejected,
        ev.PolicyAllowed: _allowed,
        ev.ApprovalRequested: _approval_requested,
        ev.ApprovalVoted: _voted,
        ev.ApprovalDecided: _decided,
        ev.ResolutionVoted: _resolution_voted,
        ev.InvocationInDoubt: _in_doubt,
        ev.InvocationProbed: _probed,
        ev.InvocationCancelRequested: _cancel_asked,
        ev.RetryScheduled: _retry_scheduled,
        ev.WorkerEnded: _worker_ended,
        ev.NodeFinished: _node_finished,
        ev.CancelRequested: _cancel,
        ev.JobPaused: _paused,
        ev.JobResumed: _resumed,
        ev.JobFrozen: _frozen,
        ev.JobUnfrozen: _unfrozen,
        ev.JobStopping: _stopping,
        ev.JobCompleted: _terminal,
        ev.JobFailed: _terminal,
        ev.JobCancelled: _terminal,
        ev.JobWaiting: waiting,
        ev.WaitCompleted: wait_completed,
        ev.SignalReceived: _signalled,
        ev.JobSealed: _sealed,
        ev.KeyRevoked: _revoked,
        ev.BirthRepeated: _repeated,
    },
)

UNREAD: frozenset[bytes] = frozenset(
    f"io.aetheris.{name}.v1".encode() for name, kind in ev.EVENTS.items() if kind not in _RULES
)
"""The ce_type of facts that no rule reads: whoever only folds may leave them unparsed."""
