"""What the planner remembers of a live job beside its fold; every event costs O(what it changed)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from aetheris.protocol import events as ev
from aetheris.protocol.events import Event
from aetheris.protocol.fold import Entry, JobState, Settled, St
from aetheris.protocol.invocation import is_done, needs
from aetheris.protocol.plan import EffectClass, check_graph


@dataclass(frozen=True, slots=True)
class Graph:
    """The plan in force, as successors and places."""

    step_index: dict[str, int]
    """Place in the topological order."""
    declared: dict[str, int]
    """Place in the plan as it was written."""
    successors: dict[str, tuple[str, ...]]
    needed: dict[str, int]
    """How many nodes must be done before it."""


NO_GRAPH = Graph({}, {}, {}, {})


@dataclass(frozen=True, slots=True)
class Failure:
    """The first node that ended in a way that stops the job, and why."""

    node_id: str
    reason: str


@dataclass(slots=True)
class Sent:
    """What this process has appended and not yet folded: it is not said twice, but again after a restart."""

    requests: set[str] = field(default_factory=set[str])
    nodes: set[str] = field(default_factory=set[str])
    cancel: bool = False
    stop: int = -1
    """Up to which revision a job_stopping was sent."""
    end: bool = False
    upgrade: bool = False
    index: str | None = None


@dataclass(slots=True)
class Progress:
    """A live job: its fold, and what the next decision needs of it."""

    job: JobState
    created_at: str
    graph: Graph = NO_GRAPH
    missing: dict[str, int] = field(default_factory=dict[str, int])
    """Node → how many of the nodes that it needs are not done yet."""
    ready: list[str] = field(default_factory=list[str])
    settled: list[str] = field(default_factory=list[str])
    """Nodes that ended, and whose node_finished may still be to write."""
    ended: set[str] = field(default_factory=set[str])
    failure: Failure | None = None
    running: set[str] = field(default_factory=set[str])
    """Keys that are started or reopened."""
    parked: set[str] = field(default_factory=set[str])
    asking: set[str] = field(default_factory=set[str])
    """Keys that wait for an approval."""
    sent: Sent = field(default_factory=Sent)

    @property
    def waits_for_human(self) -> bool:
        """Whether some step of it goes on only when a human has answered."""
        return bool(self.parked) or (bool(self.asking) and self.job.stopping is None)

    @property
    def is_complete(self) -> bool:
        """Whether every node of the plan has ended."""
        return len(self.ended) == len(self.graph.declared)

    @property
    def is_stopping(self) -> bool:
        """Whether a job_stopping that covers the revision in force is in the log, or on its way there."""
        return self.has_stopped or self.sent.stop >= self.job.revision

    @property
    def has_stopped(self) -> bool:
        """Whether the log says that nothing of the revision in force starts any more."""
        return self.job.stopping is not None and self.job.stopping.up_to_revision >= self.job.revision

    def note(self, event: Event) -> None:
        """Follow an event that the fold took."""
        if isinstance(event, ev.KeyEvent):
            self._follow_key(event.idempotency_key)
        elif isinstance(event, ev.PlanGenerated):
            self._follow_plan()
        elif isinstance(event, ev.NodeFinished):
            self._follow_node(event)

    def fail(self, node_id: str, reason: str) -> None:
        """Remember the first failure; later ones change nothing."""
        self.ended.add(node_id)
        if self.failure is None:
            self.failure = Failure(node_id, reason)

    def entry(self, node_id: str) -> Entry:
        """The node's entry in force."""
        entry = self.job.entry(node_id)
        if entry is None:
            raise KeyError(node_id)
        return entry

    def only_reads(self, node_id: str) -> bool:
        """Whether the node leaves nothing behind: then a part of its result is a result like any other."""
        return self.entry(node_id).effect_class is EffectClass.PURE

    def _follow_plan(self) -> None:
        self.graph = graph_of(self.job)
        self.sent.requests.clear()  # readers drop a request that names another revision than the one in force
        self.missing = dict(self.graph.needed)
        for node_id in self.ended:
            if is_done(self.job, node_id):
                self._release(node_id)
        self.ready = [node_id for node_id, count in self.missing.items() if count == 0 and node_id not in self.ended]

    def _follow_key(self, key: str) -> None:
        state = self.job.keys[key]
        for held in (self.running, self.parked, self.asking):
            held.discard(key)
        if state.st in (St.STARTED, St.REOPENED):
            self.running.add(key)
        elif state.st is St.PARKED:
            self.parked.add(key)
        elif state.st is St.NONE and state.requested is not None and state.decision is None:
            self.asking.add(key)
        elif state.st is St.SETTLED:
            self._follow_settlement(state.node_id)

    def _follow_settlement(self, node_id: str) -> None:
        final = self.job.settled_key(node_id)
        if final is None or node_id in self.ended or node_id not in self.graph.declared:
            return
        _, state = final
        self.settled.append(node_id)
        if state.outcome is not Settled.SUCCESS:
            self.fail(node_id, state.reason or "failed")
        elif state.partial and not self.only_reads(node_id):
            self.fail(node_id, "took effect in part")
        else:
            self.ended.add(node_id)
            self.ready.extend(self._release(node_id))

    def _follow_node(self, event: ev.NodeFinished) -> None:
        """A node may end without an invocation: a reference that leads nowhere."""
        self.sent.nodes.add(event.node_id)
        if event.result_type == ev.Outcome.PERMANENT:
            self.fail(event.node_id, event.reason or "failed")

    def _release(self, node_id: str) -> Sequence[str]:
        """The nodes that only waited for this one."""
        released: list[str] = []
        for successor in self.graph.successors.get(node_id, ()):
            self.missing[successor] -= 1
            if self.missing[successor] == 0:
                released.append(successor)
        return released


def graph_of(job: JobState) -> Graph:
    """The plan in force of a job whose revisions the fold has checked."""
    nodes = {node_id: entries[-1] for node_id, entries in job.entries.items()}
    successors: dict[str, list[str]] = {node_id: [] for node_id in nodes}
    needed: dict[str, int] = {}
    for node_id, entry in nodes.items():
        before = needs(entry)
        needed[node_id] = len(before)
        for earlier in before:
            successors[earlier].append(node_id)
    order = check_graph(entry.node for entry in nodes.values())
    return Graph(
        step_index={node_id: index for index, node_id in enumerate(order)},
        declared={node_id: index for index, node_id in enumerate(nodes)},
        successors={node_id: tuple(found) for node_id, found in successors.items()},
        needed=needed,
    )
