"""A workflow's code over a recorded job, calling nothing: whether it would go on there, or part ways, and where."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aetheris.protocol.fold.child_calls import only_reads
from aetheris.protocol.fold.job_log import LoggedEvent, fold_event
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.plan.graph import EffectClass, Kind, Node
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, BodyStart, Idle, Returned, settled_call
from aetheris.sdk.workflows.declaration import AnyWorkflow
from aetheris.sdk.workflows.local_bodies import LocalBodies

_BODY = "replay"


class NoWorkflow(LookupError):
    """The job has no node that this workflow runs, or several and none was named."""


@dataclass(frozen=True, slots=True)
class BodyReplay:
    """What the code does over what is recorded of one node."""

    node_id: str
    asked: int
    """Its calls, recorded or not."""
    new: tuple[str, ...]
    """Those that are not recorded, and would leave something behind."""
    reads: tuple[str, ...]
    """Those that are not recorded, and only read: what follows from what they would say, nobody knows here."""
    unasked: tuple[str, ...]
    """Recorded calls that have, or may have, an effect, and that the code doesn't ask for."""
    changed: tuple[str, ...]
    """Recorded calls for which it asks with other arguments, or in another form."""
    end: str
    """waits, returns, returns otherwise, or which exception ends it, and where."""

    @property
    def diverges(self) -> bool:
        """Whether such a body would be stopped: what it asks for, or its end, would be a second path."""
        ends = self.end != "waits"
        return bool(self.changed) or (bool(self.unasked) and (bool(self.new) or ends))

    @property
    def first(self) -> str:
        """In words, where it parts from what is recorded; empty where it doesn't."""
        if self.changed:
            return f"{self.changed[0]} is recorded, and is asked for otherwise"
        if not self.diverges:
            return ""
        instead = f"asks for {self.new[0]}, which is not" if self.new else self.end
        return f"{self.unasked[0]} is recorded, and is not asked for: the code {instead}"


class _History:
    """A job, and in which order calls of bodies have settled."""

    def __init__(self, logged: Iterable[LoggedEvent]) -> None:
        self.job: JobState | None = None
        self._settled: dict[str, None] = {}
        for one in logged:
            self.job, counts = fold_event(self.job, one.event, one.record.offset)
            node_id = getattr(one.event, "node_id", None)
            if counts and isinstance(node_id, str):
                self._note(node_id)

    def settled(self, parent: str) -> list[tuple[str, KeyState]]:
        return [
            (node_id, state)
            for node_id in self._settled
            if (entry := self.entry(node_id)).call is not None and entry.call.parent == parent
            for state in (self._state(entry),)
            if state is not None
        ]

    def calls(self, parent: str) -> dict[str, PlanEntry]:
        entries = {} if self.job is None else self.job.entries
        found = {node_id: entries[node_id][-1] for node_id in entries}
        return {node_id: one for node_id, one in found.items() if one.call is not None and one.call.parent == parent}

    def has_effect(self, node_id: str) -> bool:
        entry = self.entry(node_id)
        state = self._state(entry)
        if state is None or not state.invocations or entry.effect_class is EffectClass.PURE:
            return False
        return not (state.status is KeyStatus.SETTLED and state.outcome is not Settled.SUCCESS and state.sure)

    def only_reads(self, node: Node) -> bool:
        return self.job is not None and self.job.bodies is not None and only_reads(self.job.bodies, node)

    def has_begun(self, node_id: str) -> bool:
        state = self._state(self.entry(node_id))
        return state is not None and (bool(state.invocations) or state.status is not KeyStatus.NONE)

    def entry(self, node_id: str) -> PlanEntry:
        assert self.job is not None  # noqa: S101  only known nodes are asked for
        return self.job.entries[node_id][-1]

    def _state(self, entry: PlanEntry) -> KeyState | None:
        return self.job.keys.get(entry.call.key) if self.job is not None and entry.call is not None else None

    def _note(self, node_id: str) -> None:
        entry = self.job.entry(node_id) if self.job is not None else None
        state = self._state(entry) if entry is not None else None
        if state is not None and state.status is KeyStatus.SETTLED:
            self._settled.setdefault(node_id)


def replay_body(
    workflow: AnyWorkflow, logged: Iterable[LoggedEvent], blobs: Mapping[str, Any], node_id: str | None = None
) -> BodyReplay:
    """Run a workflow's code over a job's record, calling nothing.

    Args:
        logged: the job's events, in log order.
        blobs: its large results, by their hash.
        node_id: the workflow's node, where the job has several.

    Raises:
        NoWorkflow.
        LookupError: a large result is not there.
    """
    history = _History(logged)
    node = _node_of(history.job, workflow, node_id)
    job_id = "" if history.job is None else history.job.job_id
    asked: dict[str, Node] = {}
    last: list[BodySaid] = []

    def hear(said: BodySaid) -> None:
        if isinstance(said, Asked):
            asked.setdefault(said.node["id"], Node.model_validate(said.node))
        else:
            last[:] = [said]

    told = [
        settled_call(one, state, state.result if state.result_ref is None else blobs[state.result_ref.sha256])
        for one, state in history.settled(node.id)
    ]
    bodies = LocalBodies([workflow], hear)
    bodies.begin(BodyStart(_BODY, workflow.key, job_id, node.id, node.args), told)
    bodies.drop(_BODY)
    calls = history.calls(node.id)
    new = {one: history.only_reads(node) for one, node in asked.items() if one not in calls}
    return BodyReplay(
        node.id,
        len(asked),
        tuple(one for one, reads in new.items() if not reads),
        tuple(one for one, reads in new.items() if reads),
        tuple(one for one in calls if one not in asked and history.has_effect(one)),
        tuple(one for one, node in asked.items() if one in calls and _differs(history, calls[one], node)),
        _end(history, node.id, last[0]),
    )


def _differs(history: _History, entry: PlanEntry, node: Node) -> bool:
    return entry.call is not None and history.has_begun(node.id) and entry.call.planned != node


def _node_of(job: JobState | None, workflow: AnyWorkflow, node_id: str | None) -> Node:
    nodes = [] if job is None else [entries[-1].node for entries in job.entries.values()]
    found = [one for one in nodes if one.kind is Kind.WORKFLOW and one.tool == workflow.name]
    wanted = [one for one in found if node_id in (None, one.id)]
    if len(wanted) != 1:
        names = ", ".join(one.id for one in found) or "none"
        raise NoWorkflow(f"name one of the job's nodes that {workflow.name} runs: {names}")
    return wanted[0]


def _end(history: _History, node_id: str, last: BodySaid) -> str:
    match last:
        case Idle():
            return "waits"
        case Returned():
            settled = history.job.settled_key(node_id) if history.job is not None else None
            otherwise = settled is not None and settled[1].result_ref is None and settled[1].result != last.result
            return "returns otherwise" if otherwise else "returns"
        case BodyRaised():
            return f"raises {last.error_class}: {last.text}"
        case _:
            return "waits"
