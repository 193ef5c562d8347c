"""Which nodes of which jobs may run next: a pure fold of jobs.events (docs/architecture.md, "planner")."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from aetheris.planner.core import ends, index_lines, pauses, ready_nodes, upgrades
from aetheris.planner.core.backlog import Backlog, JobsInFlight
from aetheris.planner.core.behind import Behinds
from aetheris.planner.core.creations import creation_group
from aetheris.planner.core.decisions import (
    Append,
    Behind,
    Joined,
    Look,
    Output,
    Place,
    RefusedSubmission,
    SubmissionConflict,
    fact,
)
from aetheris.planner.core.index_lines import Indexed
from aetheris.planner.core.placements import JobPlacements
from aetheris.planner.core.progress import JobProgress, may_stop
from aetheris.planner.core.submission_answers import SubmissionAnswers
from aetheris.planner.core.taken_up import BeingBorn, HeldCancel
from aetheris.planner.core.watch import StuckJob, StuckJobWatch, explained_s, may_rest, waits_for, waits_for_tries
from aetheris.protocol.base.job_table import QUIET, JobTable, Resting
from aetheris.protocol.base.sealed import UnreadCreations
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import create_job
from aetheris.protocol.fold.unjudged import Unjudged
from aetheris.protocol.messages import event_base
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, JobIndexEntry, JobPlaced, Pause, Resume, Submit
from aetheris.protocol.messages.envelope import Envelope
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import InvalidPlan
from aetheris.protocol.planning.continuation import EndedJob, unfounded
from aetheris.protocol.planning.invocation import Blobs


def _job_table() -> JobTable[JobProgress, None]:
    return JobTable(lambda progress: progress.job.creation_offset, may_rest, lambda _: None)


@dataclass(slots=True)
class Partition:
    """The live jobs of one partition; `indexed` knows the jobs that are forgotten here.

    `rules`: the version under which jobs are created here now. `now_s` is the time of a monotonic clock: it says which
    jobs are stuck, and decides nothing else.
    """

    indexed: Indexed
    runs: bool = True
    behind: Behinds = field(default_factory=Behinds)
    watch: StuckJobWatch = field(default_factory=StuckJobWatch)
    backlog: Backlog = field(default_factory=Backlog)
    in_flight: JobsInFlight = field(default_factory=JobsInFlight)
    rules: Callable[[], int] = lambda: event_base.FIRST_RULES
    jobs: JobTable[JobProgress, None] = field(default_factory=_job_table)
    """In order of birth."""
    _created: dict[str, BeingBorn] = field(default_factory=dict)
    """Submissions whose births are not folded yet."""
    _again: dict[str, int] = field(default_factory=dict)
    """Jobs whose births came to lie where they do not count, or wait for a later version; each with its submission's
    offset."""
    _changed: dict[str, None] = field(default_factory=dict)
    _unread: UnreadCreations = field(default_factory=UnreadCreations)
    _repeated: dict[str, int] = field(default_factory=dict)
    """Jobs whose creation came again, while they are not live → the offset of their creation."""
    _held: dict[str, HeldCancel] = field(default_factory=dict)
    _words: dict[str, list[pauses.PendingPause]] = field(default_factory=dict)
    """On pauses that are not folded yet."""
    _forgotten: dict[str, JobIndexEntry] = field(default_factory=dict)
    _joined: list[Joined] = field(default_factory=list)
    unjudged: Unjudged = field(default_factory=Unjudged)
    answers: SubmissionAnswers = field(default_factory=SubmissionAnswers)
    placements: JobPlacements = field(default_factory=JobPlacements)

    def evolve(self, envelope: Envelope[Event]) -> None:
        """Fold one event of this partition."""
        event = envelope.body
        if isinstance(event, ev.JobCreated):
            self._created.pop(event.job_id, None)
            self.answers.born(event.job_id, event.receipt)
        progress = self.jobs.get(event.job_id)
        if progress is None:
            if isinstance(event, ev.JobCreated):
                self._take_in(event, envelope)
            elif isinstance(event, ev.JobSealed | ev.BirthRepeated):
                self._unread.pop(event.job_id)
                self._repeated.pop(event.job_id, None)
            return
        if progress.job.sealed:  # forgotten by the next `decide`, and whoever lacks its past took the repeat for it
            self._note_repeat(progress, event)
        try:
            self._follow(progress, envelope)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            self.unjudged.note(progress.job, error)
            self._changed[event.job_id] = None

    def _note_repeat(self, progress: JobProgress, event: Event) -> None:
        """A creation that came again right behind its job's seal, until it is said to be a repeat."""
        if isinstance(event, ev.JobCreated):
            self._repeated[event.job_id] = progress.job.creation_offset
        elif isinstance(event, ev.BirthRepeated):
            self._repeated.pop(event.job_id, None)

    def _follow(self, progress: JobProgress, envelope: Envelope[Event]) -> None:
        event, job = envelope.body, progress.job
        paused, frozen = job.paused is not None, len(job.frozen)
        if not apply(job, event, envelope.record.offset):
            return
        if job.needs_upgrade and getattr(event, "node_id", None) is not None:
            return  # of a plan that may not be known here
        progress.note(event)
        if isinstance(event, ev.NodeFinished) and not may_stop(event):
            return  # what it tells of was followed when it was folded
        if isinstance(event, ev.RetryScheduled):
            progress.note_pause(event, _time(envelope))
        if (paused and job.paused is None) or len(job.frozen) < frozen:
            ready_nodes.ask_again(progress)
        self._changed[event.job_id] = None
        if isinstance(event, ev.ToolInvocationStarted) and event.node_id not in progress.sent.requests:
            self._joined.append(Joined(event.idempotency_key, event.job_id, event.node_id))

    def lies(self, job_id: str, offset: int) -> None:
        """Note where a record lies, of whatever kind, that has just been folded: whoever reads the job asks for it."""
        progress = self.jobs.get(job_id)
        if progress is not None and not progress.seal_lies:
            progress.stretches.add(offset)
            progress.seal_lies = progress.job.sealed
        elif progress is not None or self._is_behind(job_id, offset):
            self.behind.note(job_id, offset)

    def _is_behind(self, job_id: str, offset: int) -> bool:
        stretches = index_lines.stretches(job_id, self._forgotten, self.indexed)
        return bool(stretches) and offset >= stretches[-1][1] and self.elsewhere(job_id) is None

    def needs_upgrade(self, job_id: str, offset: int) -> None:
        """Pause a job: its log holds, at `offset`, a record that this version can't read."""
        progress = self.jobs.get(job_id)
        if progress is not None:
            progress.job.needs_upgrade = True
            self._changed[job_id] = None
        elif not index_lines.stretches(job_id, self._forgotten, self.indexed):  # a newer planner may have listed it
            self._unread.add(job_id, offset)

    def submit(
        self, command: Submit, command_id: str, offset: int
    ) -> Append | Look | Place | SubmissionConflict | RefusedSubmission | None:
        """The birth of a job, once, or where else it will be; None for a repeat; if it continues one, what to read."""
        stands = self._request_hash(command.job_id)
        if stands is not None and stands != command.request_hash:
            self.answers.say(command, "refused")
            return SubmissionConflict()
        if stands is not None:
            return self._submitted_again(command)
        if command.job_id in self._unread:
            return self.answers.say(command, "same_as")
        if command.repeats:
            return self.answers.say(command, "refused")
        placed = self.placements.of_new(command.job_id, offset)
        if placed is not None:
            self._created[command.job_id] = BeingBorn(command.request_hash, offset, is_written=True)
            return Place(placed)
        if command.continues is not None:
            self._being_born(command, offset, is_written=False)
            return Look(command.continues.job_id)
        return self._creation(command, command_id, offset)

    def _submitted_again(self, command: Submit) -> None:
        """Its job is known; a restart reads a submission again whose number the birth has answered."""
        progress = self.jobs.get(command.job_id)
        if progress is not None:
            self.answers.say_same(command, progress.job.created.receipt)
        elif self._is_being_born(command.job_id):
            self.answers.hold(command)
        else:
            self.answers.say(command, "same_as")

    def looked_up(
        self, command: Submit, command_id: str, offset: int, ended: EndedJob | None
    ) -> Append | RefusedSubmission | None:
        """The birth of a job that continues another, which is `ended` as its stream has it (None: there is none).

        None where it was created meanwhile, by whomever.
        """
        if command.job_id in self._unread:
            self.answers.say(command, "same_as")
            self.not_created(command.job_id)
            return None
        if self._created.get(command.job_id) != BeingBorn(command.request_hash, offset, is_written=False):
            return self._submitted_again(command)
        return self._creation(command, command_id, offset, lambda: unfounded(command, ended))

    def _creation(
        self, command: Submit, command_id: str, offset: int, refusal: Callable[[], str | None] = lambda: None
    ) -> Append | RefusedSubmission | None:
        if not self.can_create:
            self._created.pop(command.job_id, None)
            self.in_flight.drop(command.job_id)
            self._again.setdefault(command.job_id, offset)
            return None
        try:
            group = creation_group(command, command_id, refusal, self.rules())
        except InvalidPlan as error:
            self.answers.say(command, "refused")
            self.not_created(command.job_id)
            return RefusedSubmission(str(error))
        self._being_born(command, offset, is_written=True)
        return group

    @property
    def can_create(self) -> bool:
        """Whether this version knows the rules under which jobs are created here: else submissions wait in the log."""
        return self.rules() in event_base.KNOWN_RULES

    def _being_born(self, command: Submit, offset: int, *, is_written: bool) -> None:
        self._created[command.job_id] = BeingBorn(command.request_hash, offset, is_written)
        self.in_flight.put(command.job_id, command.tenant)

    def not_created(self, job_id: str) -> None:
        """A birth that could not be written."""
        self._created.pop(job_id, None)
        self.in_flight.drop(job_id)
        self._held.pop(job_id, None)
        self._words.pop(job_id, None)
        self.answers.not_born(job_id)

    def _is_being_born(self, job_id: str) -> bool:
        return job_id in self._created or job_id in self._again

    def elsewhere(self, job_id: str) -> int | None:
        """The other partition in which a job lies, or is placed; None of one that is known here, or nowhere."""
        is_here = job_id in self.jobs or job_id in self._forgotten
        return None if is_here else self.placements.elsewhere(job_id, self.indexed)

    def is_to_wait(self, job_id: str, offset: int) -> bool:
        """Whether a command of a job that lies elsewhere is read again behind its submission, which is yet to be."""
        waits = job_id in self._again
        self.placements.words += [offset] * waits
        return waits

    def placed(self, barrier: JobPlaced, offset: int) -> None:
        """Folded: a job is created elsewhere, unless it was here. What was asked of it is read again, and passed on."""
        job_id = barrier.of_job
        taken, cancel = self._created.pop(job_id, None), self._held.pop(job_id, None)
        if self._request_hash(job_id) is None:
            self.placements.take(barrier, offset)
        words = (*self._words.pop(job_id, ()), *(() if cancel is None else (cancel,)))
        self.placements.words += [word.offset for word in words]
        if taken is not None:
            self._again[job_id] = taken.offset

    def born_in_vain(self, job_id: str) -> None:
        """A birth was read that is void, as of a planner that others overtook: its submission is taken up again."""
        taken = self._created.get(job_id)
        if taken is not None and taken.is_written:
            del self._created[job_id]
            self._again[job_id] = taken.offset

    def cancel(self, command: Cancel, command_id: str, offset: int) -> Append | None:
        """The cancel of a live job, from its first cancel; held back until its plan is folded."""
        progress = self.jobs.get(command.job_id)
        waits = bool(self.backlog) and self._request_hash(command.job_id) is None
        if waits or self._is_being_born(command.job_id) or (progress is not None and progress.job.revision < 0):
            self._held.setdefault(command.job_id, HeldCancel(command, command_id, offset))
            return None
        return ends.cancelled(progress, command, command_id) if progress is not None else None

    def pause(self, command: Pause | Resume, command_id: str, offset: int) -> Append | None:
        """What a word on a job's pause becomes; held back until this has folded what its writer had read."""
        progress, action = self.jobs.get(command.job_id), pauses.PendingPause(command, command_id, offset)
        if self._is_being_born(command.job_id) or (progress is not None and pauses.is_ahead(progress.job, command)):
            self._words.setdefault(command.job_id, []).append(action)
            return None
        return pauses.pause_event(progress, action) if progress is not None else None

    def decide(self, now_s: float = 0.0) -> list[Output]:
        """What follows from the events folded since the last call, in the order of writing."""
        changed, self._changed = self._changed, {}
        found = (self.jobs.get(job_id) for job_id in changed)
        return self._decided((progress for progress in found if progress is not None), now_s)

    def _decided(self, jobs: Iterable[JobProgress], now_s: float) -> list[Output]:
        outputs: list[Output] = [
            fact(ev.BirthRepeated(job_id=job_id, birth=creation_offset), "repeated", str(creation_offset))
            for job_id, creation_offset in self._repeated.items()
        ]
        self._repeated.clear()
        for progress in jobs:
            outputs.extend(self._all(progress, self._decide(progress)))
            self._count(progress, moves=self.watch.follow(progress, now_s))
        outputs.extend(map(Behind, self.behind.news()))
        return outputs

    def resolved(self, job_id: str, node_id: str, blobs: Blobs | None) -> list[Output]:
        """What follows of a Load, within the same round; no blobs where the results could not be loaded."""
        progress = self.jobs[job_id]
        return [] if progress.is_stopping else self._all(progress, self._resolved(progress, node_id, blobs))

    def _resolved(self, progress: JobProgress, node_id: str, blobs: Blobs | None) -> Iterator[Output]:
        yield from ready_nodes.request_or_end(progress, node_id, blobs, runs=self.runs)
        yield from ends.stop(progress)

    def stuck(self, now_s: float) -> list[StuckJob]:
        """The jobs that nothing has happened to for too long, each once a period, with their requests repeated."""
        found: list[StuckJob] = []
        for job_id, quiet_s in self.watch.due(now_s):
            progress = self.jobs[job_id]
            if quiet_s >= self.watch.after_s + explained_s(progress):
                self.watch.stuck.add(job_id)
                found.append(StuckJob(job_id, waits_for(progress), quiet_s, tuple(self._ask_again(progress))))
        return found

    def recover(self, now_s: float = 0.0) -> list[Output]:
        """After a restore: everything that is open, as after a change; what was written before comes again."""
        return [output for outputs in self.recovering(now_s) for output in outputs]

    def recovering(self, now_s: float) -> Iterator[list[Output]]:
        """The same, one job after the other."""
        self._joined.clear()
        self._changed.clear()
        self._again.update(self.placements.submissions())
        yield self._decided((), now_s)
        for progress in self.jobs.each():
            progress.sent.index = index_lines.written(progress, self.indexed)
            yield self._decided((progress,), now_s)

    def joined(self) -> list[Joined]:
        """The nodes that started within a run since the last call."""
        found, self._joined = self._joined, []
        return found

    def wants_trace(self, job_id: str) -> bool | None:
        """What a live job's submission says of tracing."""
        progress = self.jobs.get(job_id)
        return None if progress is None else progress.job.trace

    def live(self) -> Iterator[tuple[str, int]]:
        """The live jobs, each with its birth."""
        yield from self.jobs.births()
        yield from self._unread.items()
        yield from self.placements.needed(self.indexed)

    def rest(self, quiet: int = QUIET) -> Resting:
        """Let jobs rest that nobody has asked for in a while; between rounds, once history was read."""
        self.jobs.rest(quiet)
        return self.jobs.resting

    def low_water(self) -> int | None:
        """The offset of the oldest command that is held back, or of which nothing is folded yet; None if none is."""
        words = (action.offset for held in self._words.values() for action in held)
        waiting = (self.backlog.oldest, *(held.offset for held in self._held.values()), *words)
        waiting = (*waiting, *(one.offset for one in self._created.values()), *self._again.values())
        return min((at for at in (*waiting, *self.placements.words) if at is not None), default=None)

    def must_wait(self, command: Submit) -> bool:
        """Whether a submission that comes now is left in the log: jobs that rest don't count, however many.

        A repeat of one that is known takes up no room, nor does one that is created elsewhere.
        """
        is_repeat = command.repeats and self._request_hash(command.job_id) is not None
        if is_repeat or self.placements.of_new(command.job_id, 0) is not None:
            return False
        return self.backlog.must_wait(command.tenant, self.in_flight)

    def make_room(self) -> list[int]:
        """The offsets of the submissions that are to be read again and taken up now."""
        if not self.can_create:
            return []
        again, self._again = self._again, {}
        words, self.placements.words = self.placements.words, []
        return sorted((*self.backlog.take(self.in_flight), *again.values(), *words))

    def room_made(self) -> None:
        """They were taken up: when nobody waits any more, a cancel of a job that isn't known is of none."""
        if not self.backlog:
            self._held = {id_: held for id_, held in self._held.items() if self._request_hash(id_) is not None}

    def _take_in(self, event: ev.JobCreated, envelope: Envelope[Event]) -> None:
        """A job lives from its first job_created; a later one, of a writer that woke up late, is void."""
        known = self._forgotten.get(event.job_id) or self.indexed(event.job_id)
        if known is not None and (known.birth < envelope.record.offset or self.elsewhere(event.job_id) is not None):
            self._repeated[event.job_id] = known.birth
            return
        self.jobs[event.job_id] = JobProgress(create_job(event, envelope.record.offset), _time(envelope))
        unreadable = self._unread.pop(event.job_id)
        if unreadable is not None:
            self.needs_upgrade(event.job_id, unreadable)

    def _ask_again(self, progress: JobProgress) -> Iterator[Output]:
        """The requests that nobody has answered: the ledger drops what it has already."""
        ready_nodes.ask_again(progress)
        return self._decide(progress)

    def _request_hash(self, job_id: str) -> str | None:
        """The hash of the request that created a known job."""
        progress = self.jobs.get(job_id)
        if progress is not None:
            return progress.job.created.request_hash
        entry = self._forgotten.get(job_id) or self.indexed(job_id) or self._created.get(job_id)
        return entry.request_hash if entry is not None else None

    def _all(self, progress: JobProgress, outputs: Iterator[Output]) -> list[Output]:
        """All that follows; where that fails, that the job waits for a version that can judge it."""
        try:
            return list(outputs)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            self.unjudged.note(progress.job, error)
            return list(upgrades.waits(progress))

    def _decide(self, progress: JobProgress) -> Iterator[Output]:
        job = progress.job
        is_planned = job.revision >= 0
        if self._held and is_planned:
            yield from self._cancel_held(progress)
        if self._words and is_planned:
            yield from self._say_held(progress)
        if is_planned and not job.needs_upgrade:
            yield from progress.children.words(job)
        if job.needs_upgrade:
            yield from upgrades.waits(progress)
        elif is_planned and job.terminal is None and not progress.sent.end:
            yield from self._go_on(progress)
        line = index_lines.update(progress)
        if line is not None:
            yield line
        if job.sealed:
            self._forget(progress)

    def _cancel_held(self, progress: JobProgress) -> Iterator[Output]:
        held = self._held.pop(progress.job.job_id, None)
        cancelled = ends.cancelled(progress, held.command, held.command_id) if held is not None else None
        if cancelled is not None:
            yield cancelled

    def _say_held(self, progress: JobProgress) -> Iterator[Output]:
        """The words on pauses that are folded by now."""
        for action in self._words.pop(progress.job.job_id, ()):
            found = self.pause(action.command, action.command_id, action.offset)
            if found is not None:
                yield found

    def _go_on(self, progress: JobProgress) -> Iterator[Output]:
        job = progress.job
        if progress.waits_for_upgrade:
            yield from upgrades.goes_on(progress)
        if progress.settled:
            yield from ready_nodes.reports(progress)
        if job.paused is None:
            yield from self._requests(progress)
        if progress.failure is not None or job.compensations:
            yield from ends.stop(progress)
        if job.stopping is not None or progress.is_complete:
            yield from ends.ended(progress)

    def _requests(self, progress: JobProgress) -> Iterator[Output]:
        """What a pause holds back: what of the plan may run next."""
        if progress.ready and ready_nodes.may_start(progress):
            yield from ready_nodes.requests(progress, runs=self.runs)

    def _count(self, progress: JobProgress, *, moves: bool) -> None:
        """It takes up room of the jobs in flight if it goes on by itself, and not only after a long pause."""
        if moves and not waits_for_tries(progress):
            self.in_flight.put(progress.job.job_id, progress.job.created.tenant)
        else:
            self.in_flight.drop(progress.job.job_id)

    def _forget(self, progress: JobProgress) -> None:
        """A sealed job costs nothing; its line stays here until the table shows it."""
        job_id = progress.job.job_id
        del self.jobs[job_id]
        self._words.pop(job_id, None)
        self._forgotten[job_id] = index_lines.entry(progress)
        index_lines.drop_shown(self._forgotten, self.indexed)


def _time(envelope: Envelope[Event]) -> str:
    return (envelope.record.header("ce_time") or b"").decode(errors="replace")
