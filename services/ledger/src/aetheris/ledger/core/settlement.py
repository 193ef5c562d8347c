"""The events that the ledger writes about a key, as groups; every one names the invocation it judges."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from aetheris.ledger.core.decisions import Emit, IdentifiedEvent
from aetheris.ledger.core.live_jobs import WorkerLife
from aetheris.protocol.base import recordable
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.base.words import TryWord, is_word_of
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus
from aetheris.protocol.fold.workers import Ended
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import CancelContract, JobCommand, Resolve
from aetheris.protocol.messages.event_values import BlobRef, DuplicateOf, Observed, Outcome, RejectReason, Via
from aetheris.protocol.messages.events import Event

MAX_STORED_BYTES = 512 * 1024
"""Of an effect in the store: no executor leaves more."""

CANCELLED = RejectReason.CANCELLED.value
"""The error of a call that ended because it was cancelled: whether it took effect is told by `sure`."""


@dataclass(slots=True)
class JobKey:
    """A key of a job, and its state."""

    job: JobState
    key: str
    state: KeyState

    @property
    def invocation_id(self) -> str:
        """The invocation_id in charge."""
        return self.state.current_invocation or ""

    @property
    def started(self) -> ev.ToolInvocationStarted:
        """The `started` in charge; only a key that never started has none."""
        if self.state.started is None:
            raise LookupError("the key never started")
        return self.state.started


class StoredEffect(BaseModel):
    """What an executor left in the effect store: the payloads that it was about to append."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    finished: ev.ToolInvocationFinished
    committed: ev.CommandCommitted
    changed: ev.StateChanged | None = None


def written(event: Event, *cause: str) -> IdentifiedEvent:
    """An event under the id that follows from its cause: a writer that repeats itself repeats the id."""
    return IdentifiedEvent(event_id(event.job_id, event.event_type, *cause), event)


def emit(job_key: JobKey, *events: IdentifiedEvent, blobs: tuple[bytes, ...] = ()) -> Emit:
    """One atomic group about a key."""
    return Emit(job_key.job.job_id, events, job_key.key, blobs)


def stored_effect(job_key: JobKey, invocation_id: str, value: bytes) -> StoredEffect | None:
    """What the effect store has for an invocation; None where it isn't, whole, what this one would have appended.

    The store is believed in nothing: what the fold would not take, or nobody could read, is as if it were not there.
    """
    if len(value) > MAX_STORED_BYTES:
        return None
    try:
        effect = StoredEffect.model_validate_json(value)
    except ValidationError:
        return None
    return effect if _is_of(effect, job_key, invocation_id) and _is_whole(effect.finished) else None


def _is_of(effect: StoredEffect, job_key: JobKey, invocation_id: str) -> bool:
    """Whether all of it is about this try, whose word it has; what a try itself never writes may not be in it."""
    finished, committed, changed = effect.finished, effect.committed, effect.changed
    place = (job_key.job.job_id, job_key.state.node_id)
    if (finished.job_id, finished.node_id, finished.idempotency_key, finished.invocation_id) != (
        *place,
        job_key.key,
        invocation_id,
    ):
        return False
    if (committed.job_id, committed.node_id, committed.idempotency_key) != (*place, job_key.key):
        return False
    if changed is not None and (changed.job_id, changed.node_id) != place:
        return False
    if (committed.command_id, committed.kind) != (job_key.state.node_id, job_key.started.kind):
        return False
    if (committed.input_hash, committed.output_hash) != (job_key.started.args_hash, finished.output_hash):
        return False
    foreign = (finished.via is not Via.EXECUTOR, finished.by, finished.evidence, finished.error)
    return not any(foreign) and is_word_of(invocation_id, TryWord.EFFECT, finished.word)


def _is_whole(finished: ev.ToolInvocationFinished) -> bool:
    """Whether it is a success with just the result that it names."""
    if not finished.outcome.took_effect or (finished.external_id or "") != recordable.name(finished.external_id or ""):
        return False
    if finished.result_ref is not None:
        return finished.result is None and finished.result_ref.sha256 == finished.output_hash
    result, data = recordable.result(finished.result)
    same = result is finished.result and hashlib.sha256(data).hexdigest() == finished.output_hash
    return same and len(data) <= recordable.INLINE_LIMIT


