"""The verifier's edge in one partition: audits what flows by, seals what has ended, answers questions."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aetheris.proofs import Report
from aetheris.protocol import envelope
from aetheris.protocol.commands import Verification
from aetheris.protocol.envelope import Envelope, Undecodable
from aetheris.protocol.events import Event, JobSealed, ToolInvocationFinished
from aetheris.protocol.ids import event_id
from aetheris.protocol.records import Draft, Record
from aetheris.protocol.topics import Topic
from aetheris.streams.handler import PartitionHandler
from aetheris.streams.runtime import Runtime
from aetheris.streams.worker import PartitionWorker
from aetheris.verifier.core import LiveJob, Partition, sealed
from aetheris.verifier.keys import SealKey
from aetheris.verifier.probing import Prober
from aetheris.verifier.reports import report_on

SOURCE = "aetheris/verifier"


@dataclass(frozen=True)
class Parts:
    """What the handlers of all partitions share."""

    runtime: Runtime
    worker: PartitionWorker
    prober: Prober
    key: SealKey


class VerifierPartition(PartitionHandler):
    """One partition: audit, seals, probes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._core = Partition()
        self._asked: dict[int, asyncio.Task[None]] = {}

    def fold(self, records: Sequence[Record]) -> None:
        """Audit history."""
        for record in records:
            self._core.evolve(record, _event_type(record))

    async def restored(self) -> None:
        """Seal what ended while nobody looked."""
        await self._seal()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Audit, then seal what has ended; start the probes that were asked for."""
        for record in batch.get(Topic.JOBS_EVENTS, ()):
            self._audit(record)
        await self._seal()
        for record in batch.get(Topic.VERIFICATIONS, ()):
            self._take_question(record)

    def mark(self) -> int | None:
        """The birth of the oldest job that is not sealed."""
        return self._core.mark()

    def low_water(self, topic: str) -> int | None:
        """The oldest question that is not answered yet."""
        return min(self._asked, default=None) if topic == Topic.VERIFICATIONS else None

    async def close(self) -> None:
        """Questions that are open are asked again by whoever comes next."""
        for task in list(self._asked.values()):
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    def _audit(self, record: Record) -> None:
        try:
            decoded = envelope.decode_event(record)
        except Undecodable as reason:
            self._parts.worker.quarantine(record, str(reason))
            decoded = None
        job = self._core.evolve(record, _event_type(record))
        if job is not None and isinstance(decoded, Envelope) and isinstance(decoded.body, ToolInvocationFinished):
            self._trace(decoded.body, record)

    def _trace(self, finished: ToolInvocationFinished, record: Record) -> None:
        telemetry = self._parts.runtime.telemetry
        if telemetry.sampled(finished.idempotency_key):
            attributes = {"aetheris.job_id": finished.job_id, "aetheris.outcome": finished.outcome.value}
            parent = record.header("traceparent")
            with telemetry.span(finished.idempotency_key, "audit", parent=parent, attributes=attributes):
                pass

    async def _seal(self) -> None:
        for job in self._core.to_seal():
            job.sealing = True
            report = await self._report(job)
            await self._publish(sealed(job, report, self._parts.key.sign))

    async def _report(self, job: LiveJob) -> Report:
        keys = [self._parts.key.public_key]
        return await asyncio.to_thread(report_on, job.audit, keys, self._parts.runtime.blobs)

    async def _publish(self, seal: JobSealed) -> None:
        """Into the job's stream first: that it is finished, and this is its root, is a fact about the job."""
        runtime = self._parts.runtime
        await runtime.appender.append([(self._draft(Topic.JOBS_EVENTS, seal, seal.root),)])
        await runtime.appender.append([(self._draft(Topic.JOBS_SEALS, seal, seal.root),)])

    def _draft(self, topic: Topic, body: Event, cause: str) -> Draft:
        identity = event_id(body.job_id, body.event_type, cause)
        time = self._parts.runtime.clock.now().isoformat()
        return envelope.draft(topic, body, key=body.job_id, id=identity, source=SOURCE, time=time)

    def _take_question(self, record: Record) -> None:
        try:
            decoded = envelope.decode_message(record)
        except Undecodable as reason:
            self._parts.worker.quarantine(record, str(reason))
            return
        if isinstance(decoded, Envelope) and isinstance(decoded.body, Verification):
            task = asyncio.create_task(self._answer(decoded.body, record))
            self._asked[record.offset] = task
            task.add_done_callback(lambda _: self._asked.pop(record.offset, None))

    async def _answer(self, question: Verification, record: Record) -> None:
        key = question.idempotency_key
        parent = record.header("traceparent")
        with self._parts.runtime.telemetry.span(key, f"probe {question.tool_name}", parent=parent, always=True) as span:
            answer = await self._parts.prober.ask(question, span.traceparent)
        draft = self._draft(Topic.JOBS_EVENTS, answer, f"{question.invocation_id} {question.ask}")
        await self._parts.runtime.appender.append([(draft,)])


def _event_type(record: Record) -> str:
    """The snake_case name in ce_type; "" where there is none."""
    name = (record.header("ce_type") or b"").decode(errors="replace").split(".")
    return name[2] if len(name) == 4 and name[:2] == ["io", "aetheris"] else ""
