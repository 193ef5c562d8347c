"""What the planner remembers of a live job beside its fold; every event costs O(what it changed)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from aetheris.planner.core.child_jobs import ChildJobs
from aetheris.protocol.base.stretches import Stretches
from aetheris.protocol.fold.start import is_stopped
from aetheris.protocol.fold.state import JobState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import MAX_OPEN_REQUESTS, ListedFreeze, ListedPause, OpenRequest
from aetheris.protocol.messages.event_values import Outcome
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.planning.approvals import votes_as_recorded, votes_that_count
from aetheris.protocol.planning.invocation import is_done, needs


@dataclass(frozen=True, slots=True)
class Graph:
    """The plan in force, as successors and places."""

    declared: dict[str, int]
    """Place in the plan as it was written."""
    successors: dict[str, tuple[str, ...]]
    needed: dict[str, int]
    """How many nodes must be done before it."""

    def add_call(self, node_id: str) -> None:
        """A body has planned it: it needs nothing, nothing needs it, and the body's plan is the request for it."""
        if node_id not in self.declared:
            self.declared[node_id] = len(self.declared)
            self.successors[node_id] = ()
            self.needed[node_id] = 0


Asking = ev.ApprovalRequested | ev.JobWaiting

SMALL_REQUEST_BYTES = 8 * 1024
"""Of a request that is repeated in its job's line of jobs.index; a larger one is read from jobs.events."""

IndexLine = tuple[str, ListedPause | None, ListedFreeze | None, tuple[OpenRequest, ...], bool]
"""What a job's line of jobs.index says of it: status, pause, freeze, requests; whether it says where records lie."""

NO_GRAPH = Graph({}, {}, {})

LONG_PAUSE_S = 10.0
"""From so long on a job that only waits for its next try rests, and leaves its room to others; a shorter is work."""