def catch_up(job_key: JobKey, effect: StoredEffect) -> Emit:
    """finished + command_committed (+ state_changed) as the lost try would have appended them, with its word."""
    invocation_id = effect.finished.invocation_id
    finished = effect.finished.model_copy(update={"via": Via.CATCH_UP})
    events = [
        written(finished, invocation_id, Via.CATCH_UP, finished.outcome),
        written(effect.committed, invocation_id, Via.CATCH_UP),
    ]
    if effect.changed is not None:
        events.append(written(effect.changed, invocation_id, Via.CATCH_UP))
    return emit(job_key, *events)


def found(job_key: JobKey, invocation_id: str, probed: ev.InvocationProbed) -> Emit:
    """What a probe found settles the try whose external key it was found under."""
    evidence = {"ask": probed.ask, "found": list(recordable.evidence(probed.evidence))}
    external_id = None if probed.external_id is None else recordable.name(probed.external_id)
    extra = {"external_id": external_id, "evidence": evidence}
    settled = _happened(
        job_key, invocation_id, Via.PROBE, _Result(probed.result, probed.result_ref), cause=probed.ask, extra=extra
    )
    if not probed.changes:
        return settled
    changed = ev.StateChanged(job_id=job_key.job.job_id, node_id=job_key.state.node_id, changes=probed.changes)
    return replace(settled, events=(*settled.events, written(changed, invocation_id, Via.PROBE, probed.ask)))


def happened(job_key: JobKey, command: Resolve, command_id: str) -> Emit:
    """A human says that the call took effect."""
    extra = {**_said(command), "evidence": command.evidence, "caused_by": command_id}
    return _happened(job_key, job_key.invocation_id, Via.HUMAN, _Result(command.result), cause=command_id, extra=extra)


def result_as_recorded(command: Resolve) -> tuple[dict[str, Any], str, tuple[bytes, ...]]:
    """(the fields that say what a human says it came to, its hash, the blob to store before)."""
    return _Result(command.result).recorded()


def by_votes(job_key: JobKey, words: Sequence[ev.ResolutionVoted]) -> Emit:
    """As many have said the same of a parked call as must: that ends it, with the last one's evidence."""
    last = words[-1]
    body: dict[str, Any] = {"by": last.by, "principal": last.principal, "evidence": last.evidence}
    body |= {"caused_by": last.caused_by, "votes": tuple(word.by for word in words)}
    if last.verdict == "happened":
        result = _Result(last.result, last.result_ref)
        return _happened(job_key, job_key.invocation_id, Via.HUMAN, result, cause="votes", extra=body)
    event = _finished(
        job_key, job_key.invocation_id, Outcome.PERMANENT, Via.HUMAN, {**body, "error": "resolved as not executed"}
    )
    return emit(job_key, written(event, job_key.invocation_id, Via.HUMAN, Outcome.PERMANENT, "votes"))


def not_executed(job_key: JobKey, command: Resolve, command_id: str) -> Emit:
    """A human says that it didn't; the fold keeps it as not sure."""
    body = {**_said(command), "evidence": command.evidence, "caused_by": command_id}
    event = _finished(
        job_key, job_key.invocation_id, Outcome.PERMANENT, Via.HUMAN, {**body, "error": "resolved as not executed"}
    )
    return emit(job_key, written(event, job_key.invocation_id, Via.HUMAN, Outcome.PERMANENT, command_id))


def _said(command: JobCommand) -> dict[str, Any]:
    """Who says it, as it is recorded."""
    return {"by": command.by, "principal": command.recorded_principal}


def cancelled(job_key: JobKey, cancel: ev.CancelRequested) -> Emit:
    """Nobody waits any more for what became of a parked call: it may have taken effect."""
    body = {"by": cancel.by, "evidence": {"effect": "possible"}, "caused_by": cancel.caused_by}
    event = _finished(job_key, job_key.invocation_id, Outcome.PERMANENT, Via.HUMAN, {**body, "error": CANCELLED})
    return emit(job_key, written(event, job_key.invocation_id, Via.HUMAN, Outcome.PERMANENT, "cancelled"))


