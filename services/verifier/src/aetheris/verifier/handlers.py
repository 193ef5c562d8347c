"""The verifier's edge in one partition: audits what flows by, and seals what has ended."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

import structlog

from aetheris.proofs import Violation
from aetheris.proofs.history import SUCCESSES
from aetheris.proofs.records import by_name
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.job_table import Resting
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.provenance import JobSigners
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.messages import envelope
from aetheris.protocol.messages.commands import JobPlaced, RulesBarrier
from aetheris.protocol.messages.envelope import Undecodable
from aetheris.protocol.messages.events import (
    BirthRepeated,
    ConfirmationFailed,
    Event,
    InvocationInDoubt,
    InvocationParked,
    JobCreated,
    JobSealed,
    ToolInvocationFinished,
    ViolationFound,
)
from aetheris.protocol.messages.submission_numbers import SubmissionAnswered
from aetheris.protocol.tables.rules_orders import PartitionRules, RulesOrders
from aetheris.runtime.base.fresh_ids import fresh_salt
from aetheris.runtime.blobs.store import BlobError, BlobsUnreachable
from aetheris.runtime.keys.records import RecordKeys
from aetheris.runtime.log.interface import RefusedGroup
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.process.runtime import Runtime
from aetheris.runtime.process.withheld import write_all
from aetheris.runtime.telemetry.metrics import Metric
from aetheris.runtime.telemetry.tracer import Traced, whole
from aetheris.runtime.worker.handler import PartitionHandler
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.runtime.worker.unjudged import report_unjudged
from aetheris.runtime.worker.unsigned import HeardMessages, orders_read
from aetheris.verifier.amendment_watch import AmendmentWatch
from aetheris.verifier.audit_watch import AuditWatch
from aetheris.verifier.core.amendments import LateJob, LateJudgement
from aetheris.verifier.core.job_metrics import JobMeasures, JobMetrics
from aetheris.verifier.core.partition import AuditedJob, Partition, amended, sealed
from aetheris.verifier.job_watch import WatchedJobs
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.line_writer import LoggedAnswers, LogLines
from aetheris.verifier.proofs import Proofs
from aetheris.verifier.reports import report_on
from aetheris.verifier.token_key import KeyAway

SOURCE = "aetheris/verifier"

_BARRIERS = frozenset({RulesBarrier.type_name, JobPlaced.type_name})
_FINISHED, _PARKED = ToolInvocationFinished.event_type, InvocationParked.event_type

_COUNTED: Mapping[str, Metric] = {
    InvocationInDoubt.event_type: Metric.IN_DOUBT,
    InvocationParked.event_type: Metric.PARKED,
    ConfirmationFailed.event_type: Metric.UNCONFIRMED,
}
"""What is seldom, and worth a count: event_type → its metric."""

_HEARD = frozenset({_FINISHED, *_COUNTED})
_OF_LINES = frozenset({JobCreated.event_type, SubmissionAnswered.type_name, _PARKED})
"""What lines of the log of seals come of."""

AGAIN_S = 1.0
"""After which a stream or a large result that could not be read is read again."""

REFUSED_AGAIN_S = 60.0
"""After which a seal that the brokers refused is offered again."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class VerifierDependencies:
    """What the handlers of all partitions share."""

    runtime: Runtime
    worker: PartitionWorker
    keys: SealKeys
    records: RecordKeys
    proofs: Proofs
    rules: OrderTable[RulesOrders]
    logged: LoggedAnswers
    interim_seal_s: float
    measures: JobMeasures


@dataclass(frozen=True)
class AuditedSigners:
    """What the records of jobs under audit are signed by: each of ours brings its certificate along."""

    jobs: Mapping[str, JobSigners | None]

    def signers_of(self, job_id: str) -> JobSigners | None:
        """Of a signed job; None for any other."""
        return self.jobs.get(job_id)


