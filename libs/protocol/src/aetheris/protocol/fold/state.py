"""What a job's records come to: its keys, its nodes in force, its waits."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import BlobRef, DuplicateOf, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import (
    EffectClass,
    Node,
    ToolPin,
)


class KeyStatus(StrEnum):
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

MOST_UNCALLED = 20
"""So many tries that were never called are none of the plan's attempts; any more count: none goes on for ever."""

OPEN = frozenset({KeyStatus.NONE, KeyStatus.REOPENED})
IN_FLIGHT = frozenset({KeyStatus.STARTED, KeyStatus.PARKED, KeyStatus.REOPENED})


class StartedInvocation(Struct):
    """A validly started invocation."""

    external_key: str
    worker_id: str
    incarnation: str
    offset: int


class KeyState(Struct):
    """One idempotency key: st, n, t, x, live, outcome, sure as in docs/guarantees.md.

    There is one of these for every step: a dataclass with as many fields takes seven times as long to make. What few
    keys have is a tuple or a frozenset, whose empty ones are shared.
    """

    node_id: str
    status: KeyStatus = KeyStatus.NONE
    current_invocation: str | None = None
    fencing_token: int = 1
    external_attempt: int = 1
    unresolved: frozenset[str] = frozenset()
    invocations: dict[str, StartedInvocation] = msgspec.field(default_factory=dict[str, StartedInvocation])
    outcome: Settled | None = None
    sure: bool = True
    settled_by: str | None = None
    via: Via | None = None
    partial: bool = False
    reason: str | None = None
    detail: str | None = None
    result: Any = None
    result_ref: BlobRef | None = None
    result_hash: str | None = None
    usage: dict[str, Any] | None = None
    """What a success has used: of a model's answer."""
    external_id: str | None = None
    started: ev.ToolInvocationStarted | None = None
    in_doubt: str | None = None
    returned: frozenset[str] = frozenset()
    """Tries whose own code has raised and can act no more."""
    uncalled: int = 0
    """Tries whose executor stopped before it made the call."""
    probes: tuple[tuple[int, ev.InvocationProbed], ...] = ()
    parked: ev.InvocationParked | None = None
    """What says that only a human can tell, until the next try."""
    retry_due: str | None = None
    allowed: tuple[ev.PolicyAllowed, ...] = ()
    """The policy's own word, the first on each version of the tool."""
    decision: ev.ApprovalDecided | None = None
    requested: ev.ApprovalRequested | None = None
    votes: tuple[ev.ApprovalVoted, ...] = ()
    """Who has said yes to the open request, each once; nothing starts by that."""
    resolutions: tuple[tuple[int, ev.ResolutionVoted], ...] = ()
    """What people have said of the parked try, and where, if several must; nothing is settled by that."""
    asks: int = 1
    """The token that an approval must carry: a human's retry of what needed one needs another, under its own."""
    answered: tuple[tuple[ev.ApprovalRequested, ev.ApprovalDecided | None], ...] = ()
    """What was asked and said before such a retry."""
    waits_for: ev.JobWaiting | None = None
    duplicate_of: DuplicateOf | None = None
    cancel_requested: bool = False
    wait_ended: ev.WaitCompleted | None = None
    rejected_by: str | None = None
    """The human who refused to answer a form."""
    alarms: tuple[str, ...] = ()

    def allowed_as(self, version: str) -> ev.PolicyAllowed | None:
        """The policy's own word on a version of the tool."""
        return next((word for word in self.allowed if word.tool_version == version), None)

    def last_word(self, by: str) -> tuple[int, ev.ResolutionVoted | None]:
        """Where somebody said last what became of the parked try, and what; -1, None: he has not."""
        return next((said for said in reversed(self.resolutions) if said[1].by == by), (-1, None))

    def model_copy(self, *, update: dict[str, Any]) -> "KeyState":
        """A copy with other values in some fields."""
        return replace(self, **update)

    @property
    def parked_because(self) -> str | None:
        """Why only a human can tell."""
        return self.parked.reason if self.parked is not None else None

    @property
    def is_waiting(self) -> bool:
        """Whether it is a node's wait whose end has not come."""
        return self.waits_for is not None and self.status is KeyStatus.NONE

    @property
    def is_asking(self) -> bool:
        """Whether a human is asked for approval and has not answered."""
        asked = self.requested is not None and self.decision is None
        return asked and (self.status is KeyStatus.NONE or (self.status is KeyStatus.REOPENED and self.needs_yes))

    @property
    def needs_yes(self) -> bool:
        """Whether nothing but a human's yes to this very retry lets it start."""
        return self.asks > 1

    @property
    def may_act(self) -> bool:
        """Whether a try of it has neither come back nor been proved unexecuted, however it was settled meanwhile."""
        if self.outcome is Settled.SUCCESS:
            return bool(self.unresolved - {self.settled_by})
        return bool(self.unresolved) and not (self.outcome is Settled.FAILED and self.sure)

    @property
    def invocation_count(self) -> int:
        """Tries so far."""
        return len(self.invocations)

    @property
    def attempt_count(self) -> int:
        """Tries that the plan's retry counts."""
        return len(self.invocations) - min(self.uncalled, MOST_UNCALLED)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """What a body has planned: its call, as it must start, and who may start it first."""

    parent: str
    """The body's node."""
    invocation_id: str
    """The body that planned it last: the same one starts it."""
    planned: Node
    """As the body planned it; a human may have edited the entry since."""
    key: str
    args_hash: str


