"""What the ledger remembers of a live job beside its fold; all of it is made again from the log."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, NamedTuple

from aetheris.ledger.core.decisions import Decision, Grant
from aetheris.ledger.core.duplicate_index import DuplicateIndex
from aetheris.ledger.core.limits import LedgerLimits
from aetheris.ledger.core.policy_in_force import PolicyInForce
from aetheris.ledger.core.timer_queue import Item
from aetheris.ledger.core.unknown_barriers import UnknownBarriers
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.job_table import JobTable
from aetheris.protocol.fold.revocations import NONE_REVOKED, Revocations
from aetheris.protocol.fold.state import JobState, PlanEntry
from aetheris.protocol.fold.unjudged import Unjudged
from aetheris.protocol.fold.workers import Ended
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.planning.budgets import Account
from aetheris.protocol.planning.confirmation import Tally
from aetheris.protocol.planning.gate import Deciders
from aetheris.protocol.planning.invocation import key_in_force
from aetheris.protocol.planning.policy import Policy
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.tool_placement import ToolPlacement

WorkerLife = tuple[str, str]
"""worker_id, incarnation"""


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """What decisions follow; `fresh_id` and `jitter` (0 to 1) are the only things not derived."""

    policy: Policy
    """The configured one: it holds until another is activated."""
    limits: LedgerLimits
    fresh_id: Callable[[], str]
    jitter: Callable[[], float]
    registered: Callable[[str, str], RegistryEntry | None] = lambda _name, _version: None
    """The registry's entry of a tool, by name and version."""
    duplicates: DuplicateIndex = field(default_factory=DuplicateIndex)
    signers: AllowedSigners = field(default_factory=AllowedSigners)
    """Whose SSH keys and passkeys count, where a rule asks for signatures."""
    freezes: FreezeOrders = field(default_factory=FreezeOrders)
    """What is ordered, as far as this process has read it."""
    revocations: Revocations = NONE_REVOKED
    """Keys of services that count no more in jobs which carry that."""
    policies: PolicyInForce = field(default_factory=PolicyInForce)
    """What is activated, as far as this process has read it."""
    barriers: UnknownBarriers = field(default_factory=UnknownBarriers)
    """Of a policy, in the partition."""
    placement: ToolPlacement | None = None
    """Which executors serve what; None: whoever takes a grant serves it."""

    @property
    def rules(self) -> Policy:
        """The policy that decides now."""
        return self.policies.activated or self.policy

    @property
    def named(self) -> Mapping[str, Any]:
        """How a decision names the policy that it goes by."""
        return {"policy_hash": self.rules.hash, "activation": self.policies.number}

    def may_judge(self, job: "LiveJob") -> bool:
        """Whether it can be used, and none that is activated later decides elsewhere, or has about this job before."""
        return self.policies.unusable is None and max(job.activation, self.barriers.number) <= self.policies.number

    def of_partition(self) -> "DecisionContext":
        """The same, with barriers of its own: what is forged in one partition holds no other."""
        return replace(self, barriers=UnknownBarriers())

    def verifies(self, name: str, version: str) -> bool:
        """Whether what a tool did can be compared with the external system."""
        entry = self.registered(name, version)
        return entry is not None and entry.verifier


@dataclass(slots=True)
class TimedDecision:
    """What to do about one thing now, and when to look at it again; `due_s` None: not by the clock."""

    decisions: Sequence[Decision] = ()
    due_s: float | None = None

    def grant(self) -> Grant | None:
        """The grant among the decisions; there is one at most."""
        return next((one for one in self.decisions if isinstance(one, Grant)), None)


@dataclass(frozen=True, slots=True)
class Offered:
    """A grant that only one life of a worker may take; `until_s`: when nobody has taken it."""

    life: WorkerLife
    until_s: float


@dataclass(slots=True)
class Pending:
    """A node that the planner asked for and nobody has started."""

    nodes: tuple[str, ...]
    offset: int | None
    """Of the request; None where a human's yes is what asks."""
    parent: bytes | None
    due_s: float
    asked_s: float | None = None
    """When it was first asked for, as the log has it, in seconds since 1970; None where that is not known."""
    grants: int = 0
    scope: str | None = None
    """Where calls of other jobs that mean the same have their lines."""
    offered: Offered | None = None