class VerifierPartition(PartitionHandler):
    """One partition: audit and seals."""

    def __init__(self, deps: VerifierDependencies, number: int) -> None:
        self._deps = deps
        self._number = number
        self._rules = PartitionRules(deps.rules.orders, number)
        self._messages = HeardMessages(deps.records.messages, deps.runtime.metrics, deps.rules.orders)
        self._core = Partition(deps.records.roots, self._rules)
        self._metrics = JobMetrics(deps.measures)
        self._watch = AuditWatch(self._core, self._report, deps.runtime.clock)
        self._amendments = AmendmentWatch(
            self._core.late,
            deps.proofs,
            deps.runtime.clock,
            tell=self._tell_late,
            amend=self._amend,
            stand_still=self._stand_still,
        )
        self._is_closed = False
        self._asking: set[asyncio.Task[None]] = set()
        self._readable: set[str] = set()
        """Jobs of whose large results one could be asked for just now."""
        self._unsealed: dict[str, float] = {}
        """Jobs whose seal was refused, and when it is made anew."""
        self._lines = LogLines(
            deps.runtime,
            deps.keys,
            deps.records.messages,
            number,
            logged=deps.logged,
            every_s=deps.interim_seal_s,
            source=SOURCE,
        )

    @property
    def unread(self) -> int:
        """How many sealed jobs, behind whose seal something came, can't be read now."""
        return 0 if self._is_closed else self._core.late.unread

    @property
    def watched(self) -> WatchedJobs:
        """How many jobs live, and what waits, in this partition, now."""
        if self._is_closed:
            return WatchedJobs()
        return WatchedJobs(len(self._core.jobs), self._metrics.asked, self._metrics.parked, self._core.oldest_end())

    def begin(self, start: int, live: Collection[tuple[str, int]] = ()) -> None:
        """What was written by who had read less than `start` may lie there once more."""
        self._core.begin(start, live)

    def fold(self, records: Sequence[Record]) -> None:
        """Audit history."""
        for record in records:
            named = by_name(record.headers)
            self._evolve(record, named, _name_in(named.get("ce_type", b"")), is_news=False)
        if records:
            self._lines.read(records[-1].offset)

    async def learn(self) -> None:
        """What lies below what is read here: under which rules jobs are created, which answers the log of seals has."""
        await self._deps.rules.caught_up()
        await self._lines.learn()

    async def restored(self) -> None:
        """Seal what ended while nobody looked."""
        self._core.restored()
        self._lines.start()
        self._look()
        await self._seal()
        await self._write_lines()

    async def tick(self) -> None:
        """Judge, in turn, the jobs that have come on; seal what could not be sealed before."""
        now_s = self._deps.runtime.clock.monotonic()
        for job_id in [job_id for job_id, due_s in self._unsealed.items() if due_s <= now_s]:
            del self._unsealed[job_id]
            if job_id in self._core.jobs:
                self._core.jobs[job_id].sealing = False
        await self._seal()
        for due_s in (self._watch.go_round(), self._amendments.hurry()):
            if due_s is not None:
                self._deps.worker.call_at(self._number, due_s)
        await self._write_lines()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Audit, then seal what has ended."""
        records = batch.get(Topic.JOBS_EVENTS, ())
        await orders_read(records, self._deps.rules)
        for record in records:
            self._audit(record)
        if records:
            self._lines.read(records[-1].offset)
        self._look()
        await self._seal()
        await self._write_lines()

    def rest(self) -> Resting:
        """Jobs rest that nobody has asked for in a while."""
        return self._core.rest()

    def rest_on_the_way(self) -> None:
        """So they do while history is read: nothing is done to all of them when it is."""
        self._core.jobs.rest_on_the_way()

    def low_water(self, topic: str) -> int | None:
        """The oldest answer of a submission that the log of seals lacks."""
        return self._lines.low_water() if topic == Topic.JOBS_EVENTS else None

    def live(self) -> Iterable[tuple[str, int]]:
        """The jobs that are not sealed, or have what no seal covers."""
        return self._core.live()

    async def close(self) -> None:
        """What is looked at now is looked at again by whoever comes next."""
        self._is_closed = True
        await self._watch.close()
        await self._amendments.close()
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def _audit(self, record: Record) -> None:
        """Judge a record; what the planner decodes, it also puts into the DLQ where it must."""
        named = by_name(record.headers)
        ce_type = named.get("ce_type", b"")
        if ce_type in UNREAD:
            self._check(record)
        name = _name_in(ce_type)
        job = self._evolve(record, named, name, is_news=True)
        if name not in _HEARD or (job is not None and (job.needs_upgrade or job.audit.last.claims)):
            return
        if name in _COUNTED:
            self._count(_COUNTED[name], record, job)
        if name == _FINISHED:
            self._take_end(job, named.get("traceparent"))

    def _count(self, metric: Metric, record: Record, job: AuditedJob | None) -> None:
        count, traceparent = self._deps.runtime.metrics.count, record.header("traceparent")
        if metric is Metric.IN_DOUBT:
            cause = "" if job is None else job.audit.last.text("error_class")
            count(metric, traceparent=traceparent, cause=self._deps.measures.causes.label(cause))
        else:
            count(metric, traceparent=traceparent)

    def _evolve(self, record: Record, named: Mapping[str, bytes], name: str, *, is_news: bool) -> AuditedJob | None:
        if name in _BARRIERS:
            self._pass(record)
        job = self._core.evolve(record, name, named)
        if name in _OF_LINES:
            self._take_line(record, name, job)
        if job is not None and job.is_known and not job.needs_upgrade:
            history = job.audit.history
            fact = history.facts[-1]
            if fact.at not in history.unproven:
                self._metrics.take(job.times, job.tenant, fact, is_news=is_news)
            if name == BirthRepeated.event_type and job.job_id not in self._core.jobs:
                self._metrics.forget(job.times)
        return job

    def _pass(self, record: Record) -> None:
        """What bars creations behind it."""
        barrier = self._messages.barrier(record)
        if isinstance(barrier, RulesBarrier):
            self._rules.passed(barrier, record.offset)
        elif isinstance(barrier, JobPlaced):
            self._rules.placed(barrier)

    def _take_line(self, record: Record, name: str, job: AuditedJob | None) -> None:
        """Answers of submissions, and jobs that wait for a person: beside what is audited."""
        first = job if job is not None and job.creation_offset == record.offset else None
        born = first if first is not None and first.is_known else None
        self._lines.take(record, name, born, is_unjudged=first is not None and born is None)
        if job is not None and name == _PARKED and not job.needs_upgrade:
            self._lines.parked(job)

    async def _write_lines(self) -> None:
        await self._lines.write(self._core.jobs)
        due_s = self._lines.next_due_s()
        if due_s is not None:
            self._deps.worker.call_at(self._number, due_s)

    def _take_end(self, job: AuditedJob | None, parent: bytes | None) -> None:
        """A call has ended: traced. Where its job is sealed it came too late, and is looked at in its turn."""
        if job is not None and parent is not None:
            self._trace(job, parent)

    async def _tell_late(self, job: LateJob, found: LateJudgement) -> bool:
        """What nobody has told yet of a sealed job, from where something came late."""
        audited, told = AuditedJob(job.job_id, job.held_from, "", reported=job.told), len(job.told)
        await self._report(audited, [one for one in found.untold if one.offset >= job.since], found.signers)
        return len(job.told) > told

    def _stand_still(self, job: LateJob, error: Exception) -> None:
        self._core.stand_still(AuditedJob(job.job_id, job.held_from, ""), error)
        report_unjudged(self._core.unjudged, self._deps.runtime.metrics)

    async def _amend(self, found: LateJudgement) -> bool:
        """Whether the amendment lies in both logs, or none was due."""
        if found.due is None:
            return True
        now = self._deps.runtime.clock.now().isoformat()
        sign = partial(amended, found.due, self._deps.keys.sign, now, fresh_salt())
        seal = await asyncio.to_thread(sign) if self._deps.keys.is_elsewhere else sign()
        refusals = await self._lay([seal], {seal.job_id: found.signers})
        _log.warning("a seal is amended", job_id=seal.job_id, event_count=seal.event_count, refused=bool(refusals))
        return not refusals

    def _check(self, record: Record) -> None:
        try:
            envelope.decode_event(record)
        except Undecodable as reason:
            self._deps.worker.quarantine(record, str(reason))

    def _trace(self, job: AuditedJob, parent: bytes) -> None:
        finished, telemetry = job.audit.last, self._deps.runtime.telemetry
        if telemetry.sampled(job.job_id, job.trace):
            traced = Traced(job.job_id, finished.key, job.trace)
            attributes = {"aetheris.job_id": job.job_id, "aetheris.outcome": finished.text("outcome")}
            with telemetry.span(traced, "audit", parent=parent, attributes=attributes):
                pass
            self._trace_step(job)

    def _trace_step(self, job: AuditedJob) -> None:
        """In the job's own trace, from a try's start to its end: all tries of all its keys are one picture there."""
        finished = job.audit.last
        found = job.times.span(finished)
        if found is None:
            return
        call, started_s, ended_s = found
        self._deps.runtime.telemetry.record(
            whole(job.job_id, job.trace),
            f"step {call.tool}",
            round(started_s * 1e9),
            round(ended_s * 1e9),
            attributes={"aetheris.job_id": job.job_id, "aetheris.node_id": call.node, "gen_ai.tool.name": call.tool},
            links=(finished.key,),
            error=None if finished.outcome in SUCCESSES else finished.outcome,
        )

    def _look(self) -> None:
        self._watch.hurry()
        for due_s in (self._watch.next_round_s(), self._amendments.hurry()):
            if due_s is not None:
                self._deps.worker.call_at(self._number, due_s)

    async def _report(self, job: AuditedJob, found: Iterable[Violation], signers: JobSigners | None = None) -> None:
        """Violations that nobody has told yet: into the job's stream, the metrics, and the service's own log."""
        report_unjudged(self._core.unjudged, self._deps.runtime.metrics)
        fresh = job.untold(found)
        if not fresh:
            return
        runtime = self._deps.runtime
        for one in fresh:
            _log.error("violation", job_id=job.job_id, rule=one.rule, event_id=one.event_id, offset=one.offset)
            traceparent = runtime.telemetry.traceparent(whole(job.job_id, job.trace))
            runtime.metrics.count(Metric.VIOLATIONS, traceparent=traceparent, rule=one.rule)
        groups = [(self._draft(*_violation(job, one)),) for one in fresh]
        await runtime.withheld.append(self._signed(groups, {job.job_id: signers or job.signers}))
        await runtime.metrics.flush()

    async def _seal(self) -> None:
        """Into the log of seals first: no stream holds a seal that the log lacks, wherever this process dies."""
        ready = [job for job in self._core.to_seal() if self._may_judge(job)]
        seals = [seal for job in ready if (seal := await self._sealed(job)) is not None]
        report_unjudged(self._core.unjudged, self._deps.runtime.metrics)
        for refusal in await self._lay(seals, {job.job_id: job.signers for job in ready}):
            self._seal_later(refusal)

    async def _lay(
        self, seals: Sequence[JobSealed], signers: Mapping[str, JobSigners | None]
    ) -> Sequence[RefusedGroup]:
        """Into the log of seals, then into their jobs' streams; those that are refused there."""
        groups = [(self._draft(seal, f"{seal.root} {seal.sealed_at}"),) for seal in seals]
        signed = self._signed(groups, signers)
        lines = [(seal.replaced(topic=Topic.JOBS_SEALS, partition=0),) for (seal,) in signed]
        refusals = await write_all(self._deps.runtime.appender, lines)
        refused = {refusal.group[0].key.decode() for refusal in refusals}
        await self._deps.runtime.withheld.append([group for group in signed if group[0].key.decode() not in refused])
        return refusals

    def _may_judge(self, job: AuditedJob) -> bool:
        """Whether its large results can be read: a store that is away is waited for beside the partition's turn."""
        if job.large is None or job.job_id in self._readable:
            self._readable.discard(job.job_id)
            return True
        job.sealing = True
        asking = asyncio.create_task(self._ask_store(job, job.large))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return False

    async def _ask_store(self, job: AuditedJob, sha256: str) -> None:
        runtime = self._deps.runtime
        with suppress(BlobError):  # missing, or changed: the judgement says so
            await runtime.traffic.insist(lambda: asyncio.to_thread(runtime.blobs.read, sha256))
        self._readable.add(job.job_id)
        job.sealing = False
        self._deps.worker.call_at(self._number, runtime.clock.monotonic())

    def _seal_later(self, refusal: RefusedGroup) -> None:
        """Its job stays unsealed, and is told; a seal is made anew when its time has come."""
        job_id, due_s = refusal.group[0].key.decode(), self._deps.runtime.clock.monotonic() + REFUSED_AGAIN_S
        _log.error("a seal is refused", job_id=job_id, topic=refusal.group[0].topic, reason=refusal.why)
        self._deps.runtime.metrics.count(Metric.REFUSED, topic=refusal.group[0].topic, reason=refusal.why)
        self._unsealed[job_id] = due_s
        self._deps.worker.call_at(self._number, due_s)

    async def _sealed(self, job: AuditedJob) -> JobSealed | None:
        """Its seal; none while a large result or the key can't be asked for, and it is tried again."""
        job.sealing = True
        await asyncio.sleep(0)  # a report takes a millisecond, and many jobs may end together
        judge = partial(report_on, job.audit, self._deps.keys.trusted, self._deps.runtime.blobs)
        try:
            report = judge() if job.audit.is_brief else await asyncio.to_thread(judge)
        except BlobsUnreachable as error:
            return self._not_yet(job, error.code, str(error))
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            return self._core.stand_still(job, error)
        await self._report(job, report.violations)
        now = self._deps.runtime.clock.now().isoformat()
        sign = partial(sealed, job, report, self._deps.keys.sign, now, fresh_salt())
        try:
            return await asyncio.to_thread(sign) if self._deps.keys.is_elsewhere else sign()
        except KeyAway as error:
            return self._not_yet(job, error.code, str(error))

    def _not_yet(self, job: AuditedJob, code: str, reason: str) -> None:
        _log.warning("a job can't be sealed yet", job_id=job.job_id, code=code, reason=reason)
        job.sealing = False
        self._deps.worker.call_at(self._number, self._deps.runtime.clock.monotonic() + AGAIN_S)

    def _signed(self, groups: Sequence[Group], signers: Mapping[str, JobSigners | None]) -> Sequence[Group]:
        """The groups, signed where their job is; a seal lies in the log of seals as it does in its job's stream."""
        return self._deps.records.signed(groups, AuditedSigners(signers))

    def _draft(self, body: Event, cause: str) -> Draft:
        identity = event_id(body.job_id, body.event_type, cause)
        time = self._deps.runtime.clock.now().isoformat()
        return envelope.draft(
            Topic.JOBS_EVENTS, body, key=body.job_id, id=identity, source=SOURCE, time=time, partition=self._number
        )


def _violation(job: AuditedJob, found: Violation) -> tuple[ViolationFound, str]:
    event = ViolationFound(
        job_id=job.job_id,
        rule=found.rule,
        event_id=found.event_id,
        offset=found.offset,
        message=found.message,
    )
    return event, f"{found.rule} {found.offset}"


@lru_cache(maxsize=256)
def _name_in(ce_type: bytes) -> str:
    """The snake_case name in a ce_type; "" where there is none."""
    name = ce_type.decode(errors="replace").split(".")
    return name[2] if len(name) == 4 and name[:2] == ["io", "aetheris"] else ""