@dataclass(slots=True)
class PlanEntry:
    """A node with its tool's pin, in force from `revision` on; never changed."""

    revision: int
    node: Node
    pin: ToolPin | None
    call: PlannedCall | None = None
    """Of a call that a body has planned."""

    def same_as(self, other: "PlanEntry") -> bool:
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
    def timeout_s(self) -> float | None:
        """How long a call may take: the tool's word, which the plan may shorten; None for kinds without a tool."""
        if self.pin is None:
            return None
        return self.pin.timeout_s if self.node.timeout_s is None else min(self.node.timeout_s, self.pin.timeout_s)

    @property
    def effect_class(self) -> EffectClass:
        """The tool's class; kinds without a tool read only."""
        return self.pin.effect_class if self.pin is not None else EffectClass.PURE


@dataclass(slots=True)
class BodyState:
    """The body of a node, and what its calls so far come to: those that started are recorded, but for pure ones."""

    key: str = ""
    """Of its node."""
    invocation_id: str | None = None
    """Who began last."""
    expected: int = 0
    """The sum of the weights of what was recorded when he began: what he must have asked for before anything new."""
    has_asked: bool = False
    """Whether he has said so."""
    next_word: str | None = None
    """What the word of its next call is the preimage of; None: it can plan none."""
    children: int = 0
    recorded: int = 0
    """The same sum, now; a call that surely failed is in it until somebody looks."""
    unsettled: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Keys that have started, with their weights, but for those that are known to have settled."""
    waived: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Hash of the code → the recorded nodes that it need not ask for."""


@dataclass(slots=True)
class Bodies:
    """The bodies of a job, by node, and what their calls may be."""

    of: dict[str, BodyState]
    pins: dict[str, ToolPin]
    """The tools of the first plan: a body pins none."""
    awaited: set[str]
    """The keys of signals that nodes wait for."""


WaitOf = tuple[str, str | None]
"""wait_type, node_id"""


@dataclass(slots=True)
class JobState:
    """A job as its records so far say."""

    job_id: str
    creation_offset: int
    created: ev.JobCreated
    tools: dict[str, ToolPin] = field(default_factory=dict)
    entries: dict[str, list[PlanEntry]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """Of each node of the plan in force, behind what it needs; what bodies have planned since comes behind them."""
    plan_hashes: list[str] = field(default_factory=list)
    keys: dict[str, KeyState] = field(default_factory=dict)
    node_keys: dict[str, list[str]] = field(default_factory=dict)
    invocation_keys: dict[str, str] = field(default_factory=dict)
    void_starts: dict[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    """Key → invocation_id and token of the `started` that were void and could count where they stood later."""
    keys_by_content: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    ended_workers: dict[tuple[str, str], int] = field(default_factory=dict)
    """Whose `started` counts no more, and since when."""
    gone: set[tuple[str, str]] = field(default_factory=set)
    """Of those, who is known to act no more: not by the word of who submitted the job."""
    finished: dict[str, ev.NodeFinished] = field(default_factory=dict)
    compensations: list[str] = field(default_factory=list)
    """The nodes that undo others, as their revisions declared them."""
    bodies: Bodies | None = None
    """None where no node plans calls itself, as in most jobs."""
    cancel: ev.CancelRequested | None = None
    stopping: ev.JobStopping | None = None
    paused: ev.JobPaused | None = None
    """The pause in force: nothing starts."""
    pauses: int = 0
    """How many there were."""
    revoked: frozenset[str] = frozenset()
    """The keys of services that its root has revoked in it."""
    frozen: dict[FreezeScope, ev.JobFrozen] = field(default_factory=dict)
    """The freezes in force."""
    freezes: dict[FreezeScope, int] = field(default_factory=dict)
    """The number of the last freeze of each scope."""
    terminal: Event | None = None
    sealed: bool = False
    waits: set[tuple[str, str | None, str | None]] = field(default_factory=set)
    """wait_type, node_id and correlation_key of all that there were."""
    open_waits: dict[WaitOf, ev.JobWaiting] = field(default_factory=dict)
    acceptances: tuple[ev.ResolutionVoted, ...] = ()
    """Who accepts what could not be confirmed, where several must."""
    signals: dict[str, ev.SignalReceived] = field(default_factory=dict)
    """By correlation key; the first one counts."""
    needs_upgrade: bool = False
    unread: str | None = None
    """What it was first that this version can't read, in words, where whoever folds it tells."""
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

    def entry(self, node_id: str, revision: int | None = None) -> PlanEntry | None:
        """A node's entry in a revision (default: the one in force)."""
        entries = self.entries.get(node_id)
        if entries is None:
            return None
        if revision is None:
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
            if state.status is KeyStatus.SETTLED and state.outcome is not Settled.REJECTED:
                return key, state
        if (
            keys
            and self.keys[keys[-1]].status is KeyStatus.SETTLED
            and not any(self.keys[key].status in IN_FLIGHT for key in keys)
        ):
            return keys[-1], self.keys[keys[-1]]
        return None

    def in_flight(self) -> list[str]:
        """The keys that are started, parked or reopened."""
        return [key for key, state in self.keys.items() if state.status in IN_FLIGHT]


def create_job(event: ev.JobCreated, offset: int) -> JobState:
    """The state of a job whose first record lies at `offset`; later job_created of it are void.

    The plan in `event` is not kept: what is in force is what plan_generated says.
    """
    created = event if event.plan is None else event.model_copy(update={"plan": None})
    return JobState(event.job_id, offset, created, last_offset=offset)
