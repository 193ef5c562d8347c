"""One partition of the ledger: folds its jobs, keeps what is open, decides (docs/architecture.md); pure.

An event is folded, then followed by those who remember something of its job (`key_changes`, `reactions`). A round has
two phases: `to_fetch` takes up what is due and says what must be known of the stores, `decide` judges it by that.
"""

from collections.abc import Iterator, Mapping, Set

from aetheris.ledger.core import confirmations
from aetheris.ledger.core.decisions import Decision, Facts, Now, ToFetch
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.freezes import Numbered
from aetheris.ledger.core.human_commands import HumanCommands, IgnoredCommand
from aetheris.ledger.core.invocations import Invocations
from aetheris.ledger.core.judgement import Judgement
from aetheris.ledger.core.key_changes import KeyChanges
from aetheris.ledger.core.key_revocations import KeyRevocations
from aetheris.ledger.core.live_jobs import DecisionContext, LiveJob, LiveJobs, LiveJobTable, Pending, WorkerLife
from aetheris.ledger.core.node_requests import NodeRequests
from aetheris.ledger.core.offers import Offers
from aetheris.ledger.core.outdated_lines import OutdatedLines
from aetheris.ledger.core.placement import CallPlacement
from aetheris.ledger.core.policy_answers import PolicyAnswers
from aetheris.ledger.core.quarantine import Quarantine, TenantTool
from aetheris.ledger.core.reactions import Reactions
from aetheris.ledger.core.rules_answers import RulesAnswers
from aetheris.ledger.core.tool_failures import ToolFailures
from aetheris.ledger.core.worker_ends import WorkerEnds
from aetheris.protocol.base.job_table import QUIET, Resting
from aetheris.protocol.base.measures import Histogram
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.base.sealed import SealedNames, UnreadCreations
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import KeyStatus, create_job
from aetheris.protocol.fold.unjudged import Unjudged
from aetheris.protocol.fold.workers import Ended
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    ContentRecord,
    FreezeBarrier,
    FreezeOrder,
    JobPlaced,
    PartitionBarrier,
    PolicyBarrier,
    RulesBarrier,
    StepCommand,
    ToolRequest,
)
from aetheris.protocol.messages.events import Event
from aetheris.protocol.tables.rules_orders import PartitionRules

_PLAIN = frozenset({ev.ToolInvocationStarted, ev.ToolInvocationFinished})
"""What a step that goes well writes: it moves its key, and nothing else follows."""


