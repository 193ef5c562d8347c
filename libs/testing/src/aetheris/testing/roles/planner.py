"""The planner's edge: what is submitted becomes jobs, what is ready is asked for."""

from collections.abc import Sequence

from aetheris.planner.core.child_jobs import refusal_of
from aetheris.planner.core.decisions import (
    Append,
    Behind,
    IndexUpdate,
    LoadArguments,
    NewEvent,
    NodesRequest,
    Output,
    Place,
    Tell,
    tell_id,
)
from aetheris.planner.core.partition import Partition
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import Cancel, JobIndexEntry, Pause, Resume, Submit
from aetheris.protocol.messages.events import Event
from aetheris.testing.topics import Entry, TopicReader, Topics


class InMemoryPlanner:
    """The planner of the only partition."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._reader = TopicReader(topics, (Topic.JOBS_EVENTS, Topic.JOBS_COMMANDS))
        self._index: dict[str, JobIndexEntry] = {}
        self._core = Partition(self._index.get)

    def turn(self) -> bool:
        """Fold and decide; False where there was nothing new."""
        if not self._reader.has_more():
            return False
        for entry in self._reader.take(Topic.JOBS_EVENTS):
            self._core.evolve(entry)
        outputs = [one for entry in self._reader.take(Topic.JOBS_COMMANDS) for one in self._command(entry)]
        for output in (*outputs, *self._core.decide(self._topics.now_s)):
            self._write(output)
        self._core.joined()
        for failure in self._core.unjudged.take():
            raise failure.error
        return True

    def _command(self, entry: Entry) -> Sequence[Append | Tell]:
        match entry.body:
            case Submit():
                decided = self._core.submit(entry.body, entry.id, entry.record.offset)
                if not isinstance(decided, Append):
                    return tuple(refusal_of(entry.body, decided))
            case Cancel():
                decided = self._core.cancel(entry.body, entry.id, entry.record.offset)
            case Pause() | Resume():
                decided = self._core.pause(entry.body, entry.id, entry.record.offset)
            case _:
                return ()
        return (decided,) if isinstance(decided, Append) else ()

    def _write(self, output: Output) -> None:
        match output:
            case Append():
                self._topics.append(Topic.JOBS_EVENTS, *map(_identified, output.facts))
            case NodesRequest():
                self._topics.append(Topic.TOOLS_REQUESTS, (self._topics.fresh("request"), output.body))
            case IndexUpdate():
                self._index[output.entry.job_id] = output.entry
            case LoadArguments():
                for following in self._core.resolved(output.job_id, output.node_id, self._topics.blobs):
                    self._write(following)
            case Tell():
                self._topics.append(Topic.JOBS_COMMANDS, (tell_id(output), output.command))
            case Behind() | Place():
                pass  # of sealed jobs, and of partitions that were added: here is one, and nothing is sealed


def _identified(one: NewEvent) -> tuple[str, Event]:
    return event_id(one.event.job_id, one.event.event_type, *one.cause), one.event
