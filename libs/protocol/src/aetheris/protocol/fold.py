"""Who may run: one fold of a job's records, the same for everyone (docs/guarantees.md, "The log is the lock").

`apply` never looks at event ids, clocks or headers: only at payloads, in log order. What is not listed in the
rules is void and leaves the state as it was. Folding the same prefix gives the same answer everywhere.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

from pydantic import ValidationError

from aetheris.protocol import events as ev
from aetheris.protocol.events import Decision, Event, Outcome, RejectReason, Via
from aetheris.protocol.keys import external_key
from aetheris.protocol.plan import (
    AWAITED,
    EffectClass,
    InvalidPlan,
    Node,
    TaskGraph,
    ToolPin,
    check_graph,
    compensation_of,
    dependencies,
    tools_of,
)
from aetheris.protocol.references import references


class St(StrEnum):
    """The state of a key."""

    NONE = "none"
    STARTED = "started"
    PARKED = "parked"
    REOPENED = "reopened"
    SETTLED = "settled"


class Settled(StrEnum):
    """How a settled key ended."""

    SUCCESS = "success"
    FAILED = "failed"
    REJECTED = "rejected"


NODE_WAITS = frozenset({"signal", "timer", "human"})
"""The waits that are a node's own work: their end is the node's end."""

OPEN = frozenset({St.NONE, St.REOPENED})
IN_FLIGHT = frozenset({St.STARTED, St.PARKED, St.REOPENED})


@dataclass(slots=True)
class Try:
    """A validly started nonce."""

    external_key: str
    worker_id: str
    incarnation: str
    offset: int


@dataclass(slots=True)
class KeyState:
    """One idempotency key: st, n, t, x, live, outcome, sure as in docs/guarantees.md.

    What few keys have is a tuple or a frozenset: there is one of these for every step, and empty ones are shared.
    """

    node_id: str
    st: St = St.NONE
    n: str | None = None
    t: int = 1
    x: int = 1
    live: frozenset[str] = frozenset()
    tries: dict[str, Try] = field(default_factory=dict)
    outcome: Settled | None = None
    sure: bool = True
    settled_by: str | None = None
    via: Via | None = None
    partial: bool = False
    reason: str | None = None
    result: Any = None
    result_ref: ev.BlobRef | None = None
    result_hash: str | None = None
    external_id: str | None = None
    started: ev.ToolInvocationStarted | None = None
    in_doubt: str | None = None
    probes: tuple[tuple[int, ev.InvocationProbed], ...] = ()
    parked: ev.InvocationParked | None = None
    """What says that only a human can tell, until the next try."""
    retry_due: str | None = None
    allowed_versions: frozenset[str] = frozenset()
    decision: ev.ApprovalDecided | None = None
    requested: ev.ApprovalRequested | None = None
    waits_for: ev.JobWaiting | None = None
    duplicate_of: ev.DuplicateOf | None = None
    cancel_requested: bool = False
    wait_ended: ev.WaitCompleted | None = None
    rejected_by: str | None = None
    """The human who refused to answer a form."""
    alarms: tuple[str, ...] = ()

    @property
    def parked_because(self) -> str | None:
        """Why only a human can tell."""
        return self.parked.reason if self.parked is not None else None

    @property
    def is_waiting(self) -> bool:
        """Whether it is a node's wait whose end has not come."""
        return self.waits_for is not None and self.st is St.NONE

    @property
    def is_asking(self) -> bool:
        """Whether a human is asked for approval and has not answered."""
        return self.st is St.NONE and self.requested is not None and self.decision is None

    @property
    def attempts(self) -> int:
        """Tries so far."""
        return len(self.tries)


_UNTOUCHED = KeyState("")
"""How a key stands that no record has named; never changed."""


@dataclass(slots=True)
class Entry:
    """A node with its tool's pin, in force from `revision` on; never changed."""

    revision: int
    node: Node
    pin: ToolPin | None

    def same_as(self, other: "Entry") -> bool:
        """The whole entry: tool, version, planned arguments, dependencies."""
        return self.node == other.node and self.pin == other.pin

    @property
    def irreversible(self) -> bool:
        """The tool's declaration; a plan may raise it, never lower it."""
        return self.node.irreversible or (self.pin is not None and self.pin.irreversible)

    @property
    def tool_version(self) -> str:
        """The version that the tool is pinned to; kinds without a tool have one version."""
        return self.pin.version if self.pin is not None else "1"

    @property
    def effect_class(self) -> EffectClass:
        """The tool's class; kinds without a tool read only."""
        return self.pin.effect_class if self.pin is not None else EffectClass.PURE


