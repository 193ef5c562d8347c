"""The ledger's edge, simulated: rounds as in aetheris.ledger.handlers, with facts that may be stale when used."""

from collections.abc import Iterable

from aetheris.ledger.core.decisions import (
    Answered,
    Ask,
    Barrier,
    Confirm,
    Decision,
    DuplicateLine,
    Emit,
    Facts,
    Grant,
    Now,
    PolicyTaken,
    RulesTaken,
    ToFetch,
    View,
)
from aetheris.ledger.core.duplicate_index import DuplicateIndex
from aetheris.ledger.core.live_jobs import DecisionContext, WorkerLife
from aetheris.ledger.core.partition import Partition
from aetheris.ledger.core.policy_in_force import PolicyInForce
from aetheris.ledger.core.quarantine import TenantTool
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Standing
from aetheris.protocol.fold.workers import Ended, Names
from aetheris.protocol.messages.commands import (
    CancelContract,
    FreezeOrder,
    PartitionBarrier,
    PolicyActivation,
    PolicyAnswer,
    StepCommand,
    ToolRequest,
    WorkerEnd,
)
from aetheris.protocol.messages.events import ConfirmationFailed, EffectConfirmed, JobCreated, WorkerEnded
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.testkit.simulation.actors.policy_lines import PolicyLines
from aetheris.testkit.simulation.checkpoints import SimCheckpoints
from aetheris.testkit.simulation.checks import Broken
from aetheris.testkit.simulation.executor_tools import SimulatedExecutorTools
from aetheris.testkit.simulation.installation import keys_of, line
from aetheris.testkit.simulation.log import Entry, WholeBatch
from aetheris.testkit.simulation.scenario import TENANT, TOOLS
from aetheris.testkit.simulation.stores import Holders
from aetheris.testkit.simulation.surroundings import (
    START,
    ScheduledAction,
    SimulatedReader,
    SimulationSurroundings,
    SkewedClock,
    draw_clock,
)
from aetheris.testkit.simulation.versions import ReadableRecords, is_newer, writes_newer
from aetheris.testkit.simulation.words import is_unheard

ROLE = "ledger"
_START_S = START.timestamp()


