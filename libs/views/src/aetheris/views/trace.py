"""The trace of a job as data: its decision tree, its tool dependency graph, and what became of each step."""

from collections.abc import Collection
from itertools import islice
from typing import Any

from aetheris.protocol.base.keys import job_key, trace_id
from aetheris.protocol.fold.state import JobState, KeyState, PlanEntry
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import dependencies
from aetheris.protocol.planning.invocation import uses
from aetheris.views.effect_log import answered_by
from aetheris.views.execution_trace import execution_trace
from aetheris.views.job_history import HistoryEntry, JobHistory, about
from aetheris.views.provenance import asked_for, decision, planned_by
from aetheris.views.standing import job_view, step_view


def trace_of(history: JobHistory) -> dict[str, Any]:
    """{job, decisions, graph: {nodes, edges}, steps, events, effects, execution_trace}; {} for an unborn job."""
    job = history.job
    if job is None or history.created is None:
        return {}
    view = job_view(job, history.created.time)
    return {
        "job": {name: value for name, value in view.items() if name != "steps"}
        | {"trace_id": trace_id(job_key(job.job_id))},
        "decisions": _decisions(history, job, job.entries),
        "graph": _graph(job, job.entries),
        "steps": _steps(history, job),
        "events": [_line(moment) for moment in history.moments],
        "effects": history.effects.rows,
        "execution_trace": execution_trace(moment.logged for moment in history.moments),
    }


def trace_page(history: JobHistory, after: int, limit: int) -> dict[str, Any]:
    """Of the trace, what is about at most `limit` steps behind the first `after` ones, in the order of the plan.

    {job, decisions, graph: {nodes, edges}, steps, step_count}, without their events; {} for an unborn job.
    """
    job = history.job
    if job is None or history.created is None:
        return {}
    shown = frozenset(islice(job.entries, after, after + limit))
    view = job_view(job, history.created.time)
    return {
        "job": {name: value for name, value in view.items() if name != "steps"}
        | {"trace_id": trace_id(job_key(job.job_id))},
        "decisions": _decisions(history, job, shown),
        "graph": _graph(job, shown),
        "steps": [_called_step(history, job, found[-1]) for name, found in job.entries.items() if name in shown],
        "step_count": len(job.entries),
    }


def _decisions(history: JobHistory, job: JobState, shown: Collection[str]) -> dict[str, Any]:
    """Downwards: what was asked for, the plans that came of it, with their nodes; and what a model's answers wanted."""
    root = _without_reasons(asked_for(history))
    wanted = {name: answered_by(job, name) for name in shown}
    for revision in sorted(history.plans):
        planned = _without_reasons(planned_by(history, revision))
        entries = (found for name, found in job.entries.items() if wanted.get(name) not in history.effects.decisions)
        named = (found[-1] for found in entries if any(entry.revision == revision for entry in found))
        planned["nodes"] = [_named(job, entry) for entry in named if entry.node.id in shown]
        root["leads_to"].append(planned)
    for answer, logged in history.effects.decisions.items():
        tree = decision(history, logged)
        decided = _without_reasons(tree)
        decided["from"] = [one for one in tree["because"] if one["what"] == "used"]
        decided["nodes"] = [_named(job, job.entries[name][-1]) for name in job.entries if wanted.get(name) == answer]
        root["leads_to"].append(decided)
    return root


def _named(job: JobState, entry: PlanEntry) -> dict[str, Any]:
    return {
        "node_id": entry.node.id,
        "tool": entry.node.tool_name,
        "state": step_view(job, entry)["state"],
    }


def _without_reasons(tree: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in tree.items() if name != "because"}, "leads_to": []}


def _graph(job: JobState, shown: Collection[str]) -> dict[str, Any]:
    """Nodes, and an edge for each dependency: `uses` are the places of the arguments that its result went into."""
    entries = [found[-1] for node_id, found in job.entries.items() if node_id in shown]
    return {
        "nodes": [_node(job, entry) for entry in entries],
        "edges": [edge for one in entries for edge in _edges(one)],
    }


def _node(job: JobState, entry: PlanEntry) -> dict[str, Any]:
    step = step_view(job, entry)
    return {
        "node_id": entry.node.id,
        "kind": entry.node.kind.value,
        "tool": entry.node.tool_name,
        "effect_class": entry.effect_class.value,
        "irreversible": entry.irreversible,
        **{name: step[name] for name in ("state", "result_type", "external_id") if name in step},
    }


