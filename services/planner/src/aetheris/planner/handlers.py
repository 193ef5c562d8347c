"""The planner's edge: one partition's records in, its decisions out (docs/architecture.md, "planner")."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

import structlog

from aetheris.planner.core import child_jobs
from aetheris.planner.core.backlog import JOBS_IN_FLIGHT, Backlog
from aetheris.planner.core.behind import Behinds
from aetheris.planner.core.decisions import (
    Append,
    IndexUpdate,
    LoadArguments,
    Look,
    NewEvent,
    Output,
    Place,
    RefusedSubmission,
    SubmissionConflict,
    Tell,
)
from aetheris.planner.core.index_lines import Indexed
from aetheris.planner.core.partition import Partition
from aetheris.planner.core.placements import JobPlacements, JobPlaces
from aetheris.planner.core.waiting_lines import WITHIN_S, WaitingLines
from aetheris.planner.core.watch import STUCK_AFTER_S, StuckJobWatch
from aetheris.planner.drafts import PlannerDrafts, Written
from aetheris.planner.lookup import LookUp, LookUps, ReadEnded
from aetheris.protocol.base.job_table import Resting
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.provenance import Standing
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.messages.commands import (
    PLACED_KEY,
    RULES_BARRIER_KEY,
    Cancel,
    JobCommand,
    JobPlaced,
    Pause,
    PlacementOver,
    Resume,
    RulesBarrier,
    Submit,
)
from aetheris.protocol.messages.envelope import (
    Envelope,
    NeedsUpgrade,
    Undecodable,
    UnknownRecord,
    decode_event,
    decode_message,
)
from aetheris.protocol.messages.events import (
    Event,
    JobCancelled,
    JobCompleted,
    JobCreated,
    JobFailed,
    PlanGenerated,
    StateCheckpointed,
    StepCompensated,
    WaitCompleted,
)
from aetheris.protocol.messages.submission_numbers import ReceiptVoid
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.keys.records import UNSIGNED, PartitionRecords, RecordKeys
from aetheris.runtime.log.interface import Writer
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.process.crash import NOWHERE, CrashPoints
from aetheris.runtime.process.withheld import Withheld, write_all
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.runtime.worker.loop import PartitionHandler
from aetheris.runtime.worker.unjudged import report_unjudged
from aetheris.runtime.worker.unsigned import HeardMessages, orders_read

UNLOADED_AGAIN_S = 5.0

_RECOVERED_AT_ONCE = 50
"""Jobs of a restart that are looked at before others of the process have their turn: some twenty milliseconds."""
_FEW = 4
"""Jobs that go on by themselves in a partition, up to which the end of one is told at once."""

_BARRIERS = frozenset({RULES_BARRIER_KEY.encode(), PLACED_KEY.encode()})
_UNRECORDABLE = RefusedSubmission(child_jobs.UNRECORDABLE)
_ENDS = (JobCompleted, JobFailed, JobCancelled)
_TAKEN_UP = (Submit, ReceiptVoid, Cancel, Pause, Resume)
"""The other commands are the ledger's."""

Quarantine = Callable[[Record, str], None]
Again = Callable[[int, int], AsyncIterator[Sequence[Record]]]
"""Reads a stretch of the partition's jobs.commands once more: from an offset, at least up to another."""

_log = structlog.get_logger(__name__)


