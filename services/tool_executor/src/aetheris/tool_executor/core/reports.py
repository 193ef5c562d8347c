"""What a try reports, as events, each with its word: refused, ended, in doubt (docs/events.md); pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from aetheris.protocol.base import recordable
from aetheris.protocol.base.words import TryWord, TryWords
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import BlobRef, Outcome, Via, changes_of
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectClass
from aetheris.sdk.outcomes import InDoubt, Permanent, Retryable, Succeeded
from aetheris.tool_executor.core.tries import CallRefusal, DeclaredInvocation

NOT_EXECUTED = "NotExecuted"
BODY_LOST = "body_lost"
"""The error class of a body whose process has died, or was ended because it said nothing."""
DIVERGED = "diverged"
"""The error class of a body that has not asked for what is recorded."""


def succeeded(
    invocation: DeclaredInvocation, outcome: Succeeded, output_hash: str, result: Any = None, ref: BlobRef | None = None
) -> tuple[Event, ...]:
    """finished + command_committed (+ state_changed): one group."""
    started = invocation.started
    finished = ev.ToolInvocationFinished(
        job_id=started.job_id,
        node_id=started.node_id,
        idempotency_key=started.idempotency_key,
        invocation_id=started.invocation_id,
        outcome=Outcome.COMPENSATABLE if outcome.partial else Outcome.SUCCESS,
        via=Via.EXECUTOR,
        result=result,
        result_ref=ref,
        output_hash=output_hash,
        external_id=None if outcome.external_id is None else recordable.name(outcome.external_id),
        usage=dict(outcome.usage) if outcome.usage is not None else None,
        frontier=invocation.frontier,
        word=invocation.words.word(TryWord.EFFECT),
    )
    committed = ev.CommandCommitted(
        job_id=started.job_id,
        node_id=started.node_id,
        command_id=started.node_id,
        idempotency_key=started.idempotency_key,
        kind=started.kind,
        input_hash=started.args_hash,
        output_hash=output_hash,
    )
    if not outcome.changes:
        return finished, committed
    changed = ev.StateChanged(
        job_id=started.job_id,
        node_id=started.node_id,
        changes=changes_of(change.payload() for change in outcome.changes),
    )
    return finished, committed, changed


def _failed(
    started: ev.ToolInvocationStarted, words: TryWords, outcome: Outcome, error: str
) -> ev.ToolInvocationFinished:
    """finished, for an outcome that took no effect."""
    return ev.ToolInvocationFinished(
        job_id=started.job_id,
        node_id=started.node_id,
        idempotency_key=started.idempotency_key,
        invocation_id=started.invocation_id,
        outcome=outcome,
        via=Via.EXECUTOR,
        error=recordable.text(error),
        word=words.word(TryWord.NO_EFFECT),
    )


def refused(invocation: DeclaredInvocation, refusal: CallRefusal) -> ev.ToolInvocationFinished:
    """The call is not made, although it might start."""
    return _failed(invocation.started, invocation.words, refusal.outcome, refusal.error)


def not_executed(started: ev.ToolInvocationStarted, words: TryWords, reason: str) -> ev.ToolInvocationFinished:
    """This try certainly took no effect: it was never run."""
    finished = _failed(started, words, Outcome.RETRYABLE, f"{NOT_EXECUTED}: {reason}")
    return finished.model_copy(update={"uncalled": True})


def in_doubt(invocation: DeclaredInvocation, error_class: str, *, returned: bool) -> ev.InvocationInDoubt:
    """Nobody here knows; no outcome. `returned`: the call can act no more from here."""
    started = invocation.started
    return ev.InvocationInDoubt(
        job_id=started.job_id,
        node_id=started.node_id,
        idempotency_key=started.idempotency_key,
        invocation_id=started.invocation_id,
        error_class=recordable.text(error_class),
        returned=returned,
        word=invocation.words.word(TryWord.NO_MORE if returned else TryWord.IN_DOUBT),
    )


def stopped(invocation: DeclaredInvocation, reason: str, until: tuple[str, ...] = ()) -> ev.ToolInvocationFinished:
    """A body goes on no more; its try took no effect, whatever calls did. It begins anew when one of these settles.

    Without any: at once.
    """
    said = _failed(invocation.started, invocation.words, Outcome.RETRYABLE, reason)
    return said.model_copy(update={"until": until})


def body_lost(invocation: DeclaredInvocation, reason: str) -> ev.InvocationInDoubt:
    """A body is gone, and may be lost again at the same place: how often it begins anew is for the ledger to say."""
    said = in_doubt(invocation, BODY_LOST, returned=False)
    return said.model_copy(update={"evidence": ({"why": recordable.text(reason)},)})


def diverged(invocation: DeclaredInvocation, evidence: Mapping[str, Any]) -> ev.InvocationInDoubt:
    """A body has not asked for what is recorded, or for something else under its id: a human decides."""
    said = in_doubt(invocation, DIVERGED, returned=True)
    return said.model_copy(update={"evidence": (dict(evidence),)})


def lost(invocation: DeclaredInvocation, error_class: str, *, returned: bool = False) -> Event:
    """What it came to is not known: to be tried again where it only read, else in doubt."""
    if invocation.call.entry.effect_class is EffectClass.PURE:
        return _failed(invocation.started, invocation.words, Outcome.RETRYABLE, error_class)
    return in_doubt(invocation, error_class, returned=returned)


def unsuccessful(invocation: DeclaredInvocation, outcome: Retryable | Permanent | InDoubt) -> Event:
    """What a call that did not succeed says of its try."""
    match outcome:
        case Retryable(reason):
            return _failed(invocation.started, invocation.words, Outcome.RETRYABLE, reason)
        case Permanent(reason):
            failed = _failed(invocation.started, invocation.words, Outcome.PERMANENT, reason)
            return (
                failed if invocation.frontier is None else failed.model_copy(update={"frontier": invocation.frontier})
            )
        case InDoubt(error_class, returned):
            return lost(invocation, error_class, returned=returned)


def cause_of(events: Sequence[Event]) -> Sequence[str]:
    """What tells the ids of one try's events apart from those of other tries: invocation_id, writer, outcome.

    What goes with a finished (committed, changed) names no invocation_id itself: its cause is that of the first.
    """
    first = events[0]
    if isinstance(first, ev.ToolInvocationFinished):
        return (first.invocation_id, first.via, first.outcome)
    if isinstance(first, ev.ToolInvocationStarted | ev.InvocationInDoubt):
        return (first.invocation_id, "executor")
    if isinstance(first, ev.CallPlanned):
        return (first.invocation_id, first.node_id)
    raise TypeError(f"{first.event_type} is no try's first event")


def effect_value(values: Sequence[bytes]) -> bytes:
    """What the effect store keeps of a success: the payloads that its catch-up repeats.

    {"finished": tool_invocation_finished, "committed": command_committed, "changed": state_changed (if any)}
    """
    names = (b"finished", b"committed", b"changed")
    return b"{" + b",".join(b'"%b":%b' % pair for pair in zip(names, values, strict=False)) + b"}"
