"""The simulated log: a partition of each topic, batches that land whole, late, twice, or not at all."""

from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import Message
from aetheris.protocol.messages.envelope import Envelope, decode_event, decode_message, draft
from aetheris.protocol.messages.events import Event
from aetheris.testkit.simulation.tape import Tape

Body = Event | Message
Entry = Envelope[Any]
Landed = Callable[[Topic, Sequence[Entry]], None]

REPEATED = 0.04
"""How likely an acknowledgement is lost, so that the writer appends once more."""

TIME = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class WholeBatch:
    """Records of one topic that are written whole or not at all, each with its ce_id."""

    topic: Topic
    bodies: tuple[tuple[str, Body], ...]
    drafts: tuple[Draft, ...] = ()
    """Their bytes, where the run has a root: of each body one."""
    forged: bool = False
    """By who is no service: whatever its records say of themselves."""
    newer: frozenset[int] = frozenset()
    """Which of its records only a newer version reads."""


@dataclass(slots=True, eq=False)
class _Pending:
    batch: WholeBatch
    acknowledge: Callable[[], None]


@dataclass(slots=True, eq=False)
class SimulatedWriter:
    """A producer: keeps the order of what it writes to a topic, and waits for acknowledgements."""

    name: str
    queues: dict[Topic, deque[_Pending]] = field(default_factory=dict[Topic, "deque[_Pending]"])
    under_way: int = 0
    """Batches in its queues."""
    unacknowledged: int = 0
    writes_newer: Callable[[], bool] | None = None
    """Asked of each record of jobs.events: whether only a newer version reads it."""

    def append(self, batches: Sequence[WholeBatch], then: Callable[[], None] | None = None) -> None:
        """Send; `then` is called when all of it is acknowledged."""
        left = len(batches)

        def acknowledge() -> None:
            nonlocal left
            left -= 1
            self.unacknowledged -= 1
            if left == 0 and then is not None:
                then()

        self.unacknowledged += left
        self.under_way += left
        for batch in batches:
            self.queues.setdefault(batch.topic, deque()).append(_Pending(self._marked(batch), acknowledge))

    def _marked(self, batch: WholeBatch) -> WholeBatch:
        if self.writes_newer is None or batch.topic is not Topic.JOBS_EVENTS:
            return batch
        found = [at for at, (_, body) in enumerate(batch.bodies) if isinstance(body, Event) and self.writes_newer()]
        return replace(batch, newer=frozenset(found))


def _nobody() -> None:
    """Whoever waited for this acknowledgement is gone."""


TABLES = (Topic.WORKERS, Topic.JOBS_INDEX, Topic.LEDGER_CONTENTS, Topic.TOOLS_REGISTRY, Topic.FREEZES, Topic.POLICIES)
"""Topics that every process reads whole, whatever its partitions."""


SIGNED = (Topic.JOBS_EVENTS, Topic.POLICIES)
"""Topics whose records have their bytes where the run has a root."""


class PositionedReader(Protocol):
    """Who has a position in a topic."""

    has_more: bool


