"""One try, performed: the call, its effect kept, its report drafted (docs/architecture.md, "A step")."""

import asyncio
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from aetheris.protocol.base import recordable
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.event_values import BlobRef
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import BlobName as StoredRef
from aetheris.runtime.blobs.store import Blobs, BlobsUnreachable
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.process.crash import CrashPoints
from aetheris.runtime.redis.effects import EffectEntry
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.runtime.telemetry.spans import SpanKind
from aetheris.runtime.telemetry.tracer import Telemetry, Traced, current
from aetheris.sdk.context import ToolContext
from aetheris.sdk.outcomes import InDoubt, Permanent, Retryable, Succeeded
from aetheris.sdk.outcomes import Outcome as Said
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.tries import DeclaredInvocation, NodeReport
from aetheris.tool_executor.effect_writer import EffectWriter, Keeping
from aetheris.tool_executor.hidden_calls import HiddenCalls, OpenedCall
from aetheris.tool_executor.tool_calls import Calls

SOURCE = "aetheris/tool_executor"

LONGEST_ANSWER_S = 3_600.0
"""The longest that a model's configuration lets it take."""

BLOB_PATIENCE_S = 60.0
"""For so long a large result is offered to a store that is away; then nobody knows what the call came to."""

REPORT_REFUSED = "ReportRefused"
"""The error class of a call whose report the brokers would not have, in any form."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class InvocationReport:
    """What a try came to: the records that say so, its result where the run may go on, and its effect's keeping."""

    drafts: tuple[Draft, ...]
    node_report: NodeReport | None = None
    keeping: Keeping | None = None
    begun_ns: int = 0
    parent: bytes | None = None
    outcome: Succeeded | None = None
    is_end: bool = True
    """Whether nothing is left to find out: it says no doubt."""


@dataclass(slots=True)
class _Kept:
    """A result as it is recorded, its hash, and where it lies if it is not inline."""

    output_hash: str
    value: Any
    ref: BlobRef | None = None

    @property
    def inline(self) -> Any:
        """What the record itself holds of it."""
        return None if self.ref is not None else self.value


class Scribe:
    """Drafts of jobs.events in the executor's name."""

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry

    def write(self, subject: Traced, events: Sequence[Event], traceparent: bytes | None = None) -> tuple[Draft, ...]:
        """The records of one try's events, its first one naming the invocation_id."""
        parent = traceparent
        if parent is None and self._telemetry.on:
            parent = self._telemetry.traceparent(subject)
        time, cause = self._clock.now().isoformat(), reports.cause_of(events)
        return tuple([self._draft(event, cause, time, parent) for event in events])

    def _draft(self, event: Event, cause: Sequence[str], time: str, parent: bytes | None) -> Draft:
        return draft(
            Topic.JOBS_EVENTS,
            event,
            key=event.job_id,
            id=event_id(event.job_id, event.event_type, *cause),
            source=SOURCE,
            time=time,
            traceparent=parent,
        )


