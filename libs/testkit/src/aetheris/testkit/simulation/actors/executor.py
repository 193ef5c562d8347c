"""The executor's edge, simulated: declares, reads back, calls, keeps, reports as the real one does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Protocol

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.provenance import Standing
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import PartitionBarrier
from aetheris.protocol.messages.event_values import CodeVersion, Outcome
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind
from aetheris.protocol.planning.goals import GOAL_ENTRY
from aetheris.protocol.planning.invocation import Invocation
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.sdk.outcomes import InDoubt, Permanent, Retryable, Succeeded
from aetheris.sdk.outcomes import Outcome as Said
from aetheris.testkit.simulation.actors.bodies import SimulatedBodies
from aetheris.testkit.simulation.actors.policy_lines import PolicyLines
from aetheris.testkit.simulation.checkpoints import SimCheckpoints
from aetheris.testkit.simulation.external_system import CallFate, ExternalCall, call_of
from aetheris.testkit.simulation.flows import AS_IT_WAS
from aetheris.testkit.simulation.log import Entry, WholeBatch
from aetheris.testkit.simulation.scenario import CODES, FLOWS, Lasting, draw_answer
from aetheris.testkit.simulation.surroundings import ScheduledAction, SimulatedReader, SimulationSurroundings
from aetheris.testkit.simulation.versions import ReadableRecords, writes_newer
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.partition import Drop, LoadResults, Partition, ReadBack
from aetheris.tool_executor.core.tries import CallRefusal, DeclaredInvocation, NodeReport, Worker
from aetheris.tool_executor.core.unread_tries import UnreadTries

ROLE = "executor"

_GOAL_CODE = CodeVersion(ref=GOAL_ENTRY.name, version=GOAL_ENTRY.version, hash=GOAL_ENTRY.code_hash or "")

UNREAD = (ev.CommandCommitted, ev.StateChanged, ev.NodeFinished)
"""As the real edge, it passes over what decides nothing about who may run."""

REFUSAL = CallRefusal(Outcome.RETRYABLE, "NotExecuted: a credential that can't be read")
MISSING = CallRefusal(Outcome.RETRYABLE, "NotExecuted: tool version missing", is_missing=True)
"""The grant is passed over, and comes again."""


class Stage(Enum):
    """What a try that may run does next."""

    CALL = auto()
    ANSWER = auto()
    KEEP = auto()
    REPORT = auto()
    VERDICT = auto()


@dataclass(slots=True, eq=False)
class Running:
    """A run at work: the try in charge of it."""

    invocation: DeclaredInvocation
    stage: Stage = Stage.CALL
    call: ExternalCall | None = None
    outcome: Said | None = None
    events: tuple[Event, ...] = ()


class Ends(Protocol):
    """What becomes of a process that ends by itself."""

    def stand_down(self, actor: "SimulatedExecutor") -> None:
        """It has read that it has ended."""
        ...

    def leave_children(self, actor: "SimulatedExecutor") -> None:
        """It crashes, and what it had started lives on."""
        ...


@dataclass(slots=True, eq=False)
class ProcessMemory:
    """What a process knows of its tries, whichever partitions it has."""

    begun: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Job → what it has called."""
    unread_tries: UnreadTries = field(default_factory=UnreadTries)
    edit: str = AS_IT_WAS
    """Of the code of workflows that it has loaded."""
    newer: bool = True
    """Whether it is of the newest version."""