WaitOf = tuple[str, str | None]
"""wait_type, node_id"""


@dataclass(slots=True)
class JobState:
    """A job as its records so far say."""

    job_id: str
    birth: int
    created: ev.JobCreated
    tools: dict[str, ToolPin] = field(default_factory=dict)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    """The nodes of the plan in force, each behind what it needs."""
    plan_hashes: list[str] = field(default_factory=list)
    keys: dict[str, KeyState] = field(default_factory=dict)
    node_keys: dict[str, list[str]] = field(default_factory=dict)
    nonces: dict[str, str] = field(default_factory=dict)
    contents: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    ended_workers: dict[tuple[str, str], int] = field(default_factory=dict)
    finished: dict[str, ev.NodeFinished] = field(default_factory=dict)
    compensations: list[str] = field(default_factory=list)
    """The nodes that undo others, as their revisions declared them."""
    cancel: ev.CancelRequested | None = None
    stopping: ev.JobStopping | None = None
    terminal: Event | None = None
    sealed: bool = False
    waits: set[tuple[str, str | None, str | None]] = field(default_factory=set)
    """wait_type, node_id and correlation_key of all that there were."""
    open_waits: dict[WaitOf, ev.JobWaiting] = field(default_factory=dict)
    signals: dict[str, ev.SignalReceived] = field(default_factory=dict)
    """By correlation key; the first one counts."""
    needs_upgrade: bool = False
    last_offset: int = -1

    @property
    def trace(self) -> bool | None:
        """Whether its submission wants it traced; None where it leaves that to the services."""
        return None if self.created.options is None else self.created.options.trace

    @property
    def waiting(self) -> ev.JobWaiting | None:
        """What it waits for since last, beside a human's word on a parked call."""
        return next(reversed(self.open_waits.values()), None)

    @property
    def revision(self) -> int:
        """The plan revision in force; −1 before the first."""
        return len(self.plan_hashes) - 1

    @property
    def plan_hash(self) -> str:
        """The hash of the revision in force."""
        return self.plan_hashes[-1]

    def entry(self, node_id: str, revision: int | None = None) -> Entry | None:
        """A node's entry in a revision (default: the one in force)."""
        entries = self.entries.get(node_id)
        if entries is None:
            return None
        if revision is None or entries[-1].revision <= revision:
            return entries[-1]
        return next((entry for entry in reversed(entries) if entry.revision <= revision), None)

    def key(self, key: str, node_id: str) -> KeyState:
        """A key's state, registered under its node at first sight."""
        state = self.keys.get(key)
        if state is None:
            state = self.keys[key] = KeyState(node_id)
            self.node_keys.setdefault(node_id, []).append(key)
        return state

    def settled_key(self, node_id: str) -> tuple[str, KeyState] | None:
        """The node's key that counts: settled; a rejected or unstarted key that another key followed does not."""
        keys = self.node_keys.get(node_id, ())
        for key in keys:
            state = self.keys[key]
            if state.st is St.SETTLED and state.outcome is not Settled.REJECTED:
                return key, state
        if keys and self.keys[keys[-1]].st is St.SETTLED and not any(self.keys[key].st in IN_FLIGHT for key in keys):
            return keys[-1], self.keys[keys[-1]]
        return None

    def in_flight(self) -> list[str]:
        """The keys that are started, parked or reopened."""
        return [key for key, state in self.keys.items() if state.st in IN_FLIGHT]


def birth(event: ev.JobCreated, offset: int) -> JobState:
    """The state of a job whose first record lies at `offset`; later job_created of it are void.

    The plan in `event` is not kept: what is in force is what plan_generated says.
    """
    created = event if event.plan is None else event.model_copy(update={"plan": None})
    return JobState(event.job_id, offset, created, last_offset=offset)


def apply(job: JobState, event: Event, offset: int) -> bool:
    """Fold one event into `job`; whether it changed anything that decides (False: void)."""
    job.last_offset = offset
    rule = _RULES.get(type(event))
    return rule(job, event, offset) if rule is not None else False


