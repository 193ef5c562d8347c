"""The planner's edge, simulated: rounds as in aetheris.planner.handlers, appended before the next one."""

from collections.abc import Iterable, Sequence

from aetheris.planner.core.decisions import Append, IndexUpdate, NodesRequest, Output
from aetheris.planner.core.partition import Partition
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Standing
from aetheris.protocol.messages.commands import Cancel, JobIndexEntry, Pause, Resume, Submit
from aetheris.protocol.messages.events import CancelRequested, JobCreated, JobPaused, JobResumed, JobWaiting
from aetheris.testkit.simulation.actors.policy_lines import PolicyLines
from aetheris.testkit.simulation.checkpoints import SimCheckpoints
from aetheris.testkit.simulation.log import Entry, WholeBatch
from aetheris.testkit.simulation.surroundings import ScheduledAction, SimulatedReader, SimulationSurroundings
from aetheris.testkit.simulation.versions import ReadableRecords, is_newer, writes_newer

ROLE = "planner"
_SAID = (JobWaiting, CancelRequested, JobPaused, JobResumed)
"""What a group begins with that only says that it waits for an upgrade, or what a person wants."""


class SimulatedPlanner:
    """One planner process on the partition; `owner` tells it from a zombie."""

    def __init__(self, around: SimulationSurroundings, name: str, start: int) -> None:
        self.name = name
        self.owner = True
        self.paused = False
        self._policies = PolicyLines(around)
        self._policies.read()
        self._records = around.records(Party.PLANNER, orders=self._policies.rules)
        self.core = Partition(self._indexed, rules=lambda: self._records.rules.in_force)
        self.reading = ReadableRecords(around, name, is_newer(around))
        self.writer = around.log.writer(name, writes_newer(around, newer=self.reading.newer))
        self.around = around
        self._index = dict(around.index)
        commands = around.group(ROLE).start(Topic.JOBS_COMMANDS)
        self._checkpoints = SimCheckpoints(around, Topic.PLANNER_CHECKPOINTS)
        start, below = self._checkpoints.load(start)
        for entry in below:
            self._evolve(entry)
        self.reader = SimulatedReader(around, {Topic.JOBS_EVENTS: start, Topic.JOBS_COMMANDS: commands})
        for entry in self.reader.read_all(Topic.JOBS_EVENTS):
            self._evolve(entry)
            if around.progress.rests:
                self.core.jobs.rest_on_the_way(0, above=0)
        self._takes_a_round = (ScheduledAction(f"{name} takes a round", self._round),)
        self._write(self.core.recover())

    def actions(self) -> Iterable[ScheduledAction]:
        """A round, unless the last one is still being appended."""
        may = not self.paused and self.writer.unacknowledged == 0 and self.reader.has_more
        return self._takes_a_round if may else ()

    def _round(self) -> None:
        batch = self.reader.read()
        if self.around.rules.ordered > 1 and self._policies.has_more and self.around.tape.chance(0.5):
            self._policies.read()
        if not self.around.tape.chance(0.3):
            self._index = dict(self.around.index)
        for entry in batch[Topic.JOBS_EVENTS]:
            self._evolve(entry)
        outputs: list[Output] = []
        for entry in batch[Topic.JOBS_COMMANDS]:
            outputs.extend(self._command(entry))
        for offset in self.core.make_room():
            outputs.extend(self._command(self.around.log.topics[Topic.JOBS_COMMANDS][offset]))
        self._write([*outputs, *self.core.decide()])
        self.core.joined()
        self._checkpoints.write(self._needed(), self.reader.positions[Topic.JOBS_EVENTS])
        if self.around.progress.rests:
            self.core.rest(0)

    def _evolve(self, entry: Entry) -> None:
        if not self.reading.reads(entry):
            self._records.pass_over(entry)
            self.core.needs_upgrade(entry.body.job_id, entry.record.offset)
            return
        standing = self._records.judge(entry)
        if standing is Standing.COUNTS:
            self.core.evolve(entry)
        elif standing is Standing.UNKNOWN_ROOT:
            self.core.needs_upgrade(entry.body.job_id, entry.record.offset)
        elif isinstance(entry.body, JobCreated):
            self.core.born_in_vain(entry.body.job_id)

    def _command(self, entry: Entry) -> Sequence[Append]:
        body = entry.body
        decided = None
        if isinstance(body, Submit):
            decided = self.core.submit(body, entry.id, entry.record.offset)
        elif isinstance(body, Cancel):
            decided = self.core.cancel(body, entry.id, entry.record.offset)
        elif isinstance(body, Pause | Resume):
            decided = self.core.pause(body, entry.id, entry.record.offset)
        return [decided] if isinstance(decided, Append) else []

    def _write(self, outputs: Sequence[Output]) -> None:
        batches = self._records.signed([self._batch(output) for output in outputs])
        if batches:
            self.writer.append(batches, self._commit)
        else:
            self._commit()

    def _batch(self, output: Output) -> WholeBatch:
        match output:
            case Append():
                if not isinstance(output.facts[0].event, _SAID):
                    self.reading.decides(output.facts[0].event.job_id, output.facts[0].event.event_type)
                return WholeBatch(
                    Topic.JOBS_EVENTS,
                    tuple(
                        (event_id(one.event.job_id, one.event.event_type, *one.cause), one.event)
                        for one in output.facts
                    ),
                )
            case NodesRequest():
                self.reading.decides(output.body.job_id, "a request")
                return WholeBatch(Topic.TOOLS_REQUESTS, ((self.around.fresh("request-"), output.body),))
            case IndexUpdate():
                return WholeBatch(Topic.JOBS_INDEX, ((self.around.fresh("index-"), output.entry),))
            case _:
                raise TypeError("results of the simulation are small: nothing is loaded")

    def _commit(self) -> None:
        if not self.owner:
            return
        self._checkpoints.take()
        positions = self.reader.positions
        mark = self._checkpoints.mark(self._needed(), positions[Topic.JOBS_EVENTS])
        still_needed = {Topic.JOBS_EVENTS: mark, Topic.JOBS_COMMANDS: self.core.low_water()}
        self.around.group(ROLE).commit(positions, still_needed)

    def _needed(self) -> list[tuple[str, int]]:
        return [*self.core.live(), *self._records.rules.needed()]

    def _indexed(self, job_id: str) -> JobIndexEntry | None:
        return self._index.get(job_id)
