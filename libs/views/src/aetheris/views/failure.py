"""Why a job failed or was cancelled, in a sentence: which step and call, what was said of it, what can be done."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aetheris.protocol.fold.state import JobState, KeyState, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import RejectReason, Via
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.planning.outcome import HasEffect, has_effect

_REFUSED: Mapping[str, str] = {
    RejectReason.POLICY: "was refused by the policy",
    RejectReason.DUPLICATE_OF: "was refused, as it repeats another call",
    RejectReason.APPROVAL: "was rejected",
    RejectReason.APPROVAL_MISMATCH: "was refused, as it is not what was approved",
    RejectReason.EDITED: "was replaced by an edit",
    RejectReason.EXPIRED: "was not answered in time",
    RejectReason.CANCELLED: "was cancelled before it started",
    RejectReason.BUDGET: "was refused, as the budget does not allow it",
    RejectReason.CONFIRMATION: "did not start, as what it builds on could not be confirmed",
}


@dataclass(frozen=True, slots=True)
class _Left:
    """What an ended job left behind beside its successes; what was undone is in neither list."""

    doubted: Sequence[KeyState]
    """The calls of which nobody knows whether they took effect."""
    belied: Sequence[str]
    """What took effect all the same, as a late report says."""
    partly: Sequence[str]
    undone: Sequence[str]

    def clauses(self) -> Iterator[str]:
        if self.doubted:
            names = dict.fromkeys(state.node_id for state in self.doubted)
            yield f"whether {', '.join(names)} took effect is not known"
        if self.belied:
            yield f"{', '.join(self.belied)} took effect all the same"
        if self.partly:
            yield f"{', '.join(self.partly)} took effect in part"
        if self.undone:
            yield f"undone: {', '.join(self.undone)}"


def failure_in_words(job: JobState) -> str | None:
    """The sentence; None for a job that has not failed and was not cancelled."""
    match job.terminal:
        case ev.JobFailed() as end:
            clauses = list(_failed(job, end))
        case ev.JobCancelled() as end:
            clauses = [f"cancelled by {end.by}: {end.reason}" if end.reason else f"cancelled by {end.by}"]
        case _:
            return None
    left = _left(job, end.compensated or ())
    text = " ".join("; ".join([*clauses, *left.clauses()]).split())
    now = _now(job, left)
    return f"{text}. {now}" if now else text


def unknown(job: JobState) -> str | None:
    """A call of an ended job that failed without anybody's word on whether it took effect."""
    for state in job.keys.values():
        entry = job.entry(state.node_id)
        by_nobody = state.outcome is Settled.REJECTED or (state.outcome is Settled.FAILED and state.via is Via.LEDGER)
        unsure = by_nobody and not state.sure
        if unsure and not state.alarms and entry is not None and entry.effect_class is not EffectClass.PURE:
            return f"{state.node_id} failed without being sure: whether it took effect is not known"
    return None


def _failed(job: JobState, end: ev.JobFailed) -> Iterator[str]:
    """The step that the job failed for, and what its end says beside that."""
    entry = job.entry(end.node_id) if end.node_id is not None else None
    settled = job.settled_key(end.node_id) if end.node_id is not None else None
    if entry is None or settled is None or settled[1].outcome is Settled.SUCCESS:
        yield f"{end.node_id} failed: {end.error}" if entry is not None else end.error
        return
    state = settled[1]
    reason = state.reason or "failed"
    if not end.error.startswith(reason):
        yield end.error
    yield _ended(state, entry)
    if end.error.startswith(f"{reason}; "):
        yield end.error.removeprefix(f"{reason}; ")
    if entry.effect_class is not EffectClass.PURE and not (state.alarms or _in_question(entry, state)):
        yield "it took no effect"