@dataclass(slots=True)
class CurrentInvocation:
    """A try in charge, also of what is parked, and what is known of its end."""

    invocation_id: str
    life: WorkerLife
    due_s: float
    cause: str | None = None
    """Why it is doubted; None while its lease may still speak for it."""
    evidence: tuple[Any, ...] = ()
    """What it has said about that itself."""
    doubt_s: float | None = None
    ended_s: float | None = None
    """When this process had folded that the try can act no more: settles_within counts from here."""
    returned: bool = False
    """It can act no more because its own code has raised; else because its worker has ended."""
    blind: int = 0
    """Looks in vain at an effect store that did not answer."""
    ask: tuple[str, float] | None = None
    """The question under way: its id, and when it was sent."""
    late: dict[str, float] = field(default_factory=dict)
    """Those that are not waited for any more, and when they were sent."""
    absent_s: float | None = None
    """When the last question that was answered "not found" was sent."""
    unknowns: int = 0
    next_ask_s: float = 0.0


@dataclass(slots=True)
class Reopened:
    """A key that is free for its next try."""

    due_s: float
    after_proof: bool
    """Its last try reported that it took no effect: the plan's retry decides when, and whether, it goes on."""
    paced: bool = False
    """Its last try reported that it failed, not how: the plan's retry decides when it goes on."""
    until: tuple[str, ...] | None = None
    """Its body sleeps until one of these nodes settles; None: it doesn't."""
    scheduled: bool = False
    grants: int = 0
    offered: Offered | None = None


@dataclass(slots=True)
class Waiting:
    """A node that waits."""

    event: ev.JobWaiting
    due_s: float
    """Infinite where only a signal or a human ends it."""


@dataclass(slots=True)
class PendingApproval:
    """A request that waits for a human; `entry` is the node's when it was made: another plan makes it void."""

    entry: PlanEntry
    due_s: float
    superseded: bool = False
    """A later call of the node's is asked for, or made."""


@dataclass(slots=True)
class Resumed:
    """A job that goes on again since the event at `offset`; keys of calls that are not confirmed since then."""

    offset: int
    open: set[str]
    failed: set[str] = field(default_factory=set)
    asked: dict[str, float] = field(default_factory=dict)
    """Key → how long its question is worth waiting for."""
    again: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Key → how often it was asked about, and when it may be asked about again."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    since: dict[str, str] = field(default_factory=dict)
    """Key → when it was asked about first."""


@dataclass(slots=True)
class LiveJob:
    """A job's fold, and the ledger's memory of it."""

    state: JobState
    pending: dict[str, Pending] = field(default_factory=dict)
    keys: dict[str, CurrentInvocation | Reopened | Waiting] = field(default_factory=dict)
    parked: dict[str, str] = field(default_factory=dict)
    """execution_id → key"""
    parked_at: dict[str, int] = field(default_factory=dict)
    """Key → the offset where it was parked last."""
    awaited: dict[str, str] = field(default_factory=dict)
    """The correlation keys of open waits → key"""
    signalled: set[str] = field(default_factory=set)
    """Correlation keys whose signal this process has appended."""
    announced: set[WorkerLife] = field(default_factory=set)
    asked: dict[str, PendingApproval] = field(default_factory=dict)
    """Key → its open request; one that this process has answered is gone before the log says so."""
    requests: dict[str, str] = field(default_factory=dict)
    """request id → key, also of those that were answered."""
    resumed: Resumed | None = None
    """What it must confirm before it goes on; None for a job that has not waited."""
    accepting: Deciders | None = None
    """Who was asked last to let pass what could not be confirmed."""
    activation: int = 0
    """The highest that a decision about it names."""
    takeovers: dict[str, int] = field(default_factory=dict)
    """Node of a body → how often it has started since one of its calls settled."""
    accounts: dict[str, Account] = field(default_factory=dict)
    """Rule → what was charged to it."""

    def supersede(self, key: str) -> Iterator[str]:
        """A key of a node is asked for, or started: nobody has to answer about those that the node had before."""
        if not self.asked:
            return
        node_id = self.state.keys[key].node_id
        earlier = takewhile(lambda other: other != key, self.state.node_keys[node_id])
        asked = [other for other in earlier if other in self.asked]
        in_force = key_in_force(self.state, node_id) if asked else None
        for other in asked:
            if in_force not in (None, other):  # what is asked last may be asked by who had not read of an edit
                self.asked[other].superseded = True
                yield other

    def account(self, rule: str) -> Account:
        """The account of a limited rule."""
        found = self.accounts.get(rule)
        if found is None:
            found = self.accounts[rule] = Account()
        return found

    def timers(self) -> Iterator[tuple[float, Item]]:
        """What it waits for, each with its due time; infinite where it is not due by the clock."""
        job_id = self.state.job_id
        for key, held in self.keys.items():
            yield held.due_s, Item("key", job_id, key)
        for node_id, pending in self.pending.items():
            yield pending.due_s, Item("node", job_id, node_id)
        for key, asked in self.asked.items():
            yield asked.due_s, Item("request", job_id, key)

    def give_back(self, key: str) -> None:
        """What a call took of its rules' budgets: it certainly has no effect."""
        for account in self.accounts.values():
            account.give_back(key)