class SimulatedLedger:
    """One ledger process on the partition; `owner` tells it from a zombie."""

    def __init__(self, around: SimulationSurroundings, name: str, start: int, holders: Holders) -> None:
        self.name = name
        self.owner = True
        self.paused = False
        self.clock: SkewedClock = draw_clock(around.tape)
        self.reading = ReadableRecords(around, name, is_newer(around))
        self.writer = around.log.writer(name, writes_newer(around, newer=self.reading.newer))
        self.around = around
        self._holders = holders
        self.policy_lines = PolicyLines(around)
        self._records = around.records(Party.LEDGER, orders=self.policy_lines.rules)
        self._ended: dict[WorkerLife, Ended] = {}
        self._names = Names(SignedMessages().counts)
        self._duplicates = DuplicateIndex()
        self._epoch: int | None = None
        self._silent = False
        self._lost_s: float | None = None
        self._facts: Facts | None = None
        self._freezes = FreezeOrders()
        self.policies = PolicyInForce()
        self._executors = SimulatedExecutorTools()
        self._answered = around.activations.answered.get(around.number, 0)
        """The activation that its partition had answered when it took over, or that it has answered since."""
        scenario = around.scenario
        self.core = Partition(
            DecisionContext(
                scenario.policy,
                scenario.limits,
                lambda: around.fresh("id-"),
                lambda: 0.5,
                scenario.registered,
                self._duplicates,
                freezes=self._freezes,
                policies=self.policies,
                placement=self._executors.placement,
            ),
            self._ended,
            around.number,
            self._records.rules,
        )
        group = around.group(ROLE)
        self._tables = SimulatedReader(
            around, dict.fromkeys((Topic.WORKERS, Topic.LEDGER_CONTENTS, Topic.TOOLS_REGISTRY, Topic.FREEZES), 0)
        )
        self.released: dict[str, int] = {}
        """Tool → where its last release that was read says that the partition ended."""
        self._read_tables(announce=False)
        self._read_policies()
        commands = {topic: group.start(topic) for topic in (Topic.TOOLS_REQUESTS, Topic.JOBS_COMMANDS)}
        self._checkpoints = SimCheckpoints(around, Topic.LEDGER_CHECKPOINTS)
        start, below = self._checkpoints.load(start)
        for entry in below:
            self._evolve(entry, self._now())
        self.core.pass_over(start - 1)
        self._records.begin(start, self._checkpoints.live)
        self.reader = SimulatedReader(around, {Topic.JOBS_EVENTS: start, **commands})
        for entry in self.reader.read_all(Topic.JOBS_EVENTS):
            self._evolve(entry, self._now())
            if around.progress.rests:
                self.core.jobs.rest_on_the_way(0, above=0)
        self._cancels: dict[int, CancelContract] = {}
        """Offset → a step's cancel that was read, and has something to hold back."""
        self._decides = (ScheduledAction(f"{name} decides", self._decide),)
        self._hears_of_executor = (ScheduledAction(f"{name} hears of an executor", self._serve_again),)
        self._takes_a_round = (ScheduledAction(f"{name} takes a round", self._round),)
        self._finds_due = (ScheduledAction(f"{name} finds something due", self._look),)
        self._notice_loss()
        self.core.restored(self._now())
        self._look()

    def actions(self) -> Iterable[ScheduledAction]:
        """A round, when something has come or is due; none while the last one is being appended."""
        if self.paused or self.writer.unacknowledged:
            return ()
        if self._facts is not None:
            return self._decides
        if self.around.calm and not self._executors.serve:
            return self._hears_of_executor
        if self.reader.has_more or self._tables.has_more or self.policy_lines.has_more:
            return self._takes_a_round
        due_s = self.due_s()
        return self._finds_due if due_s is not None and due_s <= self.around.now_s else ()

    def due_s(self) -> float | None:
        """The true time at which it wants to be called."""
        due_s = self.core.next_due()
        return None if due_s is None or due_s == float("inf") else self.clock.true_s(due_s)

    def _serve_again(self) -> None:
        self._executors.toggle()
        self.core.executors_changed(self._now())
        self._look()

    def _round(self) -> None:
        now = self._now()
        if self.around.unserved and not self.around.calm and self.around.tape.chance(0.1):
            self._executors.toggle()
            self.core.executors_changed(now)
        if not self.around.tape.chance(0.3):
            self._read_tables(announce=True)
            self._read_policies()
        batch = self.reader.read()
        for entry in batch[Topic.JOBS_EVENTS]:
            self._evolve(entry, now)
        for entry in batch[Topic.TOOLS_REQUESTS]:
            if isinstance(entry.body, ToolRequest):
                self.core.request(entry.body, entry.record.offset)
        for entry in batch[Topic.JOBS_COMMANDS]:
            if isinstance(entry.body, StepCommand):
                self.core.hear(entry.body, entry.id, entry.record.offset)
            if isinstance(entry.body, CancelContract):
                self._cancels[entry.record.offset] = entry.body
        self._look()

    def _evolve(self, entry: Entry, now: Now) -> None:
        body, offset = entry.body, entry.record.offset
        if not self.reading.reads(entry):
            self._records.pass_over(entry)
            self.core.needs_upgrade(body.job_id, offset, is_birth=isinstance(body, JobCreated))
            return
        standing = self._records.judge(entry)
        if standing is Standing.UNKNOWN_ROOT:
            self.core.needs_upgrade(body.job_id, offset, is_birth=True)
        elif standing is Standing.VOID:
            self.core.pass_over(offset)
        elif isinstance(body, PartitionBarrier):
            self.core.passed(body, offset)
        elif isinstance(body, EffectConfirmed | ConfirmationFailed):
            self.core.confirm(body, offset, now)
        else:
            self.core.evolve(body, offset, now, _START_S + self.around.now_s)

    def _look(self) -> None:
        self._facts = self._ask_redis(self.core.to_fetch(self._now()))
        if self.around.calm or not self.around.tape.chance(0.15):
            self._decide()

    def _decide(self) -> None:
        if self.around.activates and self.around.tape.chance(0.3):
            self._read_policies()
        facts, self._facts = self._facts or Facts(), None
        decisions = self.core.decide(facts, self._now())
        broken = self.around.activations.broken(self.policies.number, self._answered, decisions)
        if broken is not None and self.owner:
            raise Broken("nobody_decides_by_what_was_before", f"{self.name}: {broken}")
        self.core.joined()
        self._cancels = {at: one for at, one in self._cancels.items() if self._holds_back(one)}
        for decision in decisions:
            if isinstance(decision, Grant) and self.around.redis.up:
                self.around.redis.lease(decision.message.idempotency_key, self.around.now_s)
            elif isinstance(decision, View):
                self.around.redis.drop(decision.record.idempotency_key)
        batches = [batch for decision in decisions if (batch := self._batch(decision)) is not None]
        if batches:
            self.writer.append(self._records.signed(batches), self._commit)
        else:
            self._commit()
        self._checkpoints.write(self.core.live(), self.reader.positions[Topic.JOBS_EVENTS])
        if self.around.progress.rests:
            self.core.rest(0)

    def _batch(self, decision: Decision) -> WholeBatch | None:
        match decision:
            case Emit():
                for written in decision.events:
                    if not isinstance(written.event, WorkerEnded):
                        self.reading.decides(written.event.job_id, written.event.event_type)
                return WholeBatch(Topic.JOBS_EVENTS, tuple((written.id, written.event) for written in decision.events))
            case Grant():
                self.reading.decides(decision.message.job_id, "a grant")
                return WholeBatch(Topic.TOOLS_GRANTS, ((decision.message.lease_id, decision.message),))
            case Ask() | Confirm():
                return WholeBatch(Topic.VERIFICATIONS, ((decision.message.ask, decision.message),))
            case DuplicateLine():
                return WholeBatch(Topic.LEDGER_CONTENTS, ((self.around.fresh("line-"), decision.record),))
            case Barrier():
                return WholeBatch(Topic.JOBS_EVENTS, ((self.around.fresh("barrier-"), decision.message),))
            case Answered():
                return WholeBatch(Topic.FREEZES, ((self.around.fresh("answer-"), decision.message),))
            case PolicyTaken():
                return self._answer(decision.message)
            case RulesTaken():
                keys = keys_of(Party.LEDGER) if self.around.rooted else keys_of()
                return line(Topic.POLICIES, self.around.fresh("answer-"), decision.message, keys)
            case View():
                return None

    def _ask_redis(self, wanted: ToFetch) -> Facts:
        redis, now_s = self.around.redis, self.around.now_s
        if not (wanted.effects or wanted.leases):
            return Facts()
        if not redis.up:
            self._not_answered()
            return Facts(None, None if wanted.leases else {}, self._lost_s)
        held = {key: redis.held(key, now_s, self._holders) for key in wanted.leases}
        self._notice_loss()
        return Facts({key: redis.find(key) for _, key in wanted.effects}, held, self._lost_s)

    def _notice_loss(self) -> None:
        if not self.around.redis.up:
            self._not_answered()
            return
        if self._epoch != self.around.redis.epoch or self._silent:
            lost_before = self._epoch is not None or self.around.redis.epoch > 0 or self._silent
            if lost_before:
                self._lost_s = self._now().mono_s
        self._epoch, self._silent = self.around.redis.epoch, False

    def _not_answered(self) -> None:
        if not self._silent:
            self._silent = True
            self._lost_s = self._now().mono_s

    def _read_tables(self, *, announce: bool) -> None:
        for one in self._tables.read_all(Topic.LEDGER_CONTENTS):
            self._duplicates.take(one.body)
            if self.around.scenario.number_of(one.body.job_id) == self.around.number:
                self.core.line_read(one.body)
            if announce:
                self.core.contents_changed(one.body.scope_key, self._now())
        for one in self._tables.read_all(Topic.WORKERS):
            key = one.body.key if isinstance(one.body, WorkerEnd) else one.body.worker_id
            taken = self._names.take(key, one.body.model_dump_json().encode())
            for life in taken.ended:
                self._ended[life] = self._names[life[0]].ended[life[1]]
                if announce:
                    self.core.worker_ended(life)
        for one in self._tables.read_all(Topic.TOOLS_REGISTRY):
            below = one.body.below_in(self.around.number)
            self.released[one.body.tool] = below
            self.core.tool_released(TenantTool(one.body.tenant, one.body.tool), below, self._now())

        fresh = self._read_freezes()
        for order in fresh if announce else self._freezes.all():
            if self.around.number not in self._freezes.answers(order.key):
                self.core.ordered(order, self._now())

    def _read_freezes(self) -> list[FreezeOrder]:
        counting = [one.body for one in self._tables.read_all(Topic.FREEZES) if self._freezes.hear(one.body)]
        return [body for body in counting if isinstance(body, FreezeOrder)]

    def _read_policies(self) -> None:
        for one in self.policy_lines.read():
            self._activated(one)

    def answers(self, number: int) -> None:
        """That its partition decides by an activation."""
        self.writer.append([self._answer(PolicyAnswer(number=number, partition=self.around.number))])

    def _answer(self, answer: PolicyAnswer) -> WholeBatch:
        self._answered = answer.number
        keys = keys_of(Party.LEDGER) if self.around.rooted else keys_of()
        return line(Topic.POLICIES, self.around.fresh("answer-"), answer, keys)

    def _activated(self, record: PolicyActivation | PolicyAnswer) -> None:
        if not isinstance(record, PolicyActivation):
            return
        self.policies.take(record)
        if self.around.number not in self.policy_lines.activations.answers(record.key):
            self.core.policy_activated(self._now())

    def quarantined(self) -> list[str]:
        """The tools whose calls wait here."""
        quarantine = self.core.quarantine
        return [tool for tool in TOOLS if TenantTool(TENANT, tool) in quarantine] if quarantine else []

    @property
    def knows_tables(self) -> bool:
        """Whether it has read all that the tables hold."""
        return not self._tables.has_more

    def _commit(self) -> None:
        if not self.owner:
            return
        self._checkpoints.take()
        group, positions = self.around.group(ROLE), self.reader.positions
        still_needed = {
            Topic.JOBS_EVENTS: self._checkpoints.mark(self.core.live(), positions[Topic.JOBS_EVENTS]),
            Topic.TOOLS_REQUESTS: self.core.open_request(),
            Topic.JOBS_COMMANDS: self.core.open_command(),
        }
        before = group.start(Topic.JOBS_COMMANDS)
        group.commit(positions, still_needed)
        passed = slice(before, group.start(Topic.JOBS_COMMANDS))
        self._note_passed_over(self.around.log.topics[Topic.JOBS_COMMANDS][passed])

    def _note_passed_over(self, entries: Iterable[Entry]) -> None:
        passed = (self._cancels.get(entry.record.offset) for entry in entries)
        self.around.progress.passed_over += (one for one in passed if one is not None and self._holds_back(one))

    def _holds_back(self, cancel: CancelContract) -> bool:
        """Whether it still has something to do; what it came too early for when it was judged it never has."""
        job = self.core.jobs.get(cancel.job_id)
        return cancel.as_of > self.core.folded or (job is not None and is_unheard(cancel, job.state))

    def _now(self) -> Now:
        return Now(self.clock.mono_s(self.around), self.clock.wall(self.around))
