"""A job that continues a failed or cancelled one: what it adopts, what is left to run, and what is refused by name.

What is adopted is not in the new job's plan at all: nothing can run it again. Its results stand in the arguments of
what uses them (docs/continue.md).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from aetheris.gateway.core.problems import BadRequest, Conflict
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import content_key
from aetheris.protocol.base.references import REF, UnresolvedReference, references, resolve
from aetheris.protocol.fold.state import Entry, JobState, KeyState, Settled
from aetheris.protocol.messages.commands import RegistryEntry
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
from aetheris.protocol.plan.graph import EffectClass, Node, TaskGraph
from aetheris.protocol.planning.outcome import HasEffect, has_effect
from aetheris.protocol.planning.schemas import with_defaults

Registry = Mapping[str, RegistryEntry]

MAX_CONTINUED = 16
"""How many jobs, each continuing the next, stand behind one at most: verify reads them all."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that is to be continued, and its first seal."""

    job: JobState
    seal: JobSealed | None


def continues(ended: Ended) -> Continues:
    """What a continuation of a job adopts.

    Raises:
        Conflict: it is not one that can be continued, or a human must first say what became of a step.
    """
    job, seal = ended.job, ended.seal
    if not isinstance(job.terminal, JobFailed | JobCancelled):
        raise Conflict("illegal_transition", "only a failed or cancelled job is continued")
    if job.created.goal is not None:
        raise Conflict("not_continuable", "a model plans it: submit its goal again")
    if seal is None:
        raise Conflict("not_sealed", "the job is not sealed yet")
    unsure = [node_id for node_id in job.entries if _is_unsure(job, node_id)]
    if unsure:
        message = f"nobody knows whether {', '.join(unsure)} took effect, or took effect in part"
        raise Conflict("unsure", message, nodes=unsure)
    before = job.created.continues
    depth = 1 if before is None else before.depth + 1
    if depth > MAX_CONTINUED:
        raise Conflict("too_many_continued", f"it would be the last of more than {MAX_CONTINUED} jobs that failed")
    adopted = [*(before.adopted if before is not None else ()), *_adopted(job)]
    sealed = SealOf(event_count=seal.event_count, root=seal.root, outcome_hash=seal.outcome_hash, key_id=seal.key_id)
    return Continues(job_id=job.job_id, seal=sealed, depth=depth, adopted=tuple(adopted))


def planned(job: JobState) -> dict[str, Any]:
    """The plan of a job, as it would be submitted, without what undid it."""
    nodes = [entries[-1].node for entries in job.entries.values() if entries[-1].node.compensates is None]
    return {"nodes": [node.model_dump(mode="json", exclude_defaults=True) for node in nodes]}


def left(
    job: JobState, known: Continues, plan: Mapping[str, Any], registry: Registry
) -> tuple[dict[str, Any], tuple[Use, ...]]:
    """What of a plan is still to run; the results of what is adopted stand in it, at these places.

    Raises:
        BadRequest: a reference leads nowhere in an adopted result.
        Conflict: a settled step is changed, a result can't stand in a plan, or nothing is left.
    """
    graph = TaskGraph.model_validate({"nodes": plan.get("nodes")})
    done = {one.node_id for one in known.adopted}
    own = {one.node_id for one in known.adopted if one.job_id == job.job_id}
    changed = [node.id for node in graph.nodes if node.id in done and not _same(job, own, node, registry)]
    if changed:
        message = f"{', '.join(changed)}: settled in the earlier job, and may not be changed"
        raise Conflict("step_changed", message, nodes=changed)
    kept = [node for node in graph.nodes if node.id not in done]
    if not kept:
        raise Conflict("nothing_left", "every step of the plan is settled in the earlier job")
    results = {node_id: _result(job, node_id) for node_id in {ref for node in kept for ref in _uses(node)} & own}
    uses = tuple(use for node in kept for use in _places(node) if use.ref.partition("#")[0] in done)
    return {"nodes": [_with_results(node, results, done) for node in kept]}, uses


def check_not_done(known: Continues, tenant: str, plan: Mapping[str, Any]) -> None:
    """Nothing that can't be undone is done again: whatever its step is called, and whatever job did it.

    Raises:
        Conflict: naming the step, also where its arguments are not known yet and the tool was used so before.
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
                raise Conflict("duplicate_of", message, node_id=node.id, duplicate_of=one.node_id, job_id=one.job_id)


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


def _same(job: JobState, own: set[str], node: Node, registry: Registry) -> bool:
    """Whether a plan says of a settled step what was done."""
    entry = job.entry(node.id) if node.id in own else None
    if entry is None or entry.node.tool != node.tool or entry.node.kind is not node.kind:
        return False
    listed = registry.get(node.tool_name)
    schema = listed.schema_ if listed is not None else {}
    return digest(with_defaults(schema, node.args)) == digest(with_defaults(schema, entry.node.args))


def _uses(node: Node) -> Iterator[str]:
    return (use.ref.partition("#")[0] for use in _places(node))


def _places(node: Node) -> Iterator[Use]:
    """Where a node stands for results of others, its compensation included."""
    undo = node.compensate_with
    for within, args in (("/args", node.args), ("/compensate_with/args", undo.args if undo is not None else {})):
        for one in references(args):
            ref = f"{one.node_id}#{one.pointer}"
            yield Use(node_id=node.id, at=f"{within}{one.at}", ref=ref)


def _targets(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for inner in cast("list[Any]", part):
            yield from _targets(inner)
    elif isinstance(part, dict):
        held = cast("dict[str, Any]", part)
        if isinstance(held.get(REF), str):
            yield held[REF].partition("#")[0]
        for inner in held.values():
            yield from _targets(inner)


def _result(job: JobState, node_id: str) -> Any:
    """The result of an adopted step, as it may stand in a plan."""
    settled = job.settled_key(node_id)
    if settled is None or settled[1].result_ref is not None:
        raise Conflict("result_too_large", f"the result of {node_id} is too large to stand in a plan", nodes=[node_id])
    if any(_targets(settled[1].result)):
        raise Conflict("result_refers", f"the result of {node_id} holds {REF}, which only a plan may", nodes=[node_id])
    return settled[1].result


def _with_results(node: Node, results: Mapping[str, Any], done: set[str]) -> dict[str, Any]:
    said = node.model_dump(mode="json", exclude_defaults=True)
    said["depends_on"] = [name for name in node.depends_on if name not in done]
    try:
        said["args"] = _filled(node.args, results, done)
        if node.compensate_with is not None:
            said["compensate_with"] |= {"args": _filled(node.compensate_with.args, results, done)}
    except UnresolvedReference as error:
        raise BadRequest("invalid_plan", f"plan.{node.id}.args", str(error)) from None
    return said


def _filled(part: Any, results: Mapping[str, Any], done: set[str]) -> Any:
    """Arguments with the results of what is adopted; other references stay."""
    if isinstance(part, list):
        return [_filled(inner, results, done) for inner in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    held = cast("dict[str, Any]", part)
    target = held.get(REF)
    if len(held) == 1 and isinstance(target, str):
        return resolve(held, results) if target.partition("#")[0] in done else held
    return {name: _filled(inner, results, done) for name, inner in held.items()}