def failed(job_key: JobKey, error: str, *before: IdentifiedEvent) -> Emit:
    """The ledger gives up."""
    event = _finished(job_key, job_key.invocation_id, Outcome.PERMANENT, Via.LEDGER, {"error": error})
    return emit(job_key, *before, written(event, job_key.invocation_id, Via.LEDGER, Outcome.PERMANENT))


def reopened(
    job_key: JobKey,
    by: Literal["probe", "policy", "human"],
    evidence: tuple[Any, ...],
    *before: IdentifiedEvent,
    caused_by: str | None = None,
    principal: RecordedPrincipal | None = None,
) -> Emit:
    """The key is free for another try."""
    event = ev.InvocationReopened(
        job_id=job_key.job.job_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        invocation_id=job_key.invocation_id,
        next_token=job_key.state.fencing_token + 1,
        by=by,
        principal=principal,
        evidence=evidence,
        caused_by=caused_by,
    )
    return emit(job_key, *before, written(event, job_key.invocation_id, by))


def retry_by_hand(job_key: JobKey, command: Resolve, command_id: str) -> Emit:
    """A human wants another try."""
    evidence = ({"by": command.by, "evidence": command.evidence},)
    accepted = (_accepted(job_key, command, command.accept_code, command_id),) if command.accept_code else ()
    who = command.recorded_principal
    return reopened(job_key, "human", evidence, *accepted, caused_by=command_id, principal=who)


def _accepted(job_key: JobKey, command: Resolve, code_hash: str, command_id: str) -> IdentifiedEvent:
    """Code of this hash need not ask for what the parked body has said that it does not ask for."""
    event = ev.WorkflowAccepted(
        job_id=job_key.job.job_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        invocation_id=job_key.invocation_id,
        code_hash=code_hash,
        waives=tuple(_unasked(job_key.state)),
        by=command.by,
        principal=command.recorded_principal,
        evidence=command.evidence,
        caused_by=command_id,
    )
    return written(event, job_key.invocation_id, code_hash, command_id)


def _unasked(state: KeyState) -> Iterator[str]:
    """The calls that a body which has diverged has made before, and does not ask for any more."""
    for said in state.parked.evidence if state.parked is not None else ():
        named = cast("dict[str, Any]", said).get("unasked") if isinstance(said, dict) else None
        yield from (one for one in cast("list[Any]", named) if isinstance(one, str)) if isinstance(named, list) else ()


def parked(job_key: JobKey, reason: str, evidence: tuple[Any, ...], *before: IdentifiedEvent) -> Emit:
    """Nobody but a human can tell."""
    event = ev.InvocationParked(
        job_id=job_key.job.job_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        invocation_id=job_key.invocation_id,
        reason=reason,
        evidence=evidence,
    )
    return emit(job_key, *before, written(event, job_key.invocation_id))


def in_doubt(job_key: JobKey, cause: str) -> tuple[IdentifiedEvent, ...]:
    """The first word that a try is in doubt; nothing where its executor or an earlier ledger said so."""
    if job_key.state.in_doubt is not None:
        return ()
    event = ev.InvocationInDoubt(
        job_id=job_key.job.job_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        invocation_id=job_key.invocation_id,
        error_class=cause,
    )
    return (written(event, job_key.invocation_id, "ledger"),)


def retry_scheduled(job_key: JobKey, due_at: str) -> Emit:
    """The next try has a time."""
    event = ev.RetryScheduled(
        job_id=job_key.job.job_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        invocation_id=job_key.invocation_id,
        attempt=job_key.state.attempt_count + 1,
        due_at=due_at,
    )
    return emit(job_key, written(event, job_key.invocation_id))


def cancel_asked(job_key: JobKey, command: CancelContract, command_id: str) -> Emit:
    """A human wants no further try; the one under way is settled first."""
    event = ev.InvocationCancelRequested(
        job_id=job_key.job.job_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        by=command.by,
        reason=command.reason,
        caused_by=command_id,
    )
    return emit(job_key, written(event, job_key.key))