def _edges(entry: PlanEntry) -> list[dict[str, Any]]:
    used = set(uses(entry))
    return [
        {"from": node_id, "to": entry.node.id, "carries": "result" if node_id in used else "order"}
        for node_id in dependencies(entry.node)
    ]


def _steps(history: JobHistory, job: JobState) -> list[dict[str, Any]]:
    of_node: dict[str, list[HistoryEntry]] = {}
    for moment in history.moments:
        node_id = about(moment.logged.event)
        if node_id is not None:
            of_node.setdefault(node_id, []).append(moment)
    return [_step(history, job, found[-1], of_node.get(node_id, [])) for node_id, found in job.entries.items()]


def _step(history: JobHistory, job: JobState, entry: PlanEntry, moments: list[HistoryEntry]) -> dict[str, Any]:
    return {**_called_step(history, job, entry), "events": [_line(moment) for moment in moments]}


def _called_step(history: JobHistory, job: JobState, entry: PlanEntry) -> dict[str, Any]:
    return {
        **step_view(job, entry),
        "tool_version": entry.tool_version,
        "keys": [_key(history, key, job.keys[key]) for key in job.node_keys.get(entry.node.id, ())],
    }


def _key(history: JobHistory, key: str, state: KeyState) -> dict[str, Any]:
    call = history.calls.get(key)
    found: dict[str, Any] = {"idempotency_key": key, "trace_id": trace_id(key), "state": state.status.value}
    if call is not None:
        found["args"] = call.args
    if state.result_hash is not None:
        found["output_hash"] = state.result_hash
        found |= {"result": state.result} if state.result_ref is None else {"result_ref": state.result_ref.sha256}
    found["tries"] = [
        {"invocation_id": invocation_id, "external_key": invocation.external_key, "worker_id": invocation.worker_id}
        for invocation_id, invocation in state.invocations.items()
    ]
    if state.alarms:
        found["alarms"] = list(state.alarms)
    return found


def _line(moment: HistoryEntry) -> dict[str, Any]:
    """An event in a list: what it is, and the words that tell it from others of its type."""
    return {**moment.logged.named(), "counts": moment.counts, "says": _says(moment.logged.event)}


def _says(reported: Any) -> str:
    match reported:
        case ev.ToolInvocationStarted():
            return f"{reported.node_id}: {reported.tool_name}, {reported.external_key}"
        case ev.ToolInvocationFinished():
            reason = f": {reported.error}" if reported.error else ""
            return f"{reported.node_id}: {reported.outcome.value} via {reported.via.value}{reason}"
        case ev.NodeFinished():
            return f"{reported.node_id}: {reported.result_type}"
        case ev.ApprovalVoted():
            return f"{reported.node_id}: a yes of several, by {reported.approver}"
        case ev.ResolutionVoted():
            what = reported.node_id or reported.correlation_key
            return f"{what}: {reported.verdict}, one of several says, {reported.by}"
        case ev.ApprovalDecided():
            return f"{reported.node_id}: {reported.decision.value} by {reported.approver}"
        case ev.PolicyAllowed():
            return f"{reported.node_id}: rule {reported.rule}"
        case ev.InvocationRejected():
            return f"{reported.node_id}: {reported.reason}"
        case ev.InvocationInDoubt():
            return f"{reported.node_id}: {reported.error_class}"
        case ev.InvocationProbed():
            return f"{reported.node_id}: {reported.answer.value}"
        case ev.InvocationParked():
            return f"{reported.node_id}: {reported.reason}"
        case ev.InvocationReopened():
            return f"{reported.node_id}: by {reported.by}"
        case ev.WorkerEnded():
            return f"{reported.worker_id}: {reported.how}"
        case ev.JobStopping() | ev.CancelRequested():
            return f"{reported.reason or ''}"
        case ev.ViolationFound():
            return f"{reported.rule}: {reported.message}"
        case ev.KeyRevoked():
            return f"{reported.key_id}: {reported.reason}"
        case ev.JobFailed():
            return reported.error
        case _:
            return about(reported) or ""