class SimLog:
    """A partition of every topic as a list, and the tables; whoever reads keeps a position."""

    def __init__(
        self, tape: Tape, landed: Landed, *, codec: bool = False, beside: "SimLog | None" = None, number: int = 0
    ) -> None:
        """`number`: of the partition; `beside`: another, which has the same tables."""
        self.number = number
        self.topics: dict[Topic, list[Entry]] = {topic: [] for topic in Topic}
        self.readers: dict[Topic, list[PositionedReader]] = {topic: [] for topic in Topic}
        if beside is not None:
            self.topics |= {topic: beside.topics[topic] for topic in TABLES}
            self.readers |= {topic: beside.readers[topic] for topic in TABLES}
        self.wholes: list[int] = [0]
        """Where batches of jobs.events end: what a restart may find."""
        self.forged: set[int] = set()
        """Where in jobs.events lies what no service has written."""
        self.newer: set[int] = set()
        """Where in jobs.events lies what only a newer version reads."""
        self.repeats = 0
        self.calm = False
        self._tape = tape
        self._landed = landed
        self._codec = codec
        self._writers: list[SimulatedWriter] = []
        self._written: dict[int, Record] = {}

    def writer(self, name: str, writes_newer: float = 0.0) -> SimulatedWriter:
        """A new producer; so likely each of its records of jobs.events is one that only a newer version reads."""
        made = SimulatedWriter(name)
        if writes_newer:
            made.writes_newer = lambda: not self.calm and self._tape.chance(writes_newer)
        self._writers.append(made)
        return made

    def under_way(self) -> list[tuple[SimulatedWriter, Topic]]:
        """What may land next; a batch never overtakes another of the same writer and topic."""
        busy = [writer for writer in self._writers if writer.under_way]
        return [(writer, topic) for writer in busy for topic, queue in writer.queues.items() if queue]

    def land(self, writer: SimulatedWriter, topic: Topic) -> None:
        """The broker takes the writer's next batch; its acknowledgement may be lost, then it comes once more."""
        pending = writer.queues[topic].popleft()
        writer.under_way -= 1
        if not (writer.name or writer.under_way):
            self._writers.remove(writer)
        self._write(pending.batch)
        if not self.calm and self._tape.chance(REPEATED):
            self.repeats += 1
            self.adrift(pending.batch)
        pending.acknowledge()

    def adrift(self, batch: WholeBatch) -> None:
        """A batch that nobody waits for; it lands some time."""
        self.writer("").append([batch])

    def crash(self, writer: SimulatedWriter) -> None:
        """The process is gone: of what it had sent a part still lands, some time; nobody waits for it."""
        writer.name = ""
        for topic, queue in writer.queues.items():
            kept = self._tape.below(len(queue) + 1)
            writer.queues[topic] = deque(_Pending(queue[place].batch, _nobody) for place in range(kept))
        writer.under_way = sum(map(len, writer.queues.values()))
        if not writer.under_way:
            self._writers.remove(writer)

    def written(self, entry: Entry) -> Record:
        """A record of jobs.events as it would lie in Kafka."""
        if entry.record.value:
            return entry.record
        offset = entry.record.offset
        known = self._written.get(offset)
        if known is None:
            known = self._written[offset] = record_of(Topic.JOBS_EVENTS, offset, entry.id, entry.body, self.number)
        return known

    def end(self, topic: Topic) -> int:
        """The offset of the next record."""
        return len(self.topics[topic])

    def _write(self, batch: WholeBatch) -> None:
        entries = self.topics[batch.topic]
        fresh: list[Entry] = []
        for place, (id_, body) in enumerate(batch.bodies):
            held = batch.drafts[place] if batch.drafts else None
            fresh.append(self._entry(batch.topic, len(entries), id_, body, held))
            entries.append(fresh[-1])
        if batch.topic is Topic.JOBS_EVENTS:
            self.wholes.append(len(entries))
            self.forged.update(one.record.offset for one in fresh if batch.forged)
            self.newer.update(fresh[at].record.offset for at in batch.newer)
        for reader in self.readers[batch.topic]:
            reader.has_more = True
        self._landed(batch.topic, fresh)

    def _entry(self, topic: Topic, offset: int, id_: str, body: Body, held: Draft | None) -> Entry:
        job_id = str(getattr(body, "job_id", ""))
        if held is not None:
            record = Record(topic, self.number, offset, 0, held.key, held.headers, held.value)
        elif self._codec:
            record = record_of(topic, offset, id_, body, self.number)
        else:
            record = Record(topic, self.number, offset, 0, job_id.encode(), (), b"")
        if not self._codec:
            return Envelope(id_, body, record)
        decoded = decode_event(record) if isinstance(body, Event) else decode_message(record)
        if not isinstance(decoded, Envelope):
            raise TypeError("what the simulation writes can be read")
        return decoded


def again(topic: Topic, entries: Sequence[Entry], newer: Container[int] = ()) -> WholeBatch:
    """The same records once more, to the byte; `newer`: where only a newer version reads them."""
    drafts = tuple(Draft(topic, one.record.key or b"", one.record.value, one.record.headers) for one in entries)
    held = drafts if entries and entries[0].record.value and topic in SIGNED else ()
    marked = frozenset(at for at, one in enumerate(entries) if one.record.offset in newer)
    return WholeBatch(topic, tuple((one.id, one.body) for one in entries), held, newer=marked)


def record_of(topic: Topic, offset: int, id_: str, body: Body, number: int = 0) -> Record:
    """The record as it would lie in Kafka."""
    job_id = str(getattr(body, "job_id", "-"))
    made = draft(topic, body, key=job_id, id=id_, source="aetheris/simulation", time=TIME)
    return Record(topic, number, offset, 0, made.key, made.headers, made.value)


def history_text(entry: Entry) -> str:
    """A record in short."""
    body = entry.body
    kind = getattr(body, "event_type", None) or getattr(body, "type_name", "")
    parts = [str(value) for name in _SHOWN if (value := getattr(body, name, None)) is not None]
    return f"{kind} {' '.join(parts)}"


_SHOWN = (
    "job_id",
    "node_id",
    "nodes",
    "invocation_id",
    "token",
    "external_key",
    "outcome",
    "via",
    "answer",
    "by",
    "worker_id",
    "live",
    "verdict",
    "reason",
    "activation",
    "number",
)