def start_is_void(job: JobState, e: ev.ToolInvocationStarted) -> str | None:
    """Why this `started` would be void at this place in the log; None where it would count."""
    return _start_is_void(job, e, job.entry(e.node_id))


def _start_is_void(job: JobState, e: ev.ToolInvocationStarted, entry: Entry | None) -> str | None:
    state = job.keys.get(e.idempotency_key, _UNTOUCHED)
    if state.node_id != e.node_id and state is not _UNTOUCHED:
        return "the key belongs to another node"
    if state.st not in OPEN:
        return f"the key is {state.st}"
    if e.token != state.t:
        return f"token {e.token} is not the generation {state.t}"
    if e.invocation_id in job.nonces:
        return "the nonce was used before"
    if e.attempt_id != state.x - 1 or e.external_key != external_key(job.job_id, e.node_id, state.x - 1):
        return "the external key does not follow from the fold"
    if state.decision is not None and state.decision.decision is not Decision.APPROVE:
        return "a human said no or edited the call"
    void = _not_in_force(job, e, entry) or _node_is_taken(job, e)
    if void is None and e.after:
        void = _after_fails(job, e)
    if void is None and entry is not None and entry.irreversible:
        void = _irreversible_fails(job, e, state)
    return void


def _not_in_force(job: JobState, e: ev.ToolInvocationStarted, current: Entry | None) -> str | None:
    if job.terminal is not None:
        return "the job has ended"
    if current is None or e.revision > job.revision:
        return "the node's entry is not the one in force"
    if current.revision > e.revision:
        named = job.entry(e.node_id, e.revision)
        if named is None or not named.same_as(current):
            return "the node's entry is not the one in force"
    return "the job is stopping" if is_stopped(job, current) else None


def is_stopped(job: JobState, entry: Entry) -> bool:
    """Whether a stop keeps an entry from starting: behind one, only compensations of a later revision start.

    The entry's own revision counts, never the one that a `started` names.
    """
    stop = job.stopping
    return stop is not None and (entry.node.compensates is None or entry.revision <= stop.up_to_revision)


def may_compensate(job: JobState) -> bool:
    """Whether compensations may be planned: behind a stop, when nothing is open and nobody is to decide first."""
    if job.stopping is None or job.terminal is not None or job.in_flight():
        return False
    return job.cancel.compensate if job.cancel is not None else unsure(job) is None


def unsure(job: JobState) -> str | None:
    """A node that ended without success, and may have taken effect all the same."""
    for state in job.keys.values():
        if state.st is St.SETTLED and state.outcome is not Settled.SUCCESS and not state.sure:
            entry = job.entry(state.node_id)
            if entry is None or entry.effect_class is not EffectClass.PURE:
                return state.node_id
    return None


def _node_is_taken(job: JobState, e: ev.ToolInvocationStarted) -> str | None:
    for key in job.node_keys.get(e.node_id, ()):
        other = job.keys[key]
        if key == e.idempotency_key or other.st is St.NONE:
            continue
        if not (other.st is St.SETTLED and other.outcome is Settled.REJECTED and other.sure):
            return "another key of the node is in flight or settled"
    return None


def _after_fails(job: JobState, e: ev.ToolInvocationStarted) -> str | None:
    for after in e.after:
        key = job.nonces.get(after.invocation_id)
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
    if not _approved(e, state) and e.tool_version not in state.allowed_versions:
        return "irreversible, and neither approved nor allowed by policy"
    for key in job.contents.get((e.content_key, e.occurrence), ()):
        other = job.keys[key]
        if key == e.idempotency_key or other.st is St.NONE:
            continue
        if other.st is not St.SETTLED or other.outcome is Settled.SUCCESS or not other.sure:
            return "the same irreversible call is in flight or done"
    return None


def _approved(e: ev.ToolInvocationStarted, state: KeyState) -> bool:
    """An approval holds for exactly what was shown: these arguments, this version of the tool."""
    said = state.decision
    return said is not None and (said.tool_version, said.args_hash) == (e.tool_version, e.args_hash)


def _created(job: JobState, e: ev.JobCreated, offset: int) -> bool:
    return False