_RUNNING = frozenset({KeyStatus.STARTED, KeyStatus.REOPENED})


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The first node that ended in a way that stops the job, and why; of no node where nothing more can be planned."""

    node_id: str | None
    reason: str


@dataclass(slots=True)
class Sent:
    """What this process has appended and not yet folded: it is not said twice, but again after a restart."""

    requests: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    cancel: bool = False
    paused: int = 0
    """The number of the last job_paused."""
    resumed: int = 0
    """That of the last job_resumed."""
    stop: int = -1
    """Up to which revision a job_stopping was sent."""
    undo: bool = False
    question: bool = False
    end: bool = False
    upgrade: bool = False
    index: IndexLine | None = None


@dataclass(slots=True)
class JobProgress:
    """A live job: its fold, and what the next decision needs of it."""

    job: JobState
    created_at: str
    graph: Graph = NO_GRAPH
    missing: dict[str, int] = field(default_factory=dict)
    """Node → how many of the nodes that it needs are not done yet."""
    ready: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    """Nodes that ended, and whose node_finished may still be to write."""
    ended: set[str] = field(default_factory=set)
    failure: JobFailure | None = None
    committed: list[str] = field(default_factory=list)
    """Nodes that can be undone, in the order in which they settled as a success."""
    undo_failure: JobFailure | None = None
    """The compensation that failed."""
    running: set[str] = field(default_factory=set)
    """Keys that are started or reopened."""
    parked: set[str] = field(default_factory=set)
    asking: set[str] = field(default_factory=set)
    """Keys that wait for an approval."""
    waiting: set[str] = field(default_factory=set)
    """Keys of nodes that wait for a signal, a time or a human."""
    long_pauses: set[str] = field(default_factory=set)
    """Keys whose last scheduled try comes after a long pause."""
    requests: dict[str, OpenRequest] = field(default_factory=dict)
    """Key → its request to a human that waits for an answer, oldest first."""
    children: ChildJobs = field(default_factory=ChildJobs)
    """The jobs that it has begun."""
    sent: Sent = field(default_factory=Sent)
    stretches: Stretches = field(default_factory=Stretches)
    """Where its records lie, up to its seal."""
    seal_lies: bool = False
    """Whether its seal is among them."""

    @property
    def waits_for_human(self) -> bool:
        """Whether some step of it goes on only when a human has answered."""
        return bool(self.parked) or (bool(self.asking) and (self.job.stopping is None or self.is_undoing))

    @property
    def open_requests(self) -> tuple[OpenRequest, ...]:
        """What humans are asked and can answer now, as far as it is listed."""
        if not self.requests or self.job.terminal is not None:
            return ()
        asked = (request for request in self.requests.values() if not is_stopped(self.job, self.entry(request.node_id)))
        return tuple(islice(asked, MAX_OPEN_REQUESTS))

    @property
    def waits(self) -> bool:
        """Whether something of it goes on only when a human, a signal, a time or an upgrade has come."""
        return bool(self.job.open_waits) or self.waits_for_human

    @property
    def waits_for_upgrade(self) -> bool:
        """Whether the log says that it does."""
        return ("upgrade", None) in self.job.open_waits

    @property
    def is_open(self) -> bool:
        """Whether something that was begun is still to be settled, by an outcome, a human or the ledger."""
        return bool(self.running or self.parked or self.waiting or self.asking)

    @property
    def at_work(self) -> set[str]:
        """Of the keys that are started or reopened, those of calls: a body does nothing but wait for its own."""
        bodies = self.job.bodies
        return self.running if bodies is None else self.running - {body.key for body in bodies.of.values()}

    @property
    def is_complete(self) -> bool:
        """Whether every node of the plan has ended, and none is to come."""
        return len(self.ended) == len(self.graph.declared)

    @property
    def is_stopping(self) -> bool:
        """Whether a job_stopping that nothing escapes is in the log, or on its way there."""
        return self.has_stopped or self.sent.stop >= self.job.revision

    @property
    def has_stopped(self) -> bool:
        """Whether the log says that nothing starts any more."""
        return self.job.stopping is not None and not self.is_undoing

    @property
    def is_undoing(self) -> bool:
        """Whether compensations are in force; they are planned all at once."""
        undoing = self.job.compensations
        return bool(undoing) and not is_stopped(self.job, self.entry(undoing[-1]))

    @property
    def has_undone(self) -> bool:
        """Whether every compensation has succeeded."""
        return self.undo_failure is None and self.ended.issuperset(self.job.compensations)

    def note_pause(self, event: ev.RetryScheduled, now: str) -> None:
        """Follow what was said at `now` of when a key is tried again; a time that can't be read is no long pause."""
        try:
            pause_s = (datetime.fromisoformat(event.due_at) - datetime.fromisoformat(now)).total_seconds()
        except (ValueError, TypeError):
            pause_s = 0.0
        if pause_s >= LONG_PAUSE_S:
            self.long_pauses.add(event.idempotency_key)
        else:
            self.long_pauses.discard(event.idempotency_key)

    def note(self, event: Event) -> None:
        """Follow an event that the fold took."""
        self.children.note(self.job, event)
        if isinstance(event, ev.KeyEvent):
            self._follow_key(event.idempotency_key)
            if isinstance(event, ev.ApprovalRequested) and event.idempotency_key in self.asking:
                self._ask(event.idempotency_key, "approval", event, event.form)
            elif isinstance(event, ev.ApprovalVoted):
                self._count(event.idempotency_key)
        elif isinstance(event, ev.NodeFinished):
            self._follow_node(event)
        elif isinstance(event, ev.PlanGenerated):
            self._follow_plan()
        elif isinstance(event, ev.CallPlanned):
            self.graph.add_call(event.node_id)
        elif isinstance(event, (ev.JobWaiting, ev.WaitCompleted)):
            self._follow_wait(event)

    def fail(self, node_id: str, reason: str) -> None:
        """Remember the first failure, and the first of a compensation; later ones change nothing."""
        self.ended.add(node_id)
        if self.entry(node_id).node.compensates is not None:
            self.undo_failure = self.undo_failure or JobFailure(node_id, reason)
        elif self.failure is None:
            self.failure = JobFailure(node_id, reason)

    def is_undone(self, undo: str) -> bool:
        """Whether a compensation has succeeded, and not only in part."""
        settled = self.job.settled_key(undo)
        return settled is not None and settled[1].outcome is Settled.SUCCESS and not settled[1].partial

    def entry(self, node_id: str) -> PlanEntry:
        """The node's entry in force."""
        entry = self.job.entry(node_id)
        if entry is None:
            raise KeyError(node_id)
        return entry

    def is_call(self, node_id: str) -> bool:
        """Whether a body has planned the node: how it ends is that one's affair, and no end of the job."""
        return self.entry(node_id).call is not None

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
        self.ready = [
            node_id
            for node_id, count in self.missing.items()
            if count == 0 and node_id not in self.ended and not self.is_call(node_id)
        ]

    def _follow_key(self, key: str) -> None:
        state = self.job.keys[key]
        st = state.status
        for held in (self.parked, self.asking, self.waiting):
            if held:
                held.discard(key)
        if self.requests and (state.decision is not None or not (st is KeyStatus.NONE or state.is_asking)):
            self.requests.pop(key, None)
        if st in _RUNNING and not state.is_asking:
            self.running.add(key)
            return
        self.running.discard(key)
        if st is KeyStatus.SETTLED:
            self._follow_settlement(state.node_id)
        elif st is KeyStatus.PARKED:
            self.parked.add(key)
        elif state.is_waiting:
            self.waiting.add(key)
        elif state.is_asking:
            self.asking.add(key)

    def _follow_wait(self, event: ev.JobWaiting | ev.WaitCompleted) -> None:
        keys = self.job.node_keys.get(event.node_id, ()) if event.node_id is not None else ()
        for key in keys:
            if self.job.keys[key].waits_for is not None:
                self._follow_key(key)
        key = event.idempotency_key
        if isinstance(event, ev.JobWaiting) and event.form is not None and key in self.waiting:
            self._ask(key, "human", event, event.form)

    def _ask(
        self,
        key: str,
        kind: Literal["approval", "human"],
        event: ev.ApprovalRequested | ev.JobWaiting,
        form: dict[str, Any],
    ) -> None:
        asked = event.model_dump(mode="json", exclude_none=True)
        self.requests[key] = OpenRequest(
            id=str(form.get("id", "")),
            node_id=event.node_id or "",
            kind=kind,
            title=str(form.get("title", "")),
            offset=self.job.last_offset,
            created_at=str(form.get("created_at", "")),
            expires_at=form.get("expires_at"),
            asked=asked if len(json.dumps(asked)) <= SMALL_REQUEST_BYTES else None,
            approvals=event.approvals if isinstance(event, ev.ApprovalRequested) else None,
        )

    def _count(self, key: str) -> None:
        """Who has said yes to an open request is in the list, too."""
        state, listed = self.job.keys[key], self.requests.get(key)
        if listed is not None and state.requested is not None:
            votes = votes_that_count(state.requested, self.job.created, votes_as_recorded(state.votes))
            self.requests[key] = listed.model_copy(update={"votes": votes})

    def _follow_settlement(self, node_id: str) -> None:
        if node_id in self.ended or node_id not in self.graph.declared:
            return
        final = self.job.settled_key(node_id)
        if final is None:
            return
        _, state = final
        self.settled.append(node_id)
        node = self.entry(node_id).node
        if state.outcome is Settled.SUCCESS and node.compensate_with is not None:
            self.committed.append(node_id)
        if self.is_call(node_id):
            self.ended.add(node_id)
        elif state.outcome is not Settled.SUCCESS:
            self.fail(node_id, state.reason or "failed")
        elif state.partial and (node.compensates is not None or not self.only_reads(node_id)):
            self.fail(node_id, "took effect in part")
        else:
            self.ended.add(node_id)
            self.ready.extend(self._release(node_id))

    def _follow_node(self, event: ev.NodeFinished) -> None:
        """A node may end without an invocation: a reference that leads nowhere."""
        self.sent.nodes.add(event.node_id)
        if may_stop(event) and not self.is_call(event.node_id):
            self.fail(event.node_id, event.reason or "failed")

    def _release(self, node_id: str) -> Sequence[str]:
        """The nodes that only waited for this one."""
        released: list[str] = []
        for successor in self.graph.successors.get(node_id, ()):
            self.missing[successor] -= 1
            if self.missing[successor] == 0:
                released.append(successor)
        return released


def may_stop(event: ev.NodeFinished) -> bool:
    """Whether the job may stop by a node's end: any other changes nothing that is decided here."""
    return event.result_type == Outcome.PERMANENT


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
    return Graph(
        declared={node_id: index for index, node_id in enumerate(nodes)},
        successors={node_id: tuple(found) for node_id, found in successors.items()},
        needed=needed,
    )
