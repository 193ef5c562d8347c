"""Which nodes are asked for, and how a settled node is reported."""

from typing import Any

from aetheris.planner.core.decisions import Append, LoadArguments, NodesRequest, fact
from aetheris.planner.core.progress import JobProgress
from aetheris.protocol.base.keys import canonical_args, idempotency_key
from aetheris.protocol.fold.state import KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages.commands import ToolRequest
from aetheris.protocol.messages.event_values import Outcome
from aetheris.protocol.messages.events import NodeFinished
from aetheris.protocol.plan.graph import RUNNABLE, EffectClass
from aetheris.protocol.planning.invocation import Blobs, adopted_results, arguments, blobs_needed, success, uses

MAX_RUN = 200
"""Nodes in a run (docs/architecture.md, "Runs"): a stop in the log ends it, and so does its grant's length."""

MAX_ARGS_BYTES = 64 * 1024
"""Resolved arguments that travel in a request; larger ones every reader resolves from its own fold."""


def node_finished(progress: JobProgress, node_id: str) -> Append | None:
    """The report of a settled node; None where it was reported before."""
    final = progress.job.settled_key(node_id)
    if final is None or node_id in progress.sent.nodes:
        return None
    key, state = final
    result_type = _result_type(state, progress.entry(node_id).effect_class)
    succeeded = state.outcome is Settled.SUCCESS
    event = NodeFinished(
        job_id=progress.job.job_id,
        node_id=node_id,
        step_index=progress.job.places[node_id],
        attempt=state.invocation_count,
        result_type=result_type,
        output_hash=state.result_hash if succeeded else None,
        reason=None if succeeded else state.reason or "failed",
        duplicate_of=state.duplicate_of,
    )
    return fact(event, node_id, result_type, key=key)


def unresolvable(progress: JobProgress, node_id: str, reason: str) -> Append:
    """The report of a node whose arguments can't be made from what its dependencies returned."""
    event = NodeFinished(
        job_id=progress.job.job_id,
        node_id=node_id,
        step_index=progress.job.places[node_id],
        attempt=0,
        result_type=Outcome.PERMANENT,
        reason=reason,
    )
    return fact(event, node_id, Outcome.PERMANENT)


def load(progress: JobProgress, node_id: str) -> LoadArguments | None:
    """What must be loaded before a ready node's arguments can be made; None if nothing."""
    refs = blobs_needed(progress.job, progress.entry(node_id))
    return LoadArguments(progress.job.job_id, node_id, refs) if refs else None


def request(progress: JobProgress, node_id: str, blobs: Blobs | None, *, runs: bool) -> NodesRequest:
    """The request for a ready node, and for what can follow it in a run.

    Without `blobs` (they could not be loaded) the readers make its arguments from their own.

    Raises:
        UnresolvedReference: its arguments point to what a result does not have.
        InvalidArgs: its resolved arguments have no canonical form.
    """
    job = progress.job
    entry = progress.entry(node_id)
    runs = runs and entry.node.kind in RUNNABLE
    args, key = _head(progress, entry, blobs) if blobs is not None else ({}, None)
    body = ToolRequest(
        job_id=job.job_id,
        birth=job.creation_offset,
        as_of=job.last_offset,
        revision=job.revision,
        plan_hash=job.plan_hash,
        nodes=chain(progress, node_id) if runs else (node_id,),
        args=args,
    )
    return NodesRequest(body, key)


def chain(progress: JobProgress, head: str) -> tuple[str, ...]:
    """The longest run from `head` in which every node follows the one before it and needs nothing outside.

    Where several could follow, the first declared one does; the others run beside it.
    """
    nodes = [head]
    missing: dict[str, int] = {}
    while len(nodes) < MAX_RUN:
        following = _next_in_run(progress, nodes[-1], missing)
        if following is None:
            break
        nodes.append(following)
    return tuple(nodes)


def is_untouched(progress: JobProgress, node_id: str) -> bool:
    """Whether nobody has started, parked, reopened or settled the node, and it does not wait.

    A call that a human has changed is no more the node's: another key stands for it.
    """
    job = progress.job
    return all(_is_free(job.keys[key]) for key in job.node_keys.get(node_id, ()))


def _is_free(state: KeyState) -> bool:
    if state.status is KeyStatus.SETTLED:
        return state.outcome is Settled.REJECTED and state.sure
    return state.status is KeyStatus.NONE and not state.is_waiting


def _next_in_run(progress: JobProgress, tail: str, missing: dict[str, int]) -> str | None:
    found: str | None = None
    for node_id in progress.graph.successors[tail]:
        missing[node_id] = missing.get(node_id, progress.missing[node_id]) - 1
        if found is None and missing[node_id] == 0 and _may_follow(progress, node_id):
            found = node_id
    return found


def _may_follow(progress: JobProgress, node_id: str) -> bool:
    """The ledger cuts a run before what is irreversible or already has a key; asking for it would be in vain."""
    entry = progress.entry(node_id)
    return entry.node.kind in RUNNABLE and not entry.irreversible and node_id not in progress.job.node_keys


def _head(progress: JobProgress, entry: PlanEntry, blobs: Blobs) -> tuple[dict[str, Any], str]:
    """Its key, and its arguments, where they are small."""
    used = uses(entry)
    results = {node: _result(progress, node, blobs) for node in used} | adopted_results(progress.job, entry, blobs)
    args, _ = arguments(progress.job, entry, results)
    key = idempotency_key(progress.job.job_id, entry.node.id, entry.node.tool_name, args)
    too_large = bool(results) and len(canonical_args(args)) > MAX_ARGS_BYTES
    return ({} if too_large else args), key


def _result(progress: JobProgress, node_id: str, blobs: Blobs) -> Any:
    state = success(progress.job, node_id)
    return blobs[state.result_ref.sha256] if state.result_ref is not None else state.result


def _result_type(state: KeyState, effect_class: EffectClass) -> str:
    if state.outcome is not Settled.SUCCESS:
        return Outcome.PERMANENT
    if effect_class is EffectClass.PURE:
        return "success"
    return Outcome.COMPENSATABLE if state.partial else "side_effect_committed"