class PlannerHandler(PartitionHandler):
    """Folds jobs.events, takes up commands, appends events, requests and index lines."""

    def __init__(
        self,
        *,
        appender: Writer,
        withheld: Withheld,
        indexed: Indexed,
        behind: Behinds,
        quarantine: Quarantine,
        traffic: BlobTraffic,
        telemetry: Telemetry,
        metrics: Metrics,
        clock: Clock,
        again: Again,
        keys: RecordKeys = UNSIGNED,
        partition: int,
        taken: Callable[[], int],
        look_up: ReadEnded,
        call_at: Callable[[float], None],
        crash: CrashPoints = NOWHERE,
        runs: bool = True,
        rules: OrderTable[RulesOrders] | None = None,
        places: JobPlaces | None = None,
        stuck_after_s: float = STUCK_AFTER_S,
        jobs_in_flight: int = JOBS_IN_FLIGHT,
        catch_up: Callable[[], None] = lambda: None,
        wake_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._appender = appender
        self._keys = keys
        self._records = PartitionRecords(keys, partition, rules.orders if rules is not None else None)
        self._rules = rules
        self._taken = taken
        self._messages = HeardMessages(keys.messages, metrics, rules.orders if rules is not None else None)
        self._withheld = withheld
        self._creations: dict[str, tuple[Record, Submit]] = {}
        """Submissions whose birth is being written."""
        self._passed_on: list[Group] = []
        """Commands of jobs that lie elsewhere, as they came: nobody signs them but who wrote them."""
        self._quarantine = quarantine
        self._traffic = traffic
        self._unloaded: dict[tuple[str, str], LoadArguments] = {}
        """What waits for large results that can't be had now, by job and node."""
        self._metrics = metrics
        self._clock = clock
        self._crash = crash
        self._again = again
        self._look_ups = LookUps(look_up, clock, self._wake)
        self._call_at = call_at
        self._catch_up = catch_up
        self._wake_up = wake_up
        self._live = False
        self._lines = WaitingLines()
        self._partition = Partition(
            indexed,
            runs,
            behind,
            StuckJobWatch(stuck_after_s),
            Backlog(jobs_in_flight),
            rules=lambda: self._records.rules.in_force,
            placements=JobPlacements(partition, places),
        )
        self._drafts = PlannerDrafts(
            telemetry, clock, self._partition.wants_trace, partition, self._partition.placements
        )

    @property
    def stuck(self) -> int:
        """How many jobs are stuck now."""
        return len(self._partition.watch.stuck)

    @property
    def unread(self) -> int:
        """How many jobs that submissions continue can't be read now."""
        return self._look_ups.unread

    @property
    def waits_for_upgrade(self) -> int | None:
        """The version of the rules under which jobs are created here now, where this one doesn't know it."""
        return None if self._partition.can_create else self._records.rules.in_force

    def fold(self, records: Sequence[Record]) -> None:
        """History, in log order: causes no output."""
        for record in records:
            self._fold(record)
        if records:
            self._records.read(records[-1].offset)

    async def learn(self) -> None:
        """Under which rules jobs are created may have been answered below what is read here."""
        if self._rules is not None:
            await self._rules.caught_up()

    async def restored(self) -> None:
        """Take up what is open: requests, reports, ends and index lines that a crash kept from being written."""
        self._live = True
        outputs: list[Output] = []
        for done, of_job in enumerate(self._partition.recovering(self._clock.monotonic()), 1):
            outputs += of_job
            if done % _RECOVERED_AT_ONCE == 0:
                await self._say_again(outputs)
                outputs.clear()
                await asyncio.sleep(0)  # who is silent for seconds loses its partitions
        await self._say_again(outputs)
        await self._take_up_backlog(self._partition.make_room())
        self._watch()

    async def _say_again(self, outputs: Sequence[Output]) -> None:
        await self._append(self._drafts.groups(await self._loaded(outputs), again=True))

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Fold the events, take up the commands, append what follows at once; lines of the index may wait for it."""
        if self._rules is not None:
            await orders_read(batch.get(Topic.JOBS_EVENTS, ()), self._rules)
        self.fold(batch.get(Topic.JOBS_EVENTS, ()))
        decided = self._partition.decide(self._clock.monotonic())  # first: a job just created takes up room
        report_unjudged(self._partition.unjudged, self._metrics)
        groups: list[Group] = []
        for record in batch.get(Topic.JOBS_COMMANDS, ()):
            groups.extend(self._command(record))
        outputs = await self._loaded(decided)
        if self._crash.armed:
            self._reach(outputs)
        self._lines.put(output for output in outputs if isinstance(output, IndexUpdate))
        groups.extend(self._drafts.groups([output for output in outputs if not isinstance(output, IndexUpdate)]))
        self._drafts.trace_joined(self._partition.joined())
        ends = any(_ends_job(output) for output in outputs)
        if ends and self._partition.watch.moving <= _FEW:
            self._wake_up()  # a client waits for this; with more jobs it is read together with others soon enough
        await self._append_with_lines(groups)
        if ends or Topic.JOBS_COMMANDS in batch:
            self._catch_up()  # a birth, an end go on when they are folded like any other event: that is awaited
        await self._take_up_backlog(self._partition.make_room())
        self._watch()

    async def tick(self) -> None:
        """Go on with what waited for large results; say which jobs are stuck, and ask again for what they wait for."""
        await self._append([*self._looked_up(), *self._drafts.groups(self._lines.take())])
        if self._unloaded:
            await self._append(self._drafts.groups(await self._loaded(self._still_unloaded())))
            if self._unloaded:
                self._call_at(self._clock.monotonic() + UNLOADED_AGAIN_S)
        for stuck in self._partition.stuck(self._clock.monotonic()):
            _log.warning("job stuck", job_id=stuck.job_id, waits_for=stuck.waits_for, quiet_s=round(stuck.quiet_s, 1))
            await self._append(self._drafts.groups(await self._loaded(stuck.outputs), again=True))
        self._watch()

    async def close(self) -> None:
        """The jobs are somebody else's now."""
        self._partition.watch.clear()
        await self._look_ups.close()

    def live(self) -> Iterable[tuple[str, int]]:
        """The live jobs, and those whose lines wait."""
        yield from self._partition.live()
        yield from self._lines.live()
        yield from self._records.rules.needed()

    def checkpointed(self, job_id: str, state_hash: str, as_of: int) -> Group:
        """In the log, so that anyone can compare what was cut out of it."""
        said = StateCheckpointed(job_id=job_id, state_hash=state_hash, as_of=as_of)
        return self._drafts.groups([Append((NewEvent(said, (str(as_of),)),))])[0]

    def rest(self) -> Resting:
        """Jobs rest that nobody has asked for in a while."""
        return self._partition.rest()

    def rest_on_the_way(self) -> None:
        """So they do while history is read: those at rest are gone through one by one when it is."""
        self._partition.jobs.rest_on_the_way()

    def low_water(self, topic: str) -> int | None:
        """The oldest submission that waits, for room or for the job that it continues, or cancel that waits."""
        if topic != Topic.JOBS_COMMANDS:
            return None
        waiting = (self._partition.low_water(), *self._look_ups.offsets)
        return min((at for at in waiting if at is not None), default=None)

    def _watch(self) -> None:
        due_s = self._partition.watch.next_due()
        if due_s is not None:
            self._call_at(due_s)

    def _fold(self, record: Record) -> None:
        self._evolve(record)
        self._partition.lies((record.key or b"").decode(errors="replace"), record.offset)

    def _evolve(self, record: Record) -> None:
        try:
            found = decode_event(record, UNREAD)
        except Undecodable as error:
            if self._live:
                self._quarantine(record, str(error))
            return
        if isinstance(found, Envelope):
            if (standing := self._records.judge(record, found.body)) is not Standing.COUNTS:
                self._set_aside(found, standing)
                return
            if self._crash.armed and self._live and isinstance(found.body, WaitCompleted):
                self._crash.reach("after_wait")
            self._partition.evolve(found)
        elif isinstance(found, NeedsUpgrade):
            self._partition.needs_upgrade(found.job_id, record.offset)
            if self._live:
                source = (record.header("ce_source") or b"").decode(errors="replace")[:200]
                _log.warning(
                    "a record of a newer version", job_id=found.job_id, offset=record.offset, what=found.what, of=source
                )
        elif record.key in _BARRIERS:
            self._pass(record)

    def _pass(self, record: Record) -> None:
        """What bars creations behind it."""
        barrier = self._messages.barrier(record)
        if isinstance(barrier, RulesBarrier):
            self._records.rules.passed(barrier, record.offset)
            _log.info("rules", partition=record.partition, offset=record.offset, version=barrier.number)
        elif isinstance(barrier, JobPlaced):
            self._records.rules.placed(barrier)
            self._partition.placed(barrier, record.offset)

    def _set_aside(self, found: Envelope[Event], standing: Standing) -> None:
        """What its writer has not signed changes nothing; a job under a root that is not known here waits."""
        job_id, offset, name = found.body.job_id, found.record.offset, found.body.event_type
        if standing is Standing.UNKNOWN_ROOT:
            self._partition.needs_upgrade(job_id, offset)
        elif isinstance(found.body, JobCreated):
            self._partition.born_in_vain(job_id)
        if self._live:
            _log.warning("a record does not count", job_id=job_id, offset=offset, type=name, standing=standing.value)

    def _command(self, record: Record, *, waited: bool = False) -> Sequence[Group]:
        try:
            found = decode_message(record)
        except Undecodable as error:
            self._quarantine(record, str(error))
            return ()
        if isinstance(found, UnknownRecord):
            return ()
        if isinstance(found, NeedsUpgrade):
            self._quarantine(record, "a command of a newer version: upgrade, then redrive it")
            return ()
        if not isinstance(found.body, JobCommand):
            self._quarantine(record, "not a command")
            return ()
        if isinstance(found.body, PlacementOver):
            if self._messages.counts(record, found.body.type_name):
                self._partition.placements.over(found.body.job_id)
            return ()
        place = self._partition.elsewhere(found.body.job_id)
        if place is not None and not waited and self._partition.is_to_wait(found.body.job_id, record.offset):
            return ()
        if place is not None:  # whose it is judges it
            self._passed_on.append((Draft(record.topic, record.key or b"", record.value, record.headers, place),))
            return ()
        if not isinstance(found.body, _TAKEN_UP) or not self._messages.counts(record, found.body.type_name):
            return ()
        if isinstance(found.body, Submit):
            if not waited and self._partition.must_wait(found.body):
                self._partition.backlog.put(found.body.tenant, record.offset)
                self._partition.answers.say(found.body, "waits")
                return ()
            return self._submit(found.body, found.id, record)
        if isinstance(found.body, ReceiptVoid):
            self._partition.answers.say(found.body, "void")
            return ()
        if isinstance(found.body, Cancel):
            cancelled = self._partition.cancel(found.body, found.id, record.offset)
            return self._drafts.groups([cancelled]) if cancelled is not None else ()
        paused = self._partition.pause(found.body, found.id, record.offset)
        return self._drafts.groups([paused]) if paused is not None else ()

    def _submit(self, command: Submit, command_id: str, record: Record) -> Sequence[Group]:
        decided = self._partition.submit(command, command_id, record.offset)
        if isinstance(decided, Look):
            self._look_ups.begin(LookUp(command, command_id, record))
        elif isinstance(decided, SubmissionConflict):
            _log.warning("submitted again with another request", job_id=command.job_id)
        return self._write_created(decided, command, record)

    def _write_created(self, decided: object, command: Submit, record: Record) -> Sequence[Group]:
        if isinstance(decided, Append):
            self._creations[command.job_id] = (record, command)
        if isinstance(decided, (Append, Place)):
            return self._drafts.groups([decided])
        if isinstance(decided, RefusedSubmission):
            self._quarantine(record, decided.reason)
        return self._drafts.groups([*child_jobs.refusal_of(command, decided), *self._over(command, decided)])

    def _over(self, command: Submit, decided: object) -> Iterator[Tell]:
        """Where a job was placed here that none comes of, the partition that has placed it hears so."""
        if isinstance(decided, RefusedSubmission) and not self._partition.placements.decides(command.job_id):
            said = PlacementOver(job_id=command.job_id, by=command.by, tenant=command.tenant)
            yield Tell(said, command.job_id)

    def _looked_up(self) -> list[Group]:
        """The births of those whose continued job has been read."""
        groups: list[Group] = []
        for one, ended in self._look_ups.take():
            born = self._partition.looked_up(one.command, one.command_id, one.record.offset, ended)
            groups += self._write_created(born, one.command, one.record)
        if groups:
            self._catch_up()
        return groups

    async def _take_up_backlog(self, offsets: Sequence[int]) -> None:
        """Read submissions again that had no room when they came."""
        if not offsets:
            return
        wanted = set(offsets)
        async for records in self._again(offsets[0], offsets[-1] + 1):
            taken = [record for record in records if record.offset in wanted]
            await self._append([group for record in taken for group in self._command(record, waited=True)])
        self._partition.room_made()

    async def _loaded(self, outputs: Sequence[Output]) -> list[Written]:
        """The outputs, with what follows of the large results that some of them wait for."""
        found: list[Written] = []
        for output in outputs:
            if not isinstance(output, LoadArguments):
                found.append(output)
                continue
            refs = {ref.sha256: ref.size for ref in output.refs}
            results = await self._traffic.values(refs, self._wake)
            if results.keys() < refs.keys():
                self._unloaded[output.job_id, output.node_id] = output
                continue
            followed = self._partition.resolved(output.job_id, output.node_id, results)
            found.extend(one for one in followed if not isinstance(one, LoadArguments))
        return found

    def _wake(self) -> None:
        """A large result has come."""
        self._call_at(self._clock.monotonic())

    def _still_unloaded(self) -> list[LoadArguments]:
        waiting, self._unloaded = self._unloaded, {}
        return [load for load in waiting.values() if load.job_id in self._partition.jobs]

    def _reach(self, outputs: Sequence[Written]) -> None:
        """The places to die at before a round is written."""
        for told in (output for output in outputs if isinstance(output, Tell)):
            self._crash.reach("before_told", told.command.type_name)
        for fact in (fact for output in outputs if isinstance(output, Append) for fact in output.facts):
            if isinstance(fact.event, PlanGenerated):
                self._crash.reach("before_plan", fact.event.planner)
            elif isinstance(fact.event, StepCompensated):
                self._crash.reach("before_compensated")

    async def _append_with_lines(self, groups: Sequence[Group]) -> None:
        """The lines that wait go in the same request; where there is none, they wait for the next, for a moment."""
        lines = self._lines.take() if groups else ()
        await self._append([*groups, *self._drafts.groups(lines)])
        if self._lines:
            self._call_at(self._clock.monotonic() + WITHIN_S)

    async def _append(self, groups: Sequence[Group]) -> None:
        """What is refused stops its own job only; a submission whose birth can't be written is quarantined.

        Behind the births: what their repeats are answered counts on these.
        """
        self._records.appended(self._taken())
        passed_on, self._passed_on = self._passed_on, []
        written = [*self._signed(groups), *passed_on]
        refusals = await write_all(self._appender, written) if written else ()
        creations, self._creations = self._creations, {}
        for refusal in refusals:
            job_id = refusal.group[0].key.decode()
            taken = creations.get(job_id) if refusal.group[0].topic == Topic.JOBS_EVENTS else None
            if taken is None:
                self._withheld.keep(refusal)
            else:
                record, command = taken
                self._partition.answers.say(command, "refused")
                self._partition.not_created(job_id)
                self._quarantine(record, f"plan: too large to be recorded ({refusal.why})")
                told = [*child_jobs.refusal(command, child_jobs.UNRECORDABLE), *self._over(command, _UNRECORDABLE)]
                await self._append(self._drafts.groups(told))
        await self._answer()

    def _signed(self, groups: Sequence[Group]) -> Sequence[Group]:
        """What is said to other jobs, and of where they lie, is signed as commands are, a record of its own each."""
        signed = self._records.signed(groups)
        return [tuple(self._keys.together(group)) if _is_message(group[0]) else group for group in signed]

    async def _answer(self) -> None:
        """The numbers that no birth answers."""
        answers = self._drafts.answers(self._partition.answers.take())
        if answers:
            await self._withheld.append([(draft,) for draft in self._keys.together(answers)])


def _is_message(draft: Draft) -> bool:
    return draft.topic == Topic.JOBS_COMMANDS or draft.key in _BARRIERS


def _ends_job(output: Written) -> bool:
    return isinstance(output, Append) and any(isinstance(fact.event, _ENDS) for fact in output.facts)
