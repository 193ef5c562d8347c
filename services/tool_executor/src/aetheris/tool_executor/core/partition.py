"""Which grants become tries, and which tries may run (docs/guarantees.md, "Executor"); pure."""

import heapq
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.ids import InvalidName
from aetheris.protocol.base.job_table import QUIET, JobTable, Resting
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.base.sealed import SealedNames, UnreadCreations
from aetheris.protocol.base.words import TryWords
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.start import is_stopped, start_is_void
from aetheris.protocol.fold.state import JobState, KeyStatus, PlanEntry, PlannedCall, create_job
from aetheris.protocol.fold.unjudged import Unjudged
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import FreezeBarrier, PartitionBarrier, PolicyBarrier, ToolGrant
from aetheris.protocol.messages.event_values import After, BlobRef
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import RUNNABLE, Kind, Node
from aetheris.protocol.planning.invocation import (
    Blobs,
    Invocation,
    NotReady,
    adopted_blobs,
    adopted_results,
    blobs_needed,
    call_with,
    invocation,
    is_done,
    success,
    uses,
)
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.tool_executor.core.body_runs import RunningBody
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.hosted_bodies import HostedBodies
from aetheris.tool_executor.core.partition_freezes import PartitionFreezes
from aetheris.tool_executor.core.partition_policies import PartitionPolicies
from aetheris.tool_executor.core.tries import (
    CodeOf,
    DeclaredInvocation,
    Declarer,
    GrantRun,
    KindOf,
    Refuses,
    Worker,
)
from aetheris.tool_executor.core.turns import Turns
from aetheris.tool_executor.core.unread_tries import UnreadTries

_HOSTED = RUNNABLE | {Kind.WORKFLOW}
_NOTHING: Mapping[str, Any] = {}

EARLIER_POLICY = "it was granted by an earlier policy"


