"""What a job adopts of the one that it continues: worked out by the gateway, and once more by the planner.

One pure function of that job's sealed stream (docs/continue.md): what a submission says of it is never believed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aetheris.protocol.base.canonical import InvalidArgs, digest
from aetheris.protocol.base.keys import content_key
from aetheris.protocol.base.references import UnresolvedReference, point
from aetheris.protocol.fold.state import Entry, JobState, KeyState, Settled
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.events import (
    Adopted,
    Continues,
    JobCancelled,
    JobFailed,
    JobSealed,
    RejectReason,
    SealOf,
    Use,
    Via,
)
from aetheris.protocol.plan.graph import EffectClass, TaskGraph
from aetheris.protocol.planning.outcome import HasEffect, has_effect

MAX_CONTINUED = 16
"""How many jobs, each continuing the next, stand behind one at most: verify reads them all."""


class NotContinuable(ValueError):
    """Why a job is not continued so; `details` name the steps."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that is to be continued, and its first seal."""

    job: JobState
    seal: JobSealed | None


def continues(ended: Ended) -> Continues:
    """What a continuation of a job adopts.

    Raises:
        NotContinuable: it is not one that can be continued, or a human must first say what became of a step.
    """
    job, seal = ended.job, ended.seal
    if not isinstance(job.terminal, JobFailed | JobCancelled):
        raise NotContinuable("illegal_transition", "only a failed or cancelled job is continued")
    if isinstance(job.terminal, JobFailed) and job.terminal.unfounded:
        raise NotContinuable("not_continuable", "it never began: what it said of the job that it continues is not so")
    if job.created.goal is not None:
        raise NotContinuable("not_continuable", "a model plans it: submit its goal again")
    if seal is None:
        raise NotContinuable("not_sealed", "the job is not sealed yet")
    unsure = [node_id for node_id in job.entries if _is_unsure(job, node_id)]
    if unsure:
        message = f"nobody knows whether {', '.join(unsure)} took effect, or took effect in part"
        raise NotContinuable("unsure", message, nodes=unsure)
    before = job.created.continues
    depth = 1 if before is None else before.depth + 1
    if depth > MAX_CONTINUED:
        raise NotContinuable(
            "too_many_continued", f"it would be the last of more than {MAX_CONTINUED} jobs that failed"
        )
    adopted = [*(before.adopted if before is not None else ()), *_adopted(job)]
    sealed = SealOf(event_count=seal.event_count, root=seal.root, outcome_hash=seal.outcome_hash, key_id=seal.key_id)
    return Continues(job_id=job.job_id, seal=sealed, depth=depth, adopted=tuple(adopted))


def unfounded(command: Submit, ended: Ended | None) -> str | None:
    """Why a submission that continues a job can't be taken up, by that job's own stream; None where it can.

    Whoever wrote the command: nothing that it says of the earlier job counts before it is found there.
    """
    said = command.continues
    if said is None:
        return None
    if ended is None or ended.job.created.tenant != command.tenant or ended.job.job_id != said.job_id:
        return "there is no such job"
    try:
        known = continues(ended)
        if said.model_copy(update={"uses": ()}) != known:
            return "what it adopts, or the seal that it names, is not that job's"
        check_not_done(known, command.tenant, command.plan or {})
    except NotContinuable as error:
        return error.message
    nodes = {node["id"]: node for node in (command.plan or {}).get("nodes", ())}
    if again := [one.node_id for one in known.adopted if one.node_id in nodes]:
        return f"{', '.join(again)}: settled there, and in its plan again"
    wrong = [use.node_id for use in said.uses if not _is_used(ended.job, nodes.get(use.node_id), use)]
    return f"{', '.join(wrong)}: has other values than the results that they stand for" if wrong else None


def check_not_done(known: Continues, tenant: str, plan: Mapping[str, Any]) -> None:
    """Nothing that can't be undone is done again: whatever its step is called, and whatever job did it.

    Raises:
        NotContinuable: naming the step, also where its arguments are not known yet and the tool was used so before.
    """
    graph = TaskGraph.model_validate(plan)
    held = [one for one in known.adopted if one.content_key is not None]
    for node in graph.nodes:
        pin = graph.tools.get(node.tool_name)
        if pin is None or not (node.irreversible or pin.irreversible):
            continue
        known_args = not node.refs
        content = content_key(tenant, node.tool_name, node.args, pin.volatile) if known_args else None
        for one in held:
            same = one.content_key == content if known_args else one.tool_name == node.tool_name
            if same and one.occurrence == node.occurrence:
                message = f"{node.id} is, or may become, what {one.node_id} of {one.job_id} did: say its occurrence"
                raise NotContinuable(
                    "duplicate_of", message, node_id=node.id, duplicate_of=one.node_id, job_id=one.job_id
                )


def _is_used(job: JobState, node: Any, use: Use) -> bool:
    name, _, pointer = use.ref.partition("#")
    settled = job.settled_key(name)
    if settled is None or settled[1].outcome is not Settled.SUCCESS:
        return False
    try:
        given, held = point(settled[1].result, pointer, use.ref), point(node, use.at, use.at)
        return digest(given) == digest(held)
    except (UnresolvedReference, InvalidArgs):
        return False


def _adopted(job: JobState) -> Iterator[Adopted]:
    for node_id in _done(job):
        settled, entry = job.settled_key(node_id), job.entry(node_id)
        if settled is None or entry is None:
            continue
        key, state = settled
        started = state.started
        guarded = started if entry.irreversible else None
        yield Adopted(
            job_id=job.job_id,
            node_id=node_id,
            idempotency_key=key,
            invocation_id=state.settled_by,
            tool_name=entry.node.tool_name,
            args_hash=started.args_hash if started is not None else None,
            result_hash=state.result_hash,
            external_id=state.external_id,
            content_key=guarded.content_key if guarded is not None else None,
            occurrence=guarded.occurrence if guarded is not None else 1,
        )


def _done(job: JobState) -> Iterator[str]:
    """The steps that settled as a success and were not undone."""
    undone = job.terminal.compensated or () if isinstance(job.terminal, JobFailed | JobCancelled) else ()
    for node_id, entries in job.entries.items():
        settled = job.settled_key(node_id)
        compensates = entries[-1].node.compensates is not None
        if settled is not None and settled[1].outcome is Settled.SUCCESS and not compensates and node_id not in undone:
            yield node_id


def _is_unsure(job: JobState, node_id: str) -> bool:
    """Whether nobody knows what a step left behind, or only a part of it was done."""
    entry = job.entry(node_id)
    if entry is None or entry.effect_class is EffectClass.PURE:
        return False
    if isinstance(job.terminal, JobFailed | JobCancelled) and node_id in (job.terminal.compensated or ()):
        return False
    return any(_key_is_unsure(entry, job.keys[key]) for key in job.node_keys.get(node_id, ()))


def _key_is_unsure(entry: Entry, state: KeyState) -> bool:
    if state.outcome is Settled.SUCCESS:
        return state.partial
    denied = state.via is Via.HUMAN and state.reason != RejectReason.CANCELLED
    if state.outcome is Settled.FAILED and denied and not state.alarms:
        return False
    return has_effect(entry, state) is not HasEffect.NONE
