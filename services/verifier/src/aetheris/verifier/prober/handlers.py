"""The prober's edge in one partition: each question is put to the external system, and answered in its job's stream."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.provenance import JobSigners
from aetheris.protocol.messages import envelope
from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.messages.envelope import Envelope, Undecodable
from aetheris.protocol.messages.events import Event
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.process.runtime import Runtime
from aetheris.runtime.telemetry.tracer import Traced
from aetheris.runtime.worker.handler import PartitionHandler
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.runtime.worker.unsigned import HeardMessages
from aetheris.verifier.prober.probes import Prober

SOURCE = "aetheris/prober"


@dataclass(frozen=True)
class ProberDependencies:
    """What the handlers of all partitions share."""

    runtime: Runtime
    worker: PartitionWorker
    prober: Prober
    keys: RecordKeys = UNSIGNED


@dataclass(frozen=True)
class _AskedFor:
    """What a question says of its job, of which the prober reads nothing: each answer has its certificate with it."""

    question: Verification

    def signers_of(self, job_id: str) -> JobSigners | None:
        """None where its records are not signed."""
        asked = self.question
        if asked.installation is None or asked.born is None or job_id != asked.job_id:
            return None
        return JobSigners(asked.installation, asked.born)


class ProberPartition(PartitionHandler):
    """The questions of one partition; an open one holds the group's offset, so that it is asked again after a death."""

    def __init__(self, deps: ProberDependencies) -> None:
        self._deps = deps
        self._questions = HeardMessages(deps.keys.messages, deps.runtime.metrics)
        self._came: list[tuple[Verification, Record]] = []
        """Not asked yet."""
        self._open: dict[int, str] = {}
        """Offset → job of each question that is not answered."""
        self._asking: set[asyncio.Task[None]] = set()

    def fold(self, records: Sequence[Record]) -> None:
        """Questions that came while nobody lived here are asked when all have been read."""
        for record in records:
            question = self._read(record)
            if question is not None:
                self._came.append((question, record))
                self._open[record.offset] = question.job_id

    async def restored(self) -> None:
        """Ask what was left open."""
        self._ask()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Ask what has come; nobody waits for the answers."""
        self.fold(batch.get(Topic.VERIFICATIONS, ()))
        self._ask()

    def live(self) -> Iterable[tuple[str, int]]:
        """The questions that are not answered yet."""
        return ((job_id, offset) for offset, job_id in self._open.items())

    async def close(self) -> None:
        """Questions that are open are asked again by whoever comes next."""
        asking = list(self._asking)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _read(self, record: Record) -> Verification | None:
        try:
            decoded = envelope.decode_message(record)
        except Undecodable as reason:
            self._deps.worker.quarantine(record, str(reason))
            return None
        if not isinstance(decoded, Envelope) or not isinstance(decoded.body, Verification):
            return None
        return decoded.body if self._questions.counts(record, Verification.type_name) else None

    def _ask(self) -> None:
        came, self._came = self._came, []
        for question, record in came:
            task = asyncio.create_task(self._answer(question, record))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _answer(self, question: Verification, record: Record) -> None:
        parent = record.header("traceparent")
        wanted = None if parent is not None else False  # who isn't sampled has no root to lie below
        traced = Traced(question.job_id, question.idempotency_key, wanted)
        name = f"{question.what} {question.tool_name}"
        with self._deps.runtime.telemetry.span(traced, name, parent=parent, always=True) as span:
            reported = await self._asked_external_system(question, span.traceparent)
        cause = f"{question.invocation_id} {question.ask}"
        group = tuple(
            self._draft(one, f"{cause} {place}" if place else cause, record.partition)
            for place, one in enumerate(reported)
        )
        if group:
            await self._deps.runtime.withheld.append(self._deps.keys.signed([group], _AskedFor(question)))
        del self._open[record.offset]

    async def _asked_external_system(self, question: Verification, traceparent: bytes | None) -> Sequence[Event]:
        if question.what == "confirm":
            return await self._deps.prober.confirm(question, traceparent)
        return [await self._deps.prober.ask(question, traceparent)]

    def _draft(self, body: Event, cause: str, partition: int) -> Draft:
        identity = event_id(body.job_id, body.event_type, cause)
        time = self._deps.runtime.clock.now().isoformat()
        return envelope.draft(
            Topic.JOBS_EVENTS, body, key=body.job_id, id=identity, source=SOURCE, time=time, partition=partition
        )
