"""Whether a call may start at a place in the log: the conditions of `started`."""

from collections.abc import Iterable

from aetheris.protocol.base.keys import external_key
from aetheris.protocol.fold.bodies import may_start_first
from aetheris.protocol.fold.state import OPEN, JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import After, Decision

UNTOUCHED = KeyState("")
"""How a key stands that no record has named; never changed."""


def start_is_void(job: JobState, e: ev.ToolInvocationStarted) -> str | None:
    """Why this `started` would be void at this place in the log; None where it would count."""
    return why_void(job, e, job.entry(e.node_id))


def why_void(job: JobState, e: ev.ToolInvocationStarted, entry: PlanEntry | None) -> str | None:
    state = job.keys.get(e.idempotency_key, UNTOUCHED)
    if state.node_id != e.node_id and state is not UNTOUCHED:
        return "the key belongs to another node"
    if state.status not in OPEN:
        return f"the key is {state.status}"
    if e.token != state.fencing_token:
        return f"token {e.token} is not the generation {state.fencing_token}"
    if e.invocation_id in job.invocation_keys:
        return "the nonce was used before"
    if (e.worker_id, e.incarnation) in job.ended_workers:
        return "its worker had ended"
    if is_held(job):
        return "the job is paused"
    if job.frozen and entry is not None and frozen_by(job, *tools_held(job, entry)) is not None:
        return "it is frozen"
    if (e.invocation_id, e.token) in job.void_starts.get(e.idempotency_key, ()):
        return "it was void before, so nobody runs it"
    if e.attempt_id != state.external_attempt - 1 or e.external_key != external_key(
        job.job_id, e.node_id, state.external_attempt - 1
    ):
        return "the external key does not follow from the fold"
    if state.decision is not None and state.decision.decision is not Decision.APPROVE:
        return "a human said no or edited the call"
    if state.needs_yes and not _approved(e, state):
        return "retried by hand, and not approved anew"
    if is_unanswered(e, state):
        return "a human was asked, and has not said yes to this call"
    void = _not_in_force(job, e, entry) or _node_is_taken(job, e) or after_fails(job, e.after)
    if void is None and entry is not None and entry.irreversible:
        void = _irreversible_fails(job, e, state)
    if void is None and entry is not None and entry.call is not None:
        void = _planned_call_fails(job, e, entry, state)
    return void


def _not_in_force(job: JobState, e: ev.ToolInvocationStarted, current: PlanEntry | None) -> str | None:
    if job.terminal is not None:
        return "the job has ended"
    if current is None or e.revision > job.revision:
        return "the node's entry is not the one in force"
    if current.revision > e.revision:
        named = job.entry(e.node_id, e.revision)
        if named is None or not named.same_as(current):
            return "the node's entry is not the one in force"
    return "the job is stopping" if is_stopped(job, current) else None


def is_unanswered(e: ev.ToolInvocationStarted, state: KeyState) -> bool:
    """Whether a human was asked about the call, and has not said yes to just this: whoever granted it, it waits."""
    return state.requested is not None and not _approved(e, state)


def is_held(job: JobState) -> bool:
    """Whether a pause keeps everything from starting."""
    return job.paused is not None


def frozen_by(job: JobState, *tools: str | None) -> ev.JobFrozen | None:
    """The freeze that keeps a call of a tool, or of none, from starting; the first of several.

    Args:
        tools: as `tools_held` has them.
    """
    if not job.frozen:
        return None
    return next((freeze for freeze in job.frozen.values() if freeze.scope.tool in (None, *tools)), None)


def tools_held(job: JobState, entry: PlanEntry) -> tuple[str | None, ...]:
    """The tools whose freeze keeps a call from starting: its own, and the workflow whose body has planned it."""
    of = job.entry(entry.call.parent) if entry.call is not None else None
    return (entry.node.tool,) if of is None else (entry.node.tool, of.node.tool)


def is_stopped(job: JobState, entry: PlanEntry) -> bool:
    """Whether a stop keeps an entry from starting: behind one, only compensations of a later revision start.

    The entry's own revision counts, never the one that a `started` names.
    """
    stop = job.stopping
    return stop is not None and (entry.node.compensates is None or entry.revision <= stop.up_to_revision)


def _node_is_taken(job: JobState, e: ev.ToolInvocationStarted) -> str | None:
    for key in job.node_keys.get(e.node_id, ()):
        other = job.keys[key]
        if key == e.idempotency_key or other.status is KeyStatus.NONE:
            continue
        if other.outcome is not Settled.REJECTED or not other.sure:
            return "another key of the node is in flight or settled"
    return None


def after_fails(job: JobState, named: Iterable[After]) -> str | None:
    """Why what is built on is not there: each invocation must have settled its key with exactly that result."""
    for after in named:
        key = job.invocation_keys.get(after.invocation_id)
        state = job.keys[key] if key is not None else None
        if (
            state is None
            or state.outcome is not Settled.SUCCESS
            or state.settled_by != after.invocation_id
            or state.result_hash != after.result_hash
        ):
            return "an earlier invocation that it builds on did not settle with that result"
    return None


def _irreversible_fails(job: JobState, e: ev.ToolInvocationStarted, state: KeyState) -> str | None:
    if not _approved(e, state) and state.allowed_as(e.tool_version) is None:
        return "irreversible, and neither approved nor allowed by policy"
    for key in job.keys_by_content.get((e.content_key, e.occurrence), ()):
        other = job.keys[key]
        if key == e.idempotency_key:
            continue
        if other.status is not KeyStatus.SETTLED or other.outcome is Settled.SUCCESS or not other.sure:
            return "the same irreversible call is in flight or done"
    return None


def _planned_call_fails(job: JobState, e: ev.ToolInvocationStarted, entry: PlanEntry, state: KeyState) -> str | None:
    """Of a call that a body has planned: it is that call, and its first try is of the body that planned it."""
    call = entry.call
    if call is None:
        return None
    said = (e.idempotency_key, e.args_hash, e.tool_name, e.occurrence)
    if said != (call.key, call.args_hash, entry.node.tool_name, entry.node.occurrence):
        return "it is not the call that was planned"
    if state.status is KeyStatus.NONE:
        if e.parent_invocation != call.invocation_id:
            return "another body has planned it"
        if not may_start_first(job, call.parent, e.parent_invocation):
            return "its body is not in charge"
    word = state.allowed_as(e.tool_version)
    may_repeat = word is not None and word.repeats == "allow"
    if entry.irreversible and e.occurrence > 1 and not may_repeat and not _approved(e, state):
        return "an irreversible call again, which a human has not approved"
    return None


def _approved(e: ev.ToolInvocationStarted, state: KeyState) -> bool:
    """An approval holds for exactly what was shown: these arguments, this version of the tool."""
    event = state.decision
    return event is not None and (event.tool_version, event.args_hash) == (e.tool_version, e.args_hash)