@dataclass(frozen=True, slots=True)
class LoadResults:
    """Large results that must be loaded before the call is known."""

    refs: tuple[BlobRef, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Nothing to do; `reason` is for the operator."""

    reason: str


class CallNotPlanned(ValueError):
    """A call that a body can't make; which, and why, without any value."""

    def __init__(self, node_id: str, why: str) -> None:
        super().__init__(f"{node_id}: {why}")
        self.node_id = node_id
        self.why = why


@dataclass(slots=True)
class ReadBack:
    """A try of ours that came back in the log; `won` says that the fold put it in charge."""

    invocation: DeclaredInvocation
    won: bool


class Partition:
    """One partition's jobs as folded so far, its waiting grants, and the tries that were declared here."""

    def __init__(
        self,
        worker: Worker,
        refuses: Refuses,
        kind_of: KindOf,
        unread: UnreadTries | None = None,
        *,
        freezes: FreezeOrders | None = None,
        activations: PolicyActivations | None = None,
        code_of: CodeOf = lambda _: None,
    ) -> None:
        """`unread`: those of the process, which outlive its partitions; `code_of`: of the workflows that run here."""
        self.jobs: JobTable[JobState, None] = JobTable(lambda job: job.creation_offset, self._may_rest, lambda _: None)
        self.folded = -1
        self._worker = worker
        self._refuses = refuses
        self._declarer = Declarer(worker, kind_of, code_of)
        self.bodies = HostedBodies()
        self._freezes = PartitionFreezes(freezes or FreezeOrders())
        self._policies = PartitionPolicies(activations or PolicyActivations())
        self._waiting: list[tuple[int, int, ReceivedGrant]] = []
        self._due = Turns()
        self._declared: dict[str, DeclaredInvocation] = {}
        self._claimed: set[tuple[str, int]] = set()
        self._unread_tries = unread if unread is not None else UnreadTries()
        self._strays: list[tuple[ev.ToolInvocationStarted, TryWords]] = []
        self._open: dict[int, None] = {}
        self._forgotten = SealedNames()
        self._unread = UnreadCreations()
        self.unjudged = Unjudged()

    def pass_over(self, offset: int) -> None:
        """A record that changes nothing here was read."""
        self.folded = offset

    def evolve(self, event: Event, offset: int) -> ReadBack | None:
        """Fold one event; what it says about a try of ours, if it is one's `started`."""
        self.folded = offset
        job = self.jobs.get(event.job_id)
        if job is None:
            self._take_in(event, offset)
            return None
        counts = False
        try:
            counts = apply(job, event, offset)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            self.unjudged.note(job, error)
        if job.sealed:
            self._forget(event.job_id)
        if job.bodies is not None:
            self.bodies.follow(job, event, counts=counts)
        return self._read_back(event) if isinstance(event, ev.ToolInvocationStarted) else None

    def passed(self, barrier: PartitionBarrier, offset: int) -> bool:
        """A barrier of the partition was read: what it keeps is not called behind it. Whether its order is known."""
        self.folded = offset
        if isinstance(barrier, PolicyBarrier):
            return self._policies.hear(barrier)
        if not isinstance(barrier, FreezeBarrier):
            return True
        self._freezes.hear(barrier)
        return self._freezes.is_known(barrier)

    def orders_known(self) -> None:
        """Every order with a barrier or an answer below what is read here is among those that it was made with."""
        self._freezes.known()
        self._policies.known()

    def needs_upgrade(self, job_id: str, offset: int, *, is_birth: bool = False) -> None:
        """A record of the job that this version can't read: the job pauses here."""
        self.folded = offset
        job = self.jobs.get(job_id)
        if job is not None:
            job.needs_upgrade = True
            self.bodies.look(job)
        elif is_birth and job_id not in self._forgotten:
            self._unread.add(job_id, offset)

    def receive(self, taken: ReceivedGrant) -> None:
        """Keep a grant until it can be judged; it is open until `discharge`."""
        self._open[taken.offset] = None
        heapq.heappush(self._waiting, (taken.readable_from, taken.offset, taken))

    def is_due(self) -> bool:
        """Whether there is a grant that the fold has caught up with."""
        while self._waiting and self._waiting[0][0] <= self.folded:
            self._line_up(heapq.heappop(self._waiting)[2])
        return bool(self._due)

    def is_behind(self) -> bool:
        """Whether there is a grant that the fold has not caught up with."""
        return bool(self._waiting)

    def next_grant(self, may_take: Callable[[str], bool] = lambda _tenant: True) -> ReceivedGrant | None:
        """The one whose turn it is, of the tenants that may have one taken up; None where none of these waits."""
        return self._due.take(may_take) if self.is_due() else None

    def _line_up(self, taken: ReceivedGrant) -> None:
        job = self.jobs.get(taken.grant.job_id)
        self._due.put(replace(taken, tenant=job.created.tenant) if job is not None else taken)

    def discharge(self, taken: ReceivedGrant) -> None:
        """The grant was dropped, or its first `started` is in the log."""
        self._open.pop(taken.offset, None)

    def low_water(self) -> int | None:
        """The offset of the oldest open grant."""
        return next(iter(self._open), None)

    def live(self) -> Iterator[tuple[str, int]]:
        """The live jobs, each with its birth."""
        yield from self.jobs.births()
        yield from self._unread.items()

    def rest(self, quiet: int = QUIET) -> Resting:
        """Let jobs rest that nobody has asked for in a while: nothing is declared or folded meanwhile."""
        self.jobs.rest(quiet)
        return self.jobs.resting

    def _may_rest(self, job: JobState) -> bool:
        """Whether no call of it is under way, and no body of it runs, here or elsewhere."""
        if job.needs_upgrade or job.terminal is not None or job.job_id in self.bodies:
            return False
        return not any(key.status is KeyStatus.STARTED or key.may_act for key in job.keys.values())

    def judge(
        self, taken: ReceivedGrant, secret: bytes, blobs: Blobs = _NOTHING
    ) -> DeclaredInvocation | LoadResults | Drop:
        """What a grant comes to; a Try is declared from here on, unless it carries a refusal. `secret` is fresh."""
        grant = taken.grant
        if grant.incarnation not in (None, self._worker.incarnation):
            return Drop("it was given to another worker, before this one was here")
        job = self._in_force(grant, grant.nodes[0])
        if isinstance(job, Drop):
            return job
        if (grant.idempotency_key, grant.token) in self._claimed:
            return Drop("this try is declared here already")
        run = GrantRun(taken, job.trace, job.created.tenant)
        prepared = self._prepare(job, run, grant.nodes[0], blobs)
        if not isinstance(prepared, Invocation):
            return prepared
        if prepared.key != grant.idempotency_key:
            return Drop("the key is not the one granted")
        return self._declare(job, self._declarer.declared(job, prepared, run, secret, grant.token))

    def follow(self, run: GrantRun, secret: bytes, blobs: Blobs = _NOTHING) -> DeclaredInvocation | LoadResults | None:
        """The next try of a run; None ends the run. `secret` is fresh.

        It is to be claimed when it is declared, together with the report of the one before.
        """
        grant, node_id = run.taken.grant, run.following
        if node_id is None:
            return None
        job = self._in_force(grant, node_id)
        if isinstance(job, Drop):
            return None
        prepared = self._prepare(job, run, node_id, blobs)
        if isinstance(prepared, LoadResults):
            return prepared
        if isinstance(prepared, Drop) or prepared.entry.irreversible or self._refuses(prepared) is not None:
            return None
        state = job.keys.get(prepared.key)
        if state is not None and (state.status is not KeyStatus.NONE or state.requested is not None):
            return None  # what a human is asked about, or was, is granted by itself
        run.place += 1
        return self._declarer.declared(job, prepared, run, secret, 1)

    def results_for(self, body: RunningBody, nodes: Iterable[Node]) -> tuple[BlobRef, ...]:
        """The large results that must be loaded before a body can plan these.

        Raises:
            NotReady: one refers to what has not succeeded.
        """
        job = self.jobs[body.invocation.started.job_id]
        return tuple(ref for node in nodes for ref in blobs_needed(job, PlanEntry(job.revision, node, None)))

    def plan_call(
        self, body: RunningBody, node: Node, secret: bytes, *, may_start: bool, blobs: Blobs = _NOTHING
    ) -> tuple[ev.CallPlanned, DeclaredInvocation | None]:
        """A body's next record, and the call's first try where nobody else need judge it; `secret` is fresh.

        The try is claimed: it is to be declared right behind the record. Without one, the ledger grants the call.

        Raises:
            IndexError: the body has planned as many as it can.
            CallNotPlanned: it can't be made with what it refers to.
        """
        job = self.jobs[body.invocation.started.job_id]
        pins = job.bodies.pins if job.bodies is not None else {}
        entry = PlanEntry(job.revision, node, pins.get(node.tool or ""))
        rule = self._rule_for(job, body, entry) if may_start else None
        call = _call_of(job, entry, blobs) if node.references or rule is not None else None
        planned = body.planned(job, node, call)
        first = self._first_try(job, body, call, rule, secret) if call is not None and rule is not None else None
        if first is not None:
            self.claim(first)
        return planned, first

    def claim(self, invocation: DeclaredInvocation) -> None:
        """Its `started` is about to be appended, and awaited from now on."""
        self._declared[invocation.invocation_id] = invocation
        self._unread_tries.put(invocation.started, invocation.words)
        self._claimed.add((invocation.started.idempotency_key, invocation.started.token))

    def unclaim(self, invocation: DeclaredInvocation) -> None:
        """Its `started` was refused, and lies nowhere."""
        self._declared.pop(invocation.invocation_id, None)
        self._unread_tries.take(invocation.started)
        self._claimed.discard((invocation.started.idempotency_key, invocation.started.token))

    def why_not(self, invocation: DeclaredInvocation) -> str | None:
        """Why a try that won may not be called, as far as the log was read; None if it may."""
        job = self._created(invocation)
        if job is None or not _in_charge(job, invocation):
            return "superseded before the call"
        if not self._freezes.may_call(job, invocation.call.entry):
            return "it is frozen"
        if not self._policies.lets(invocation.run.taken.grant.activation):
            return EARLIER_POLICY
        return "the job waits for a newer version" if job.needs_upgrade else None

    def strays(
        self, begun: Mapping[str, Container[str]], unended: Container[str] = ()
    ) -> list[tuple[JobState, ev.ToolInvocationStarted, TryWords]]:
        """Tries of this life that are in charge or parked, that nobody awaits here any more, and that were never begun.

        Each is named once. `begun`: job → the ids of all that was called in this life; `unended`: of those that were
        under way when this partition was given to us.
        """
        found = [(self.jobs[one.job_id], one, words) for one, words in self._strays if one.job_id in self.jobs]
        self._strays.clear()
        return [
            (job, one, words)
            for job, one, words in found
            if _may_act(job, one)
            and one.invocation_id not in unended
            and one.invocation_id not in begun.get(one.job_id, ())
        ]

    def withdraw(self) -> list[DeclaredInvocation]:
        """The tries that were declared and not read back; they will not run."""
        invocations = list(self._declared.values())
        self._declared.clear()
        self._claimed.clear()
        return invocations

    def abandon(self) -> list[ReceivedGrant]:
        """The grants that still wait; others will read them."""
        waiting = [*self._due, *(taken for _, _, taken in self._waiting)]
        self._due.clear()
        self._waiting.clear()
        return waiting

    def _take_in(self, event: Event, offset: int) -> None:
        if isinstance(event, ev.JobCreated) and not (event.job_id in self._forgotten or event.job_id in self._unread):
            self.jobs[event.job_id] = create_job(event, offset)
        elif isinstance(event, ev.JobSealed):
            self._unread.pop(event.job_id)

    def _forget(self, job_id: str) -> None:
        """A sealed job costs nothing but its name, for a while: a repeat of its birth may still arrive."""
        del self.jobs[job_id]
        self.bodies.job_is_over(job_id)
        self._forgotten.add(job_id)

    def _in_force(self, grant: ToolGrant, node_id: str) -> JobState | Drop:
        job = self.jobs.get(grant.job_id)
        if job is None or job.creation_offset != grant.birth:
            return Drop("the job is not known from its birth")
        if job.needs_upgrade:
            return Drop("the job waits for a newer version")
        if job.paused is not None:
            return Drop("the job is paused")  # it is granted again
        entry = job.entry(node_id)
        if job.terminal is not None or entry is None or is_stopped(job, entry):
            return Drop("the job is stopping, or has ended, or has no such node")
        if not self._freezes.may_begin(job, entry):
            return Drop("it is frozen")  # it is granted again
        if not self._policies.lets(grant.activation):
            return Drop(EARLIER_POLICY)  # it is judged again
        if job.revision != grant.revision or job.plan_hash != grant.plan_hash:
            return Drop("the revision is not the one in force")
        return job

    def _prepare(self, job: JobState, run: GrantRun, node_id: str, blobs: Blobs) -> Invocation | LoadResults | Drop:
        """The call of a node, from the run's own results and the fold's."""
        entry = job.entry(node_id)
        if entry is None or entry.node.kind not in _HOSTED:
            return Drop("no such node, or of a kind that is not executed here")
        used = uses(entry)
        for needed in (*entry.node.depends_on, *used):
            if needed not in run.reports and not is_done(job, needed):
                return Drop("a node that it depends on is not done")
        try:
            missing = _missing(job, run, entry, blobs)
            if missing:
                return LoadResults(missing)
            results = {name: _result(job, run, name, blobs) for name in used} | adopted_results(job, entry, blobs)
            return call_with(job, entry, results, _after(run, used))
        except (NotReady, UnresolvedReference, InvalidArgs, InvalidName) as error:
            return Drop(type(error).__name__)

    def _rule_for(self, job: JobState, body: RunningBody, entry: PlanEntry) -> str | None:
        """What allows a call whatever its arguments are, where it can be undone and nothing is recorded of it."""
        node = entry.node
        if node.kind not in RUNNABLE or entry.irreversible or job.node_keys.get(node.id) or job.paused is not None:
            return None
        return body.licence.get(node.tool_name)

    def _first_try(
        self, job: JobState, body: RunningBody, call: Invocation, rule: str, secret: bytes
    ) -> DeclaredInvocation | None:
        taken, entry, node = body.invocation.run.taken, call.entry, call.entry.node
        entry.call = PlannedCall(body.parent, body.invocation_id, node, call.key, call.args_hash)
        if not (self._freezes.may_begin(job, entry) and self._policies.lets(taken.grant.activation)):
            return None
        if self._refuses(call) is not None:
            return None
        own = {"nodes": (node.id,), "rules": (rule,), "idempotency_key": call.key, "token": 1, "licence": None}
        run = GrantRun(replace(taken, grant=taken.grant.model_copy(update=own)), job.trace, job.created.tenant)
        return self._declarer.declared(job, call, run, secret, 1)

    def _declare(self, job: JobState, invocation: DeclaredInvocation) -> DeclaredInvocation | Drop:
        void = start_is_void(job, invocation.started)
        if void is not None:
            return Drop(void)
        refusal = self._refuses(invocation.call)
        if refusal is not None and refusal.is_missing:
            return Drop(refusal.error)  # it is granted again
        if refusal is not None:
            return replace(invocation, refusal=refusal)
        self.claim(invocation)
        return invocation

    def _read_back(self, event: ev.ToolInvocationStarted) -> ReadBack | None:
        invocation, words = self._declared.get(event.invocation_id), self._unread_tries.take(event)
        if invocation is None or invocation.started.idempotency_key != event.idempotency_key:
            if words is not None:
                self._strays.append((event, words))
            return None
        del self._declared[event.invocation_id]
        self._claimed.discard((event.idempotency_key, event.token))
        job = self._created(invocation)
        won = job is not None and _in_charge(job, invocation)
        if won and job is not None and invocation.call_words is not None:
            self.bodies.started(job, invocation)
        return ReadBack(invocation, won)

    def _created(self, invocation: DeclaredInvocation) -> JobState | None:
        """Its job; None once that is sealed and forgotten: a repeated job_created does not bring it back."""
        job = self.jobs.get(invocation.started.job_id)
        return job if job is not None and job.creation_offset == invocation.run.taken.grant.birth else None


def _call_of(job: JobState, entry: PlanEntry, blobs: Blobs) -> Invocation:
    """What a body's node makes with the results that it refers to; raises CallNotPlanned."""
    try:
        return invocation(job, entry, blobs)
    except (NotReady, UnresolvedReference, InvalidArgs) as error:
        raise CallNotPlanned(entry.node.id, str(error)) from None


def _may_act(job: JobState, started: ev.ToolInvocationStarted) -> bool:
    state = job.keys.get(started.idempotency_key)
    return (
        state is not None
        and state.current_invocation == started.invocation_id
        and state.status in (KeyStatus.STARTED, KeyStatus.PARKED)
    )


def _in_charge(job: JobState, invocation: DeclaredInvocation) -> bool:
    state = job.keys.get(invocation.started.idempotency_key)
    return (
        state is not None and state.status is KeyStatus.STARTED and state.current_invocation == invocation.invocation_id
    )


def _missing(job: JobState, run: GrantRun, entry: PlanEntry, blobs: Blobs) -> tuple[BlobRef, ...]:
    own = (success(job, name).result_ref for name in uses(entry) if name not in run.reports)
    refs = (*own, *adopted_blobs(job, entry))
    return tuple(ref for ref in refs if ref is not None and ref.sha256 not in blobs)


def _result(job: JobState, run: GrantRun, name: str, blobs: Blobs) -> Any:
    logged = run.reports.get(name)
    if logged is not None:
        return logged.result
    state = success(job, name)
    return blobs[state.result_ref.sha256] if state.result_ref is not None else state.result


def _after(run: GrantRun, used: tuple[str, ...]) -> tuple[After, ...]:
    """The node before it in the run, and every node of the run whose result it uses."""
    if not run.reports:
        return ()
    names = dict.fromkeys((next(reversed(run.reports)), *filter(run.reports.__contains__, used)))
    reported = [run.reports[name] for name in names]
    return tuple([After(invocation_id=one.invocation_id, result_hash=one.result_hash) for one in reported])
