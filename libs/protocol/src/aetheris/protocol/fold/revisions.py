"""Which revision of the plan comes into force: the rule of `plan_generated`, and when a plan may compensate."""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from aetheris.protocol.fold.state import Bodies, BodyState, JobState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import (
    EffectClass,
    InvalidPlan,
    Kind,
    Node,
    TaskGraph,
    ToolPin,
    check_graph,
    compensation_of,
    tools_of,
)


def may_compensate(job: JobState) -> bool:
    """Whether compensations may be planned: behind a stop, when nothing is open and nobody is to decide first."""
    if job.stopping is None or job.terminal is not None or job.in_flight():
        return False
    return job.cancel.compensate if job.cancel is not None else unsure(job) is None


def unsure(job: JobState) -> str | None:
    """A node that ended without success, and may have taken effect all the same."""
    for state in job.keys.values():
        if state.status is KeyStatus.SETTLED and state.outcome is not Settled.SUCCESS and not state.sure:
            entry = job.entry(state.node_id)
            if entry is None or entry.effect_class is not EffectClass.PURE:
                return state.node_id
    return None


def planned(job: JobState, e: ev.PlanGenerated, offset: int) -> bool:
    """The next revision comes into force, if its graph is sound and, behind a stop, only undoes what was done."""
    if e.revision != job.revision + 1:
        return False
    try:
        added = e.graph
        order = check_graph(_nodes_with(job, added), job.created.adopted)
    except (ValidationError, InvalidPlan):
        return False
    tools = job.tools | added.tools
    if any(tool not in tools for node in added.nodes for tool in tools_of(node)):
        return False
    if not _may_have_bodies(job, e, added, tools):
        return False
    undoing = [node.id for node in added.nodes if node.compensates is not None]
    if (undoing or job.stopping is not None) and not _compensates(job, added.nodes):
        return False
    job.compensations += undoing
    job.tools, job.places = tools, {node_id: place for place, node_id in enumerate(order)}
    job.plan_hashes.append(e.plan_hash)
    if e.version > 1:
        job.bodies = _bodies(added)
    for node in added.nodes:
        pin = tools[node.tool] if node.tool is not None else None
        job.entries.setdefault(node.id, []).append(PlanEntry(e.revision, node, pin))
    return True


def _may_have_bodies(job: JobState, e: ev.PlanGenerated, added: TaskGraph, tools: Mapping[str, ToolPin]) -> bool:
    """Bodies stand in the first plan, and say so; where they do, what follows only undoes. Code itself does nothing."""
    if e.version == 1 and job.bodies is None:
        return not added.has_bodies
    if e.revision > 0:
        return job.stopping is not None and not added.has_bodies and e.version == 1
    pins = [tools[node.tool] for node in added.nodes if node.kind is Kind.WORKFLOW and node.tool is not None]
    harmless = all(pin.effect_class is EffectClass.PURE and not pin.irreversible for pin in pins)
    return (
        added.has_bodies
        and harmless
        and not any(node.irreversible for node in added.nodes if node.kind is Kind.WORKFLOW)
    )


def _bodies(graph: TaskGraph) -> Bodies:
    awaited = {node.wait.key for node in graph.nodes if node.wait is not None and node.wait.key is not None}
    return Bodies({node.id: BodyState() for node in graph.nodes if node.kind is Kind.WORKFLOW}, graph.tools, awaited)


def _compensates(job: JobState, nodes: Iterable[Node]) -> bool:
    return may_compensate(job) and all(_undoes(job, node) for node in nodes)


def _undoes(job: JobState, node: Node) -> bool:
    """A new node that is just what a node that has settled as a success declares as its compensation."""
    done = job.entry(node.compensates) if node.compensates is not None else None
    settled = job.settled_key(done.node.id) if done is not None else None
    if done is None or node.id in job.entries or settled is None or settled[1].outcome is not Settled.SUCCESS:
        return False
    return node.model_copy(update={"depends_on": ()}) == compensation_of(done.node)


def _nodes_with(job: JobState, added: TaskGraph) -> Sequence[Node]:
    """The plan in force with what is added to it; who replaces a node has its place."""
    replacing = {node.id: node for node in added.nodes}
    if len(replacing) < len(added.nodes):  # a node that stands twice is for `check_graph` to refuse
        return added.nodes
    kept = [replacing.get(node_id, entries[-1].node) for node_id, entries in job.entries.items()]
    return [*kept, *(node for node in added.nodes if node.id not in job.entries)]