def called_off(job_key: JobKey, command: CancelContract, command_id: str) -> Emit:
    """A human cancels what waits: a call that was asked for never starts, one in doubt is left as it is."""
    if job_key.state.status is KeyStatus.NONE:
        event = ev.InvocationRejected(
            job_id=job_key.job.job_id,
            node_id=job_key.state.node_id,
            idempotency_key=job_key.key,
            reason=RejectReason.CANCELLED,
            detail=command.reason or f"by {command.by}",
            caused_by=command_id,
        )
        return emit(job_key, written(event, job_key.key, RejectReason.CANCELLED, command_id))
    body = {"by": command.by, "evidence": command.reason, "caused_by": command_id, "error": CANCELLED}
    finished = _finished(job_key, job_key.invocation_id, Outcome.PERMANENT, Via.HUMAN, body)
    return emit(job_key, written(finished, job_key.invocation_id, Via.HUMAN, Outcome.PERMANENT, command_id))


def rejected(
    job_key: JobKey,
    reason: RejectReason,
    detail: str,
    duplicate_of: DuplicateOf | None = None,
    *,
    observed: tuple[Observed, ...] = (),
    by_policy: Mapping[str, Any] | None = None,
) -> Emit:
    """The call is not to start; `by_policy` names the policy, where that says so."""
    event = ev.InvocationRejected(
        job_id=job_key.job.job_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        reason=reason,
        detail=detail,
        duplicate_of=duplicate_of,
        observed=observed or None,
        **(by_policy or {}),
    )
    return emit(job_key, written(event, job_key.key, reason))


def worker_ended(job_id: str, life: WorkerLife, end: Ended) -> Emit:
    """A worker that started keys of this job can act no more."""
    worker_id, incarnation = life
    event = ev.WorkerEnded(
        job_id=job_id,
        worker_id=worker_id,
        incarnation=incarnation,
        how=end.how,
        by=end.by,
        principal=end.principal,
        evidence=end.evidence,
    )
    return Emit(job_id, (written(event, worker_id, incarnation),))


@dataclass(frozen=True, slots=True)
class _Result:
    """A result as it was said: itself, or by reference where who said it has stored it."""

    value: Any
    ref: BlobRef | None = None

    def recorded(self) -> tuple[dict[str, Any], str, tuple[bytes, ...]]:
        """(the fields that say it, its hash, the blob to store before)."""
        if self.ref is not None:
            return {"result_ref": self.ref}, self.ref.sha256, ()
        value, data = recordable.result(self.value)
        output_hash = hashlib.sha256(data).hexdigest()
        if len(data) <= recordable.INLINE_LIMIT:
            return {"result": value}, output_hash, ()
        return {"result_ref": BlobRef(sha256=output_hash, size=len(data))}, output_hash, (data,)


def _happened(
    job_key: JobKey, invocation_id: str, via: Via, result: _Result, *, cause: str, extra: dict[str, Any]
) -> Emit:
    kept, output_hash, blobs = result.recorded()
    finished = _finished(job_key, invocation_id, Outcome.SUCCESS, via, {**kept, "output_hash": output_hash, **extra})
    committed = ev.CommandCommitted(
        job_id=job_key.job.job_id,
        node_id=job_key.state.node_id,
        command_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        kind=job_key.started.kind,
        input_hash=job_key.started.args_hash,
        output_hash=output_hash,
        caused_by=finished.caused_by,
    )
    return emit(
        job_key,
        written(finished, invocation_id, via, Outcome.SUCCESS, cause),
        written(committed, invocation_id, via, cause),
        blobs=blobs,
    )


def _finished(
    job_key: JobKey, invocation_id: str, outcome: Outcome, via: Via, rest: dict[str, Any]
) -> ev.ToolInvocationFinished:
    return ev.ToolInvocationFinished(
        job_id=job_key.job.job_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        invocation_id=invocation_id,
        outcome=outcome,
        via=via,
        **rest,
    )