class SimulatedExecutor:
    """One executor process on the partition. Several may own it at once; all but one are zombies."""

    def __init__(
        self,
        around: SimulationSurroundings,
        worker: Worker,
        start: int,
        ends: "Ends",
        *,
        owner: bool = True,
        grants: int | None = None,
        memory: ProcessMemory | None = None,
    ) -> None:
        """`memory`: its process', if that has other partitions."""
        self.name = f"executor {worker.worker_id}/{worker.incarnation}"
        self.memory = memory if memory is not None else ProcessMemory()
        self.worker = worker
        self.owner = owner
        self.paused = False
        self.closed = False
        self.running: list[Running] = []
        self.sent: list[ExternalCall] = []
        self._freezes = FreezeOrders()
        self._table = SimulatedReader(around, {Topic.FREEZES: 0})
        self._policy_lines = PolicyLines(around)
        self._read_orders()
        self.core = Partition(
            worker,
            lambda _: self._refusal(),
            lambda call: EffectKind(call.entry.node.kind),
            self.memory.unread_tries,
            freezes=self._freezes,
            activations=self._policy_lines.activations,
            code_of=self._code_of,
        )
        self.reading = ReadableRecords(around, self.name, self.memory.newer)
        self._lies_at: dict[str, int] = {}
        """invocation_id → where what it has declared was read back."""
        self.writer = around.log.writer(self.name, writes_newer(around, newer=self.memory.newer))
        self.bodies = SimulatedBodies(around, self.core, self.name, FLOWS[self.memory.edit], self._append_groups)
        self._ends = ends
        self.has_ended = False
        self.around = around
        self._records = around.records(orders=self._policy_lines.rules)
        self._verdicts: dict[str, Running] = {}
        self._declaring = 0
        self._moves: Mapping[Stage, tuple[str, Callable[[Running], None]]] = {
            Stage.CALL: ("calls", self._call),
            Stage.KEEP: ("keeps the effect of", self._keep),
            Stage.REPORT: ("reports", self._report),
        }
        self._takes_a_round = (ScheduledAction(f"{self.name} takes a round", self._round),)
        grants = around.group(ROLE).start(Topic.TOOLS_GRANTS) if grants is None else grants
        self._checkpoints = SimCheckpoints(around, Topic.LEDGER_CHECKPOINTS)
        start, below = self._checkpoints.load(start) if owner else (start, ())
        self._fold(below)
        self.core.pass_over(start - 1)
        if owner:  # one that starts late is no service: it has no mark
            self._records.begin(start, self._checkpoints.live)
        self.reader = SimulatedReader(around, {Topic.JOBS_EVENTS: start, Topic.TOOLS_GRANTS: grants})
        for entry in self.reader.read_all(Topic.JOBS_EVENTS):
            self._fold((entry,))
            if around.progress.rests:
                self.core.jobs.rest_on_the_way(0, above=0)
        self._report_strays()

    def actions(self) -> Iterable[ScheduledAction]:
        """A round, and for every try at work its next move."""
        if self.paused:
            return ()
        round_ = self._takes_a_round if not self.closed and self.reader.has_more else ()
        return (*round_, *self._next_moves(), *self.bodies.actions())

    def _next_moves(self) -> Iterable[ScheduledAction]:
        for running in self.running:
            move = self._moves.get(running.stage)
            if move is not None:
                name, do = move
                yield ScheduledAction(f"{self.name} {name} {running.invocation.invocation_id}", partial(do, running))

    def answer(self, call: ExternalCall) -> bool:
        """The external system's answer comes; False where nobody waits for it any more."""
        for running in self.running:
            if running.call is call and running.stage is Stage.ANSWER:
                running.outcome = call.answer()
                running.stage = Stage.KEEP if isinstance(running.outcome, Succeeded) else Stage.REPORT
                return True
        return False

    def holds(self, key: str) -> bool:
        """Whether it renews the lease of a key."""
        return not self.paused and key in self.held_keys()

    def is_at(self, invocation_id: str) -> bool:
        """Whether a try is at work here."""
        return any(running.invocation.invocation_id == invocation_id for running in self.running)

    def held_keys(self) -> list[str]:
        """The keys whose leases it renews."""
        return [*(running.invocation.started.idempotency_key for running in self.running), *self.bodies.keys]

    def close(self, *, in_time: bool = True) -> None:
        """The partition is revoked: what was declared and will not run is reported so; what runs goes on.

        Not `in_time`: what was declared is cut off unreported, and may still come into the log.
        """
        self.closed, self.owner = True, False
        self.core.abandon()
        self.bodies.close()
        if not in_time:
            for invocation in self.core.withdraw():
                self._say(invocation, won=False)
        elif self._declaring == 0:
            self._withdraw()

    @property
    def idle(self) -> bool:
        """Whether it has nothing left to say."""
        return not self.running and not self.bodies.keys and self.writer.unacknowledged == 0

    def _code_of(self, call: Invocation) -> CodeVersion:
        return _GOAL_CODE if call.entry.node.tool == GOAL_ENTRY.name else CODES[self.memory.edit]

    def _refusal(self) -> CallRefusal | None:
        if self.around.calm or not self.around.tape.chance(0.03):
            return None
        return MISSING if self.around.unserved else REFUSAL

    def _fold(self, entries: Sequence[Entry]) -> list[ReadBack]:
        returned: list[ReadBack] = []
        for entry in entries:
            reported = self._evolve(entry)
            if reported is not None:
                self._lies_at[reported.invocation.invocation_id] = entry.record.offset
                returned.append(reported)
        return returned

    def _evolve(self, entry: Entry) -> ReadBack | None:
        body, offset = entry.body, entry.record.offset
        if not self.reading.reads(entry):
            self._records.pass_over(entry)
            self.core.needs_upgrade(body.job_id, offset, is_birth=isinstance(body, ev.JobCreated))
            return None
        if isinstance(body, UNREAD):
            self.core.pass_over(offset)
            return None
        standing = self._records.judge(entry)
        if standing is not Standing.COUNTS:
            self._set_aside(body, offset, standing)
            return None
        if isinstance(body, ev.WorkerEnded) and self._is_own(body):
            self.has_ended = True
        if self.has_ended:
            return None
        if isinstance(body, PartitionBarrier):
            self.core.passed(body, offset)
            return None
        return self.core.evolve(body, offset)

    def _set_aside(self, body: Event, offset: int, standing: Standing) -> None:
        if standing is Standing.UNKNOWN_ROOT:
            self.core.needs_upgrade(body.job_id, offset, is_birth=True)
        else:
            self.core.pass_over(offset)

    def _is_own(self, end: ev.WorkerEnded) -> bool:
        """Of a job that is known here: what is said in any other, nobody has judged."""
        if end.job_id not in self.core.jobs:
            return False
        return (end.worker_id, end.incarnation) == (self.worker.worker_id, self.worker.incarnation)

    def _read_orders(self) -> None:
        self._policy_lines.read()
        for one in self._table.read_all(Topic.FREEZES):
            self._freezes.hear(one.body)

    def _round(self) -> None:
        has_more = self._table.has_more or self._policy_lines.has_more
        if has_more and (self.around.calm or self.around.tape.chance(0.5)):
            self._read_orders()
        batch = self.reader.read()
        returned = self._fold(batch[Topic.JOBS_EVENTS])
        if self.has_ended:
            self._ends.stand_down(self)
            return
        for reported in returned:
            self._clear(reported)
        self.bodies.follow()
        self._report_strays()
        for entry in batch[Topic.TOOLS_GRANTS]:
            self.core.receive(ReceivedGrant(entry.body, entry.id, entry.record.offset))
        while (taken := self.core.next_grant()) is not None:
            self._take_up(taken)
        self._commit()
        if self.around.progress.rests:
            self.core.rest(0)

    def _take_up(self, taken: ReceivedGrant) -> None:
        verdict = self.core.judge(taken, self.around.fresh_secret())
        match verdict:
            case DeclaredInvocation():
                self._declare(verdict)
            case Drop(reason):
                self.around.say(f"    {self.name} drops the grant for {taken.grant.nodes[0]}: {reason}")
                self.core.discharge(taken)
            case LoadResults():
                raise TypeError("results of the simulation are small: nothing is loaded")

    def _declare(self, invocation: DeclaredInvocation) -> None:
        events: list[Event] = [invocation.started]
        self.reading.decides(invocation.started.job_id, f"a try of {invocation.started.node_id}")
        if invocation.refusal is not None:
            events.append(reports.refused(invocation, invocation.refusal))
        self._declaring += 1
        self._append([events], lambda: self._declared(invocation))

    def _declared(self, invocation: DeclaredInvocation) -> None:
        self._declaring -= 1
        self.core.discharge(invocation.run.taken)
        self._commit()
        if self.around.gate != "log" and invocation.refusal is None and self._unguarded(invocation):
            self.running.append(Running(invocation))
        if self.closed and self._declaring == 0:
            self._withdraw()

    def _unguarded(self, invocation: DeclaredInvocation) -> bool:
        """What an ablation puts in the place of the read-back."""
        if self.around.gate == "none":
            return True
        return self.around.redis.lock(invocation.started.idempotency_key, self.worker.incarnation, self.around.now_s)

    def _clear(self, reported: ReadBack) -> None:
        invocation = reported.invocation
        if self.around.gate != "log":
            self._say(invocation, won=self._unguarded(invocation))
            return
        reason = self.core.why_not(invocation) if reported.won else None
        if reason is not None:
            self._append([(reports.not_executed(invocation.started, invocation.words, reason),)])
        self._say(invocation, won=reported.won and reason is None)

    def _report_strays(self) -> None:
        """Of a try that nobody waits for any more, as after a rebalance: it is not called."""
        for _, started, words in self.core.strays(self.memory.begun):
            self._append([(reports.not_executed(started, words, "its partition was given back before the call"),)])

    def _say(self, invocation: DeclaredInvocation, *, won: bool) -> None:
        if won and self.around.gate == "log":
            started = invocation.started
            self.reading.decides(
                started.job_id, f"the call of {started.node_id}", self._lies_at[invocation.invocation_id]
            )
            self.memory.begun.setdefault(invocation.started.job_id, set()).add(invocation.invocation_id)
            if invocation.call_words is not None:
                self.bodies.begin(invocation)
                return
        waiting = self._verdicts.pop(invocation.invocation_id, None)
        if waiting is None:
            if won and self.around.gate == "log":
                self.running.append(Running(invocation))
        elif won:
            waiting.stage = Stage.CALL
        elif waiting in self.running:
            self.running.remove(waiting)

    def _withdraw(self) -> None:
        for invocation in self.core.withdraw():
            self._append([(reports.not_executed(invocation.started, invocation.words, "the executor stopped"),)])
            self._say(invocation, won=False)

    def _call(self, running: Running) -> None:
        fate = self.around.fates.pop() if self.around.fates else self._usual(running)
        slow = 0.0 if fate is CallFate.ANSWERED else self.around.tape.below(10) / 10
        call = call_of(running.invocation, fate, self.around.now_s, slow)
        if running.invocation.started.kind == EffectKind.LLM:
            call.said = draw_answer(self.around.tape)
        running.call, running.stage = call, Stage.ANSWER
        self.around.say(f"    call {call.invocation_id} of {call.node_id} under {call.external_key}: {call.fate.name}")
        self.sent.append(call)
        self.around.sent(call)
        self.around.external.send(call)
        if fate is CallFate.ORPHANED:
            self._ends.leave_children(self)

    def _usual(self, running: Running) -> CallFate:
        if running.invocation.started.kind == EffectKind.LLM:
            return CallFate.ANSWERED
        if self.around.lasting is Lasting.CALLS_LOST:
            return CallFate.REQUEST_LOST
        return self.around.broken.get(running.invocation.started.tool_name, CallFate.ANSWERED)

    def _keep(self, running: Running) -> None:
        running.events = _report(running.invocation, running.outcome)
        started = running.invocation.started
        self.around.redis.put(started.idempotency_key, started.invocation_id, running.events)
        running.stage = Stage.REPORT

    def _report(self, running: Running) -> None:
        invocation = running.invocation
        events = running.events or _report(invocation, running.outcome)
        following = self._following(running)
        if following is None:
            self.running.remove(running)
            outcome = running.outcome
            if not (isinstance(outcome, Succeeded) and self.bodies.told(invocation, events, outcome)):
                self._append([events])
            return
        self.core.claim(following)
        running.invocation, running.stage, running.call, running.events = following, Stage.VERDICT, None, ()
        self._verdicts[following.invocation_id] = running
        self._append([events, (following.started,)])

    def _following(self, running: Running) -> DeclaredInvocation | None:
        outcome, run = running.outcome, running.invocation.run
        if not isinstance(outcome, Succeeded) or outcome.partial or self.closed:
            return None
        logged = NodeReport(running.invocation.invocation_id, digest(outcome.result), outcome.result)
        run.reports[run.taken.grant.nodes[run.place]] = logged
        found = self.core.follow(run, self.around.fresh_secret())
        return found if isinstance(found, DeclaredInvocation) else None

    def _append(self, parts: Sequence[Sequence[Event]], then: Callable[[], None] | None = None) -> None:
        """One group of what is said of one try, and perhaps of the next."""
        self.writer.append([_group(parts)], then)

    def _append_groups(self, groups: Sequence[Sequence[Sequence[Event]]]) -> None:
        """Several, one behind the other."""
        self.writer.append([_group(parts) for parts in groups])

    def _commit(self) -> None:
        if not self.owner:
            return
        self._checkpoints.take()
        positions = self.reader.positions
        needed = [*self.core.live(), *self._records.rules.needed()]
        mark = self._checkpoints.mark(needed, positions[Topic.JOBS_EVENTS])
        still_needed = {Topic.JOBS_EVENTS: mark, Topic.TOOLS_GRANTS: self.core.low_water()}
        self.around.group(ROLE).commit(positions, still_needed)


def _group(parts: Sequence[Sequence[Event]]) -> WholeBatch:
    bodies = tuple(_identified(event, reports.cause_of(events)) for events in parts for event in events)
    return WholeBatch(Topic.JOBS_EVENTS, bodies)


def _identified(event: Event, cause: Sequence[str]) -> tuple[str, Event]:
    return event_id(event.job_id, event.event_type, *cause), event


def _report(invocation: DeclaredInvocation, reply: Said | None) -> tuple[Event, ...]:
    match reply:
        case Succeeded():
            return reports.succeeded(invocation, reply, digest(reply.result), reply.result)
        case Retryable() | Permanent() | InDoubt():
            return (reports.unsuccessful(invocation, reply),)
        case None:
            raise TypeError("a try reports what it was told")