def _planned(job: JobState, e: ev.PlanGenerated, offset: int) -> bool:
    if e.revision != job.revision + 1:
        return False
    graph = e.task_graph if e.revision == 0 else e.diff
    if graph is None:
        return False
    try:
        added = TaskGraph.model_validate(graph)
        order = check_graph(_nodes_with(job, added))
    except (ValidationError, InvalidPlan):
        return False
    tools = job.tools | added.tools
    if any(tool not in tools for node in added.nodes for tool in tools_of(node)):
        return False
    undoing = [node.id for node in added.nodes if node.compensates is not None]
    if (undoing or job.stopping is not None) and not _compensates(job, added.nodes):
        return False
    job.compensations += undoing
    job.tools, job.order = tools, order
    job.plan_hashes.append(e.plan_hash)
    for node in added.nodes:
        pin = tools[node.tool] if node.tool is not None else None
        job.entries.setdefault(node.id, []).append(Entry(e.revision, node, pin))
    return True


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
    if not job.entries:
        return added.nodes
    replacing = {node.id: node for node in added.nodes}
    if len(replacing) < len(added.nodes):  # a node that stands twice is for `check_graph` to refuse
        return added.nodes
    kept = [replacing.get(node_id, entries[-1].node) for node_id, entries in job.entries.items()]
    return [*kept, *(node for node in added.nodes if node.id not in job.entries)]


def _started(job: JobState, e: ev.ToolInvocationStarted, offset: int) -> bool:
    entry = job.entry(e.node_id)
    if _start_is_void(job, e, entry) is not None:
        return False
    state = job.key(e.idempotency_key, e.node_id)
    state.st, state.n, state.started = St.STARTED, e.invocation_id, e
    state.live |= {e.invocation_id}
    state.tries[e.invocation_id] = Try(e.external_key, e.worker_id, e.incarnation, offset)
    state.in_doubt = state.parked = state.retry_due = None
    job.nonces[e.invocation_id] = e.idempotency_key
    if entry is not None and entry.irreversible:
        same = job.contents.setdefault((e.content_key, e.occurrence), [])
        if e.idempotency_key not in same:
            same.append(e.idempotency_key)
    return True