Submitter = tuple[str, str]
"""tenant, submitted_by: whom a freeze concerns."""


class JobAtRest(NamedTuple):
    """What is asked of a job without waking it."""

    job_id: str
    submitter: Submitter
    timers: tuple[tuple[float, Item], ...] = ()
    """What it waits for by the clock, of a job that came to rest while history was read: nobody watches them yet."""


LiveJobTable = JobTable[LiveJob, JobAtRest]


def submitter_of(job: LiveJob) -> Submitter:
    """Whose job it is, as freezes have it."""
    return job.state.created.tenant, job.state.created.submitted_by


def _may_rest(job: LiveJob, context: DecisionContext) -> bool:
    """Whether only a timer, a signal, a human or a node that settles takes it on: nothing of it is offered, under way,
    parked or held back. Who looks at all jobs for one of these looks at those that are awake.
    """
    state = job.state
    if state.needs_upgrade or state.cancel or state.stopping or state.terminal or state.paused or state.frozen:
        return False
    if job.pending or job.parked or job.activation > context.policies.number:
        return False
    if job.resumed is not None and job.resumed.asked:
        return False
    return all(map(_sleeps, job.keys.values())) and not any(key.may_act for key in state.keys.values())


def _sleeps(held: CurrentInvocation | Reopened | Waiting) -> bool:
    if isinstance(held, Reopened):
        return held.until is not None and held.due_s == float("inf") and held.offered is None
    return isinstance(held, Waiting)


@dataclass(slots=True)
class LiveJobs:
    """What all parts of a partition's core know: its live jobs, in the order of their births, and how far it is."""

    context: DecisionContext
    ended: Mapping[WorkerLife, Ended]
    """Everything known of ended workers, with how."""
    number: int = 0
    """Of the partition."""
    jobs: LiveJobTable = field(init=False)
    folded: int = -1
    is_restored: bool = False
    """Whether history was read: before that nothing is due, and nothing is decided."""
    restored_at: int = -1
    activation: int = 0
    """The highest that a decision about any of them names."""
    voted: dict[tuple[str, str | None], None] = field(default_factory=dict)
    """Jobs, and keys of parked calls, of which something was said that may be the last word that is needed."""
    unjudged: Unjudged = field(default_factory=Unjudged)

    def __post_init__(self) -> None:
        self.jobs = JobTable(
            lambda job: job.state.creation_offset, lambda job: _may_rest(job, self.context), self._at_rest
        )

    def _at_rest(self, job: LiveJob) -> JobAtRest:
        timers = () if self.is_restored else tuple(one for one in job.timers() if one[0] < float("inf"))
        return JobAtRest(job.state.job_id, submitter_of(job), timers)