def _ended(state: KeyState, entry: PlanEntry) -> str:
    """What became of a step's call that did not succeed."""
    node_id = state.node_id
    if state.outcome is Settled.REJECTED:
        refused = _REFUSED.get(state.reason or "", state.reason)
        return f"{node_id} ({entry.node.tool_name}) {refused}{_of_whom(state)}"
    if state.via is Via.HUMAN and state.reason == RejectReason.CANCELLED:
        return f"{node_id} ({_call(state, entry)}) was cancelled by a human while it was in doubt"
    if state.via is Via.HUMAN:
        return f"{node_id} ({_call(state, entry)}) was not executed, as a human found out"
    text = state.reason or "it failed"
    if state.via is Via.LEDGER:
        return f"{node_id} ({_call(state, entry)}) was given up: {text}"
    return f"{node_id} failed: {_call(state, entry)} said: {text}"


def _of_whom(state: KeyState) -> str:
    """Who said no, or what was done already, and the words that came with it."""
    if state.duplicate_of is not None:
        return f" ({state.duplicate_of.node_id} of {state.duplicate_of.job_id})"
    if state.reason == RejectReason.APPROVAL and state.decision is not None:
        return f" by {state.decision.approver}{_words(state.decision.comment)}"
    who = f" by {state.rejected_by}" if state.rejected_by is not None else ""
    return f"{who}{_words(state.detail)}"


def _words(text: str | None) -> str:
    return f": {text}" if text else ""


def _call(state: KeyState, entry: PlanEntry) -> str:
    """The call by its tool, and by the key that the external system knows it by."""
    invocation = state.invocations.get(state.settled_by or state.current_invocation or "")
    sent = f", {invocation.external_key}" if invocation is not None else ""
    invocations = f", try {state.invocation_count}" if state.invocation_count > 1 else ""
    return f"{entry.node.tool_name}{sent}{invocations}"


def _left(job: JobState, undone: Sequence[str]) -> _Left:
    standing = [state for state in job.keys.values() if state.node_id not in undone]
    doubted = [state for state in standing if _in_question(job.entry(state.node_id), state)]
    belied = [state.node_id for state in standing if state.outcome is not Settled.SUCCESS and state.alarms]
    partly = [node_id for node_id in job.entries if _succeeded(job, node_id, partly=True) and node_id not in undone]
    return _Left(doubted, belied, partly, undone)


def _now(job: JobState, left: _Left) -> str | None:
    """What a human can do."""
    if left.doubted:
        return f"Look outside for {', '.join(_sent(left.doubted))}{_settling(job, left)}"
    if left.partly or left.belied:
        return "A job that ended so is not continued"
    planned = [node_id for node_id, entries in job.entries.items() if entries[-1].node.compensates is None]
    done = all(_succeeded(job, node_id) and node_id not in left.undone for node_id in planned)
    if done and job.created.goal is None:
        return None
    return f"To go on with what is left: aetheris continue {job.job_id} [--plan FILE]"


def _settling(job: JobState, left: _Left) -> str:
    """How a human says what became of what is in doubt, where that lets the job be continued (docs/continue.md)."""
    entries = [job.entry(state.node_id) for state in left.doubted]
    undoing = any(entry is None or entry.node.compensates is not None for entry in entries)
    if undoing or left.partly or left.belied:
        return "; a job that ended so is not continued"
    text = " ".join(f"--settle {state.node_id}=happened|not_executed" for state in left.doubted)
    return f", and say what you found: aetheris continue {job.job_id} {text} --evidence TEXT"


def _sent(doubted: Sequence[KeyState]) -> Iterable[str]:
    """What the external system knows the calls by, each once."""
    return dict.fromkeys(
        state.invocations[invocation_id].external_key for state in doubted for invocation_id in state.invocations
    )


def _in_question(entry: PlanEntry | None, state: KeyState) -> bool:
    """Whether the call may have taken effect, for all that anybody has said."""
    denied = state.outcome is Settled.FAILED and state.via is Via.HUMAN and state.reason != RejectReason.CANCELLED
    if entry is None or denied or state.alarms:
        return False
    return has_effect(entry, state) is HasEffect.POSSIBLE


def _succeeded(job: JobState, node_id: str, *, partly: bool = False) -> bool:
    settled = job.settled_key(node_id)
    return settled is not None and settled[1].outcome is Settled.SUCCESS and (settled[1].partial or not partly)