class Partition:
    """Jobs are kept in the order of their births; `ended` is everything known of ended workers, with how.

    `number` is the partition's; `rules` what its edge knows of the rules under which jobs are created there.
    """

    def __init__(
        self,
        context: DecisionContext,
        ended: Mapping[WorkerLife, Ended],
        number: int = 0,
        rules: PartitionRules | None = None,
        queue_s: Histogram | None = None,
    ) -> None:
        self._live_jobs = live_jobs = LiveJobs(context.of_partition(), ended, number)
        self._due = DueTimes(live_jobs)
        self._unread = UnreadCreations()
        self._requests = NodeRequests(live_jobs, self._due, self._unread)
        self._ends = WorkerEnds(live_jobs)
        self._offers = Offers(live_jobs, self._due)
        self._failures = ToolFailures(live_jobs, self._due)
        self._invocations = Invocations(live_jobs, self._due, self._ends, self._offers, self._failures)
        self._changes = KeyChanges(live_jobs, self._due, self._requests, self._invocations)
        self._cancels, self._lines, self._bodies = self._changes.cancels, self._changes.lines, self._changes.bodies
        self._reactions = Reactions(live_jobs, self._due, self._requests, self._invocations, self._changes)
        self._freezes = self._reactions.freezes
        self._revocations = KeyRevocations(live_jobs)
        self._policies = PolicyAnswers(live_jobs, self._due)
        self._rules = rules or PartitionRules(partition=number)
        self._rules_answers = RulesAnswers(live_jobs, self._rules)
        self._commands = HumanCommands(live_jobs)
        self._placement = CallPlacement(live_jobs, self._due)
        self._judgement = Judgement(
            live_jobs,
            self._due,
            self._requests,
            offers=self._offers,
            failures=self._failures,
            placement=self._placement,
        )
        self._queue_s = Histogram() if queue_s is None else queue_s
        self._forgotten = SealedNames()
        self._outdated = OutdatedLines(live_jobs, self._unread)
        self.contradictions: list[ev.ToolInvocationFinished] = []
        """Successes that came after their key was settled otherwise, for an operator to hear of."""
        self.emergencies: list[Event] = []
        """What somebody decided alone, by breaking the glass, for an operator to hear of."""

    @property
    def jobs(self) -> LiveJobTable:
        """The live jobs."""
        return self._live_jobs.jobs

    @property
    def number(self) -> int:
        """The partition's."""
        return self._live_jobs.number

    @property
    def folded(self) -> int:
        """The offset of the last record that was read."""
        return self._live_jobs.folded

    @property
    def unjudged(self) -> Unjudged:
        """What could not be judged, for an operator to hear of."""
        return self._live_jobs.unjudged

    @property
    def ignored(self) -> list[IgnoredCommand]:
        """People's words that decide nothing, for an operator to hear of."""
        return self._commands.ignored

    @property
    def quarantine(self) -> Quarantine:
        """Which tools' calls wait."""
        return self._failures.quarantine

    # reading

    def handled_before(self, offset: int) -> None:
        """Whoever had the partition before has written what follows from the records up to there."""
        self._lines.written = offset

    def pass_over(self, offset: int) -> None:
        """A record that says nothing here was read."""
        self._live_jobs.folded = offset

    def needs_upgrade(self, job_id: str, offset: int, *, is_birth: bool = False) -> None:
        """A record of the job that this version can't read: nothing more is decided about it."""
        self._live_jobs.folded = offset
        job = self.jobs.get(job_id)
        if job is not None:
            job.state.needs_upgrade = True
        elif is_birth and job_id not in self._forgotten:
            self._unread.add(job_id, offset)

    def evolve(self, event: Event, offset: int, now: Now, at_s: float = 0.0) -> None:
        """Fold one event, appended at `at_s` (seconds since 1970); what it makes due the next `decide` decides."""
        live_jobs = self._live_jobs
        live_jobs.folded = offset
        job = live_jobs.jobs.get(event.job_id)
        if job is None:
            self._take_in(event, offset)
            return
        try:
            self._follow(job, event, now, at_s)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            live_jobs.unjudged.note(job.state, error)

    def confirm(self, answer: ev.EffectConfirmed | ev.ConfirmationFailed, offset: int, now: Now) -> None:
        """Take what the external system says of a recorded effect; what waits for it is looked at again."""
        self._live_jobs.folded = offset
        job = self.jobs.get(answer.job_id)
        if job is not None and confirmations.observe(job, answer, self._live_jobs.context, now):
            self._due.hurry_all(job, now)

    def nothing_changed(self, job_id: str, key: str, now: Now) -> None:
        """A call that was to be confirmed has recorded no change."""
        job = self.jobs.get(job_id)
        if job is not None:
            confirmations.nothing_changed(job, key)
            self._due.hurry_all(job, now)

    def request(
        self, request: ToolRequest, offset: int, parent: bytes | None = None, at_s: float | None = None
    ) -> None:
        """Take a request up, appended at `at_s`; it is judged when the fold has come to where its writer was."""
        self._requests.take(request, offset, parent, at_s)

    def hear(self, command: StepCommand, command_id: str, offset: int) -> None:
        """Take a word from outside up; it is decided when the fold has come to where the gateway was."""
        self._commands.hear(command, command_id, offset)

    def contents_changed(self, scope: str, now: Now) -> bool:
        """A line of calls that mean the same has changed; whether one here waits for that."""
        return self._judgement.contents_changed(scope, now)

    def line_read(self, line: ContentRecord) -> bool:
        """A line of a call of this partition was read, and its index has it; whether that calls for a round."""
        return self._outdated.take(line)

    def worker_ended(self, life: WorkerLife) -> bool:
        """The workers table says that a worker has ended; whether a job here is concerned."""
        self._ends.take(life)
        self._offers.ended(life)
        return bool(self._ends.unrecorded or self._offers.left)

    def executors_changed(self, now: Now) -> bool:
        """Other executors live, or serve something else; whether a call here waits for one."""
        return self._placement.changed(now)

    def tool_released(self, tool: TenantTool, below: int, now: Now) -> bool:
        """A person says that a tool's calls wait no longer, whatever failed below an offset; whether any did here."""
        return self._failures.release(tool, below, now)

    def ordered(self, order: FreezeOrder, now: Now) -> None:
        """A person has ordered a freeze, or its end, and this partition has not answered yet."""
        self._freezes.take(order, now)

    def policy_activated(self, now: Now) -> None:
        """Another policy decides, and this partition has not answered yet."""
        self._policies.activated(now)

    @property
    def unknown_activation(self) -> int:
        """The highest that a live job's decisions name, and this process has not read: that job is held. 0: none."""
        live_jobs = self._live_jobs
        number = live_jobs.context.policies.number
        if live_jobs.activation <= number:
            return 0
        return max((job.activation for job in self.jobs.awake() if job.activation > number), default=0)

    @property
    def unknown_barriers(self) -> int:
        """How many barriers named an activation that this process had not read; 0: none holds the partition."""
        context = self._live_jobs.context
        return context.barriers.heard if context.barriers.number > context.policies.number else 0

    def activations_known(self, heard: int, now: Now) -> bool:
        """Everything that was activated when so many barriers were unknown was read; whether they were forged."""
        return self._policies.known(heard, now)

    def passed(self, barrier: PartitionBarrier, offset: int) -> None:
        """A barrier of the partition was read: everything that is ordered lies in front of it."""
        self._live_jobs.folded = offset
        if isinstance(barrier, FreezeBarrier):
            self._freezes.passed(barrier)
        elif isinstance(barrier, PolicyBarrier):
            self._policies.passed(barrier)
        elif isinstance(barrier, RulesBarrier):
            self._rules.passed(barrier, offset)
        elif isinstance(barrier, JobPlaced):
            self._rules.placed(barrier)

    @property
    def unknown_freezes(self) -> Set[Numbered]:
        """Freezes of jobs whose order this process has not read: it reads what is ordered, then says `orders_known`."""
        return frozenset(self._freezes.unknown)

    def orders_known(self, asked: Set[Numbered]) -> None:
        """All that was ordered before now was read: what of `asked` is not among it is taken back."""
        self._freezes.known(asked)

    def restored(self, now: Now) -> None:
        """History was read: every lease gets a full TTL before it is missed."""
        live_jobs = self._live_jobs
        live_jobs.is_restored, live_jobs.restored_at = True, live_jobs.folded
        self._offers.restored()
        self._take_up()
        for one in self.jobs.survey():
            if isinstance(one, LiveJob):
                self._cancels.give_up(one)
                self._invocations.resume(one, now)
                self._due.put_all(one.timers())
                self._freezes.look(one)
                self._revocations.look(one.state.job_id)
            else:
                self._due.put_all(one.timers)
                self._freezes.look_at_rest(one)
                self._revocations.look(one.job_id)

    def _take_up(self) -> None:
        folded, context, ended = self.folded, self._live_jobs.context, frozenset(self._live_jobs.ended)
        self.jobs.tell_all(lambda job: confirmations.taken_up(job, folded, context, ended))

    # a round

    @property
    def waits_for_fold(self) -> bool:
        """Whether something is here that the fold has not caught up with."""
        return self._requests.waits_for_fold or self._commands.waits_for_fold

    def next_due(self) -> float | None:
        """When a round is next called for by the clock alone."""
        return float("-inf") if self._is_due_at_once() else self._due.next_due()

    def to_fetch(self, now: Now) -> ToFetch:
        """The first phase: take up what is due; what must be known of the stores before `decide`."""
        self._requests.admit(now)
        self._offers.withdraw(now)
        return self._judgement.to_fetch(now)

    def decide(self, facts: Facts, now: Now) -> list[Decision]:
        """The second phase: everything that is decided now, in the order in which it is to be carried out."""
        return [
            *self._revocations.decided(),
            *self._freezes.decided(),
            *self._policies.decided(),
            *self._rules_answers.decided(),
            *self._ends.decided(),
            *self._commands.decided(now),
            *self._invocations.findings.decided(),
            *self._cancels.decided(),
            *self._bodies.decided(),
            *self._judgement.decided(facts, now),
            *self._lines.decided(now),
            *self._outdated.decided(now),
        ]

    def joined(self) -> list[tuple[str, str]]:
        """Job and key of what started as later nodes of a run, since the last call."""
        joined, self._changes.joined = self._changes.joined, []
        return joined

    def _is_due_at_once(self) -> bool:
        return bool(
            self._invocations.findings.unsettled
            or self._ends.unrecorded
            or self._lines.unwritten
            or self._outdated.unwritten
            or self._cancels.given_up
            or self._bodies.over
            or self._offers.left
            or self._freezes.is_due
            or self._policies.is_due
            or self._rules_answers.is_due
            or self._live_jobs.voted
            or self._revocations.is_due
        )

    def rest(self, quiet: int = QUIET) -> Resting:
        """Let jobs rest that nobody has asked for in a while; between rounds."""
        if self._live_jobs.is_restored:
            self.jobs.rest(quiet)
        return self.jobs.resting

    # offsets

    def live(self) -> Iterator[tuple[str, int]]:
        """The live jobs, each with its birth."""
        yield from self.jobs.births()
        yield from self._unread.items()
        yield from self._rules.needed()

    def open_request(self) -> int | None:
        """The offset of the oldest request that is not discharged."""
        return self._requests.oldest()

    def open_command(self) -> int | None:
        """The offset of the oldest command that waits."""
        return self._commands.oldest()

    # folding

    def _take_in(self, event: Event, offset: int) -> None:
        if isinstance(event, ev.JobCreated) and not (event.job_id in self._forgotten or event.job_id in self._unread):
            self.jobs[event.job_id] = job = LiveJob(create_job(event, offset))
            self._freezes.look(job)
            self._revocations.look(event.job_id)
        elif isinstance(event, ev.JobSealed):
            self._unread.pop(event.job_id)

    def _follow(self, job: LiveJob, event: Event, now: Now, at_s: float) -> None:
        keys = job.state.keys
        key = event.idempotency_key if isinstance(event, ev.KeyEvent) else None
        known = keys.get(key) if key is not None else None
        before = known.status if known is not None else KeyStatus.NONE
        if not apply(job.state, event, self._live_jobs.folded):
            return
        if key is not None and (known or keys[key]).status is not before:
            if isinstance(event, ev.ToolInvocationStarted):
                self._time(job.pending.get(event.node_id), at_s)
            self._changes.moved(job, key, before, event, now)
            if isinstance(event, ev.ToolInvocationFinished):
                self._failures.judge(job, event, now)
        elif before is KeyStatus.SETTLED and isinstance(event, ev.ToolInvocationFinished):
            self.contradictions.append(event)
        principal: RecordedPrincipal | None = getattr(event, "principal", None)
        if principal is not None and principal.breaks_glass:
            self.emergencies.append(event)
        if type(event) in _PLAIN:
            return
        if isinstance(event, ev.JobSealed | ev.BirthRepeated):
            self._forget(job)
        else:
            self._reactions.follow(job, event, now, at_s)

    def _time(self, pending: Pending | None, at_s: float) -> None:
        """How long what starts now was asked for."""
        if pending is not None and pending.asked_s is not None:
            self._queue_s.add(at_s - pending.asked_s)

    def _forget(self, job: LiveJob) -> None:
        """A sealed job costs nothing but its name, for a while: a repeat of its birth may still arrive."""
        self._requests.discharge_all(job)
        self._freezes.forget(job.state.job_id)
        self._lines.sealed(job)
        job_id = job.state.job_id
        del self.jobs[job_id]
        self._forgotten.add(job_id)
