"""A job that continues a failed or cancelled one: what it adopts, what is left to run, and what is refused by name.

What is adopted is not in the new job's plan at all: nothing can run it again. Its results stand in the arguments of
what uses them (docs/continue.md).
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from aetheris.gateway.core.problems import BadRequest, Conflict
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.references import REF, UnresolvedReference, references, resolve
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.messages.events import (
    Continues,
    Use,
)
from aetheris.protocol.plan.graph import Node, TaskGraph
from aetheris.protocol.planning.continuation import result_of
from aetheris.protocol.planning.schemas import with_defaults

Registry = Mapping[str, RegistryEntry]


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
    used = {ref for node in kept for ref in _uses(node)} & own
    results = {node_id: _result(job, known, node_id) for node_id in used}
    uses = tuple(use for node in kept for use in _places(node) if use.ref.partition("#")[0] in done)
    return {"nodes": [_with_results(node, results, done) for node in kept]}, uses


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


def _result(job: JobState, known: Continues, node_id: str) -> Any:
    """The result of an adopted step, as it may stand in a plan."""
    found = result_of(job, known, node_id)
    if any(_targets(found)):
        raise Conflict("result_refers", f"the result of {node_id} holds {REF}, which only a plan may", nodes=[node_id])
    return found


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