class Performer:
    """Makes calls; nothing here tries twice."""

    def __init__(
        self,
        *,
        calls: Calls,
        hidden: HiddenCalls,
        effects: EffectWriter,
        blobs: Blobs,
        traffic: BlobTraffic,
        scribe: Scribe,
        telemetry: Telemetry,
        metrics: Metrics,
        clock: Clock,
        crash: CrashPoints,
    ) -> None:
        self._calls = calls
        self._hidden = hidden
        self._effects = effects
        self._blobs = blobs
        self._traffic = traffic
        self._scribe = scribe
        self._telemetry = telemetry
        self._metrics = metrics
        self._clock = clock
        self._crash = crash
        self.begun: dict[str, dict[str, bool]] = {}
        """Job → the invocations that this process made or may yet make, until the job is sealed or has moved away.
        Of each: whether the log has its end."""

    def begin(self, invocation: DeclaredInvocation) -> None:
        """Its `started` won: from here on this process may have called it."""
        self.begun.setdefault(invocation.started.job_id, {})[invocation.invocation_id] = False

    def ended(self, invocation: DeclaredInvocation, report: InvocationReport) -> None:
        """Its report is acknowledged."""
        begun = self.begun.get(invocation.started.job_id, {})
        if report.is_end and invocation.invocation_id in begun:
            begun[invocation.invocation_id] = True

    def unended(self) -> frozenset[str]:
        """What was begun here and has no end in the log yet, as far as is known here."""
        return frozenset(
            invocation_id
            for invocations in self.begun.values()
            for invocation_id, has_ended in invocations.items()
            if not has_ended
        )

    def thin(self, job_ids: Iterable[str]) -> None:
        """Others have their partition, and see them sealed. A call that is under way, or in doubt, stays known.

        What has its end in the log is no stray without that: whoever gets the partition from now on reads its end too,
        and who is restoring it already has asked for `unended` first.
        """
        for job_id in job_ids:
            left = {
                invocation_id: False for invocation_id, has_ended in self.begun.pop(job_id, {}).items() if not has_ended
            }
            if left:
                self.begun[job_id] = left

    async def perform(self, invocation: DeclaredInvocation) -> InvocationReport:
        """Call, begin to keep the effect, and draft the report; a try runs only after its `started` won."""
        if self._telemetry.sampled(invocation.started.job_id, invocation.run.trace):
            outcome, parent = await self._call_traced(invocation)
        else:
            outcome, parent = await self._call_untraced(invocation)
        return await self.report(invocation, outcome, parent)

    async def report(self, invocation: DeclaredInvocation, outcome: Said, parent: bytes | None) -> InvocationReport:
        """What a try has come to, drafted, and its effect on the way to its store."""
        if not isinstance(outcome, Succeeded):
            drafts = self._scribe.write(traced(invocation), [reports.unsuccessful(invocation, outcome)], parent)
            return InvocationReport(drafts, is_end=not isinstance(outcome, InDoubt))
        return await self._succeed(invocation, outcome, parent)

    async def keep(self, invocation: DeclaredInvocation, report: InvocationReport) -> None:
        """Wait until its effect is kept, or can't be; only then is it reported."""
        if report.keeping is None:
            return
        await report.keeping
        if report.parent is not None:
            self._telemetry.record(
                traced(invocation),
                "put_effect",
                report.begun_ns,
                _ns(self._clock.now()),
                kind=SpanKind.CLIENT,
                parent=report.parent,
            )
        self._crash.reach("after_put_effect", invocation.started.tool_name)

    async def load(self, refs: Sequence[BlobRef]) -> dict[str, Any]:
        """Large results by their sha256.

        Raises:
            BlobMissing: the store lacks one.
            BlobCorrupt: one has changed.
            BlobsUnreachable: the store can't say.
        """
        return {ref.sha256: json.loads(await self._blobs.get(StoredRef(ref.sha256, ref.size))) for ref in refs}

    async def _call(self, invocation: DeclaredInvocation, traceparent: bytes | None) -> Said:
        started, tool = invocation.started, invocation.started.tool_name
        within_s = invocation.call.entry.timeout_s
        ctx = ToolContext(
            external_key=started.external_key,
            attempt=started.attempt_id,
            idempotency_key=started.idempotency_key,
            job_id=started.job_id,
            node_id=started.node_id,
            deadline=math.inf if within_s is None else self._clock.monotonic() + within_s,
            traceparent=traceparent.decode() if traceparent is not None else None,
        )
        self._crash.reach("before_call", tool)
        ended = self._crash.during(tool)
        opened = await self._opened(invocation)
        if isinstance(opened, Retryable | Permanent):
            ended()
            return opened
        # What the tool's own instrumentation says of a person's value would be a record of it.
        with current(traceparent if opened is None else None):
            outcome = await self._calls.make(invocation.call, ctx, opened.values if opened is not None else None)
        ended()
        self._crash.reach("after_call", tool)
        if opened is not None:
            outcome = await self._hidden.hidden(outcome, opened, invocation.run.tenant, started.job_id)
        if invocation.call.entry.node.compensates is not None:
            self._crash.reach("after_compensation", tool)
        return outcome

    async def _opened(self, invocation: DeclaredInvocation) -> OpenedCall | Retryable | Permanent | None:
        """The hidden values of a call; None where it has none."""
        if not invocation.call.hidden:
            return None
        return await self._hidden.opened(invocation.call, invocation.run.tenant, invocation.started.job_id)

    async def _call_traced(self, invocation: DeclaredInvocation) -> tuple[Said, bytes | None]:
        subject, (name, attributes) = traced(invocation), _span_of(invocation)
        begun_ns = _ns(self._clock.now())  # a call that a crash cuts off leaves this one alone
        self._telemetry.record(
            subject, "begin", begun_ns, begun_ns, parent=invocation.run.taken.parent, attributes=attributes
        )
        with self._telemetry.span(subject, name, parent=invocation.run.taken.parent, attributes=attributes) as span:
            outcome = await self._call(invocation, span.traceparent)
            error = _error_of(outcome)
            if error is not None:
                span.fail(error)
            return outcome, span.traceparent

    async def _call_untraced(self, invocation: DeclaredInvocation) -> tuple[Said, bytes | None]:
        """No span, unless the call fails or is in doubt: that one is made up afterwards."""
        begun = self._clock.now()
        outcome = await self._call(invocation, None)
        error = _error_of(outcome)
        if error is None:
            return outcome, None
        name, attributes = _span_of(invocation)
        traceparent = self._telemetry.record(
            traced(invocation),
            name,
            _ns(begun),
            _ns(self._clock.now()),
            parent=invocation.run.taken.parent,
            attributes=attributes,
            error=error,
            always=True,
        )
        return outcome, traceparent

    async def brief(self, invocation: DeclaredInvocation, report: InvocationReport) -> InvocationReport | None:
        """The same success in as few bytes as can say it, its result by reference; None where it is none."""
        if report.outcome is None:
            return None
        outcome = replace(report.outcome, changes=())
        return await self._succeed(invocation, outcome, report.parent, inline_limit=0)

    def unreported(self, invocation: DeclaredInvocation) -> tuple[Draft, ...]:
        """What is left to say where no report could be recorded: nobody knows what the call came to."""
        return self._scribe.write(traced(invocation), [reports.lost(invocation, REPORT_REFUSED)])

    async def _succeed(
        self,
        invocation: DeclaredInvocation,
        outcome: Succeeded,
        parent: bytes | None,
        inline_limit: int = recordable.INLINE_LIMIT,
    ) -> InvocationReport:
        key = invocation.started.idempotency_key
        try:
            kept = await self._keep(outcome, inline_limit)
        except BlobsUnreachable as error:
            return InvocationReport(
                self._scribe.write(traced(invocation), [reports.lost(invocation, type(error).__name__)], parent),
                is_end=False,
            )
        if outcome.external_id is None and invocation.call.entry.irreversible:
            self._untraceable(invocation)
        events = reports.succeeded(invocation, outcome, kept.output_hash, kept.inline, kept.ref)
        drafts = self._scribe.write(traced(invocation), events, parent)
        value = reports.effect_value([one.value for one in drafts])
        begun_ns = 0 if parent is None else _ns(self._clock.now())
        keeping = self._effects.put(EffectEntry(invocation.started.job_id, key, invocation.invocation_id, value))
        await asyncio.sleep(0)  # so that it is on its way before anything else is thought about
        logged = None if outcome.partial else NodeReport(invocation.invocation_id, kept.output_hash, kept.value)
        return InvocationReport(drafts, logged, keeping, begun_ns, parent, outcome)

    def _untraceable(self, invocation: DeclaredInvocation) -> None:
        """The effect stands; that nobody can name it outside is its tool's fault."""
        started = invocation.started
        _log.warning("irreversible effect without external id", tool=started.tool_name, job_id=started.job_id)
        traceparent = self._telemetry.traceparent(traced(invocation))
        self._metrics.count(Metric.UNTRACEABLE, traceparent=traceparent, tool=started.tool_name)

    async def _keep(self, outcome: Succeeded, inline_limit: int) -> _Kept:
        result, data = (
            recordable.result(outcome.result) if outcome.canonical is None else (outcome.result, outcome.canonical)
        )
        output_hash = hashlib.sha256(data).hexdigest()
        if len(data) <= inline_limit:
            return _Kept(output_hash, result)
        try:
            async with asyncio.timeout(BLOB_PATIENCE_S):
                ref: StoredRef = await self._traffic.insist(lambda: self._blobs.put(data))
        except TimeoutError:
            raise BlobsUnreachable(f"not within {BLOB_PATIENCE_S:.0f} s") from None
        return _Kept(output_hash, result, BlobRef(sha256=ref.sha256, size=ref.size))


def lasts_s(invocation: DeclaredInvocation) -> float:
    """How long its call may take at most."""
    within_s = invocation.call.entry.timeout_s
    return LONGEST_ANSWER_S if within_s is None else within_s


def traced(invocation: DeclaredInvocation) -> Traced:
    """What its trace is of."""
    return Traced(invocation.started.job_id, invocation.started.idempotency_key, invocation.run.trace)


def _error_of(reply: Said) -> str | None:
    """What an operator may see in a span; never the tool's own words."""
    if isinstance(reply, InDoubt):
        return reply.error_class
    return None if isinstance(reply, Succeeded) else type(reply).__name__


def _span_of(invocation: DeclaredInvocation) -> tuple[str, Mapping[str, str | int]]:
    started = invocation.started
    if started.kind == EffectKind.LLM:
        model = str(invocation.call.args.get("model", ""))
        name, what = f"chat {model}", {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
    else:
        name, what = (
            f"execute_tool {started.tool_name}",
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": started.tool_name},
        )
    return name, {
        **what,
        "gen_ai.tool.call.id": started.invocation_id,
        "aetheris.job_id": started.job_id,
        "aetheris.node_id": started.node_id,
        "aetheris.attempt_id": started.attempt_id,
    }


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000