def _finished(job: JobState, e: ev.ToolInvocationFinished, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or state.node_id != e.node_id:
        return False
    if state.st is St.SETTLED:
        return _after_settlement(job, state, e)
    if e.outcome.took_effect:
        return _succeed(state, e)
    if e.outcome is Outcome.PERMANENT:
        return _fail(state, e)
    return _prove_unexecuted(state, e)


def _succeed(state: KeyState, e: ev.ToolInvocationFinished) -> bool:
    if e.invocation_id not in state.live:
        return False
    _settle(state, Settled.SUCCESS, e, sure=False)
    state.partial = e.outcome is Outcome.COMPENSATABLE
    state.result, state.result_ref, state.result_hash = e.result, e.result_ref, e.output_hash
    state.external_id = e.external_id
    return True


def _fail(state: KeyState, e: ev.ToolInvocationFinished) -> bool:
    if e.invocation_id != state.n:
        return False
    if e.via in (Via.EXECUTOR, Via.LATE) and e.invocation_id in state.live:
        sure = state.live == frozenset((e.invocation_id,))
    elif e.via is Via.LEDGER and state.st in (St.STARTED, St.REOPENED):
        sure = state.st is St.REOPENED and not state.live
    elif e.via is Via.HUMAN and state.st is St.PARKED:
        sure = False
    else:
        return False
    _settle(state, Settled.FAILED, e, sure=sure)
    state.reason = e.error
    return True


def _prove_unexecuted(state: KeyState, e: ev.ToolInvocationFinished) -> bool:
    """Retryable: written by the try itself, only where it certainly took no effect."""
    if e.invocation_id not in state.live:
        return False
    state.live -= {e.invocation_id}
    if e.invocation_id == state.n and state.st in (St.STARTED, St.PARKED):
        _reopen(state)
        state.reason = e.error
        if not state.live:
            state.x += 1
    return True


def _settle(state: KeyState, outcome: Settled, e: ev.ToolInvocationFinished, *, sure: bool) -> None:
    state.st, state.outcome, state.sure = St.SETTLED, outcome, sure
    state.settled_by, state.via = e.invocation_id, e.via


def _reopen(state: KeyState) -> None:
    state.st = St.REOPENED
    state.t += 1


def _after_settlement(job: JobState, state: KeyState, e: ev.ToolInvocationFinished) -> bool:
    """A success from another validly started nonce is evidence of a second effect."""
    tried = state.tries.get(e.invocation_id)
    if not e.outcome.took_effect or tried is None:
        return False
    if state.outcome is Settled.SUCCESS and state.settled_by == e.invocation_id:
        return False
    entry = job.entry(state.node_id)
    if entry is None or entry.effect_class is EffectClass.PURE:
        return False
    settled = state.tries.get(state.settled_by or "")
    same_key = state.outcome is Settled.SUCCESS and settled is not None and settled.external_key == tried.external_key
    if (entry.effect_class is EffectClass.IDEMPOTENT and same_key) or e.invocation_id in state.alarms:
        return False
    state.alarms += (e.invocation_id,)
    return True


def _reopened(job: JobState, e: ev.InvocationReopened, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or e.invocation_id != state.n:
        return False
    if state.st is not (St.PARKED if e.by == "human" else St.STARTED):
        return False
    _reopen(state)
    return True


def _parked(job: JobState, e: ev.InvocationParked, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or e.invocation_id != state.n or state.st is not St.STARTED:
        return False
    state.st, state.parked = St.PARKED, e
    return True


def _rejected(job: JobState, e: ev.InvocationRejected, offset: int) -> bool:
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or state.st not in OPEN:
        return False
    overrules_yes = e.reason in (RejectReason.APPROVAL, RejectReason.EDITED, RejectReason.EXPIRED)
    if overrules_yes and state.decision is not None and state.decision.decision is Decision.APPROVE:
        return False
    state.st, state.outcome, state.sure = St.SETTLED, Settled.REJECTED, not state.live
    state.reason, state.duplicate_of, state.rejected_by = e.reason.value, e.duplicate_of, e.by
    _wait_is_over(job, e.node_id)
    return True


def _allowed(job: JobState, e: ev.PolicyAllowed, offset: int) -> bool:
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or e.tool_version in state.allowed_versions:
        return False
    state.allowed_versions |= {e.tool_version}
    return True


def _approval_requested(job: JobState, e: ev.ApprovalRequested, offset: int) -> bool:
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or state.requested is not None:
        return False
    state.requested = e
    return True


def _decided(job: JobState, e: ev.ApprovalDecided, offset: int) -> bool:
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or state.decision is not None:
        return False
    state.decision = e
    job.open_waits.pop(("approval", e.node_id), None)
    if e.decision is Decision.EDIT and e.data is not None and state.st is St.NONE:
        _edit(job, e.node_id, e.data)
    return True


def _edit(job: JobState, node_id: str, args: dict[str, Any]) -> None:
    """From here on the node makes the call with the human's arguments, until a revision of the plan replaces it."""
    entry = job.entry(node_id)
    if entry is not None and not any(references(args)):
        node = entry.node.model_copy(update={"args": args, "depends_on": dependencies(entry.node)})
        job.entries[node_id].append(Entry(entry.revision, node, entry.pin))


def _in_doubt(job: JobState, e: ev.InvocationInDoubt, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or state.st is not St.STARTED or state.n != e.invocation_id or state.in_doubt is not None:
        return False
    state.in_doubt = e.error_class
    return True


def _probed(job: JobState, e: ev.InvocationProbed, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or e.invocation_id not in state.tries:
        return False
    state.probes += ((offset, e),)
    return True


def _cancel_asked(job: JobState, e: ev.InvocationCancelRequested, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or state.st not in IN_FLIGHT or state.cancel_requested:
        return False
    state.cancel_requested = True
    return True


def _retry_scheduled(job: JobState, e: ev.RetryScheduled, offset: int) -> bool:
    state = job.keys.get(e.idempotency_key)
    if state is None or state.st is not St.REOPENED:
        return False
    state.retry_due = e.due_at
    return True


def _worker_ended(job: JobState, e: ev.WorkerEnded, offset: int) -> bool:
    who = (e.worker_id, e.incarnation)
    if who in job.ended_workers:
        return False
    job.ended_workers[who] = offset
    return True


def _node_finished(job: JobState, e: ev.NodeFinished, offset: int) -> bool:
    earlier = job.finished.get(e.node_id)
    if earlier is not None and not (e.result_type == "compensated" and earlier.result_type != "compensated"):
        return False
    job.finished[e.node_id] = e
    return True


def _cancel(job: JobState, e: ev.CancelRequested, offset: int) -> bool:
    if job.cancel is not None:
        return False
    job.cancel = e
    return True


def _stopping(job: JobState, e: ev.JobStopping, offset: int) -> bool:
    if job.stopping is not None and job.stopping.up_to_revision >= e.up_to_revision:
        return False
    job.stopping = e
    return True


def _terminal(job: JobState, e: Event, offset: int) -> bool:
    if job.terminal is not None:
        return False
    job.terminal = e
    return True


def _waiting(job: JobState, e: ev.JobWaiting, offset: int) -> bool:
    this = (e.wait_type, e.node_id, e.correlation_key)
    if this in job.waits or (_is_of_node(e) and not _begins(job, e)):
        return False
    job.waits.add(this)
    job.open_waits[e.wait_type, e.node_id] = e
    return True


def _is_of_node(e: ev.JobWaiting) -> bool:
    return e.node_id is not None and e.wait_type in NODE_WAITS


def _begins(job: JobState, e: ev.JobWaiting) -> bool:
    """A node's wait needs a node that waits, whose key is free, in a job that goes on."""
    if e.node_id is None or e.idempotency_key is None or job.terminal is not None:
        return False
    entry = job.entry(e.node_id)
    if entry is None or entry.node.kind not in AWAITED or is_stopped(job, entry):
        return False
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or state.st is not St.NONE or (e.wait_type, e.node_id) in job.open_waits:
        return False
    state.waits_for = e
    return True


def _wait_completed(job: JobState, e: ev.WaitCompleted, offset: int) -> bool:
    """The first end of a wait counts; a node's own wait settles its key, with the payload as the result."""
    waiting = job.open_waits.pop((e.wait_type, e.node_id), None)
    if waiting is None:
        return False
    if _is_of_node(waiting):
        state = job.keys[waiting.idempotency_key or ""]
        state.st, state.outcome, state.sure = St.SETTLED, Settled.SUCCESS, False
        state.result, state.result_hash, state.wait_ended = e.payload, e.output_hash, e
    return True


def _wait_is_over(job: JobState, node_id: str) -> None:
    for wait_type in ("approval", *NODE_WAITS):
        job.open_waits.pop((wait_type, node_id), None)


def _signalled(job: JobState, e: ev.SignalReceived, offset: int) -> bool:
    if e.correlation_key in job.signals:
        return False
    job.signals[e.correlation_key] = e
    return True


def _repeated(job: JobState, e: ev.BirthRepeated, offset: int) -> bool:
    """Who took a repeat for the birth, long after the seal, forgets the job again."""
    if job.sealed or e.birth >= job.birth:
        return False
    job.sealed = True
    return True


def _sealed(job: JobState, e: ev.JobSealed, offset: int) -> bool:
    if job.sealed:
        return False
    job.sealed = True
    return True


_Rule = Callable[[JobState, Any, int], bool]

_RULES: Mapping[type[Event], _Rule] = cast(
    "Mapping[type[Event], _Rule]",
    {
        ev.JobCreated: _created,
        ev.PlanGenerated: _planned,
        ev.ToolInvocationStarted: _started,
        ev.ToolInvocationFinished: _finished,
        ev.InvocationReopened: _reopened,
        ev.InvocationParked: _parked,
        ev.InvocationRejected: _rejected,
        ev.PolicyAllowed: _allowed,
        ev.ApprovalRequested: _approval_requested,
        ev.ApprovalDecided: _decided,
        ev.InvocationInDoubt: _in_doubt,
        ev.InvocationProbed: _probed,
        ev.InvocationCancelRequested: _cancel_asked,
        ev.RetryScheduled: _retry_scheduled,
        ev.WorkerEnded: _worker_ended,
        ev.NodeFinished: _node_finished,
        ev.CancelRequested: _cancel,
        ev.JobStopping: _stopping,
        ev.JobCompleted: _terminal,
        ev.JobFailed: _terminal,
        ev.JobCancelled: _terminal,
        ev.JobWaiting: _waiting,
        ev.WaitCompleted: _wait_completed,
        ev.SignalReceived: _signalled,
        ev.JobSealed: _sealed,
        ev.BirthRepeated: _repeated,
    },
)

UNREAD: frozenset[bytes] = frozenset(
    f"io.aetheris.{name}.v1".encode() for name, kind in ev.EVENTS.items() if kind not in _RULES
)
"""The ce_type of facts that no rule reads: whoever only folds may leave them unparsed."""
