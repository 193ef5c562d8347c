"""What the core decides, as records: each with the id that follows from its cause, and the span of its judgement."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

from aetheris.ledger.core.decisions import (
    Answered,
    Ask,
    Barrier,
    Confirm,
    Decision,
    DuplicateLine,
    Emit,
    Grant,
    Now,
    PolicyTaken,
    RulesTaken,
    View,
)
from aetheris.ledger.core.live_jobs import LiveJobTable
from aetheris.ledger.duplicate_table import DuplicateTable
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.records import Draft, Group
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import (
    ContentRecord,
    FreezeAnswer,
    LedgerRecord,
    PartitionBarrier,
    PolicyAnswer,
    RulesAnswer,
    ToolGrant,
    Verification,
)
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import (
    ApprovalRequested,
    JobWaiting,
    PolicyAllowed,
    SignalReceived,
    WaitCompleted,
)
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.telemetry.spans import SpanKind, sending
from aetheris.runtime.telemetry.tracer import Telemetry, Traced

SOURCE = "aetheris/ledger"
_SENDING = sending(Topic.TOOLS_GRANTS)

_ORDINARY = (PolicyAllowed, ApprovalRequested, JobWaiting, SignalReceived, WaitCompleted)
"""Nothing has failed where these are written: their spans are sampled like all others."""


class Outbox:
    """Of one partition; `jobs` are its live ones, whose traces are gone on with."""

    def __init__(
        self, number: int, duplicates: DuplicateTable, telemetry: Telemetry, clock: Clock, jobs: LiveJobTable
    ) -> None:
        self._number = number
        self._duplicates = duplicates
        self._telemetry = telemetry
        self._clock = clock
        self._jobs = jobs

    def group(self, decision: Decision, now: Now) -> Group:
        """The records that are written whole or not at all.

        Raises:
            LookupError: what is to be confirmed has no resources yet; they are read first.
        """
        match decision:
            case View():
                return (self._view(decision.record, now),)
            case Grant():
                return (self._grant(decision, now),)
            case Confirm():
                raise LookupError("its resources are read first")
            case Ask():
                return (self.question(decision.message, now),)
            case Emit():
                return self._events(decision, now)
            case DuplicateLine():
                return (self._line(decision.record, now),)
            case Barrier():
                return (self._barrier(decision.message, now),)
            case Answered():
                return (self._answer(decision.message, now),)
            case PolicyTaken():
                return (self._policy_answer(decision.message, now),)
            case RulesTaken():
                return (self._policy_answer(decision.message, now),)

    def question(self, message: Verification, now: Now) -> Draft:
        """A question to the external system."""
        context = self.traceparent(message.job_id, message.idempotency_key)
        id_ = derived("question", message.job_id, message.ask)
        return self._draft(Topic.VERIFICATIONS, message, id_, now, context)

    def traceparent(self, job_id: str, key: str) -> bytes | None:
        """The context of whatever concerns a key."""
        return self._telemetry.traceparent(self._traced(job_id, key))

    def record_joined(self, joined: Iterable[tuple[str, str]], now: Now) -> None:
        """The later nodes of a run are not granted one by one: their span is made when they have started."""
        if not self._telemetry.on:
            return
        at_ns = _ns(now)
        for job_id, key in joined:
            self._telemetry.record(self._traced(job_id, key), "adjudicate", at_ns, at_ns, kind=SpanKind.PRODUCER)

    def _grant(self, grant: Grant, now: Now) -> Draft:
        message = grant.message
        grant_id = derived("grant", message.lease_id, str(message.as_of))
        return self._draft(Topic.TOOLS_GRANTS, message, grant_id, now, self._record_grant(grant, now))

    def _record_grant(self, grant: Grant, now: Now) -> bytes | None:
        message = grant.message
        traced = self._traced(message.job_id, message.idempotency_key)
        if not self._telemetry.sampled(traced.job_id, traced.wanted):
            return None
        attributes = {
            "aetheris.job_id": message.job_id,
            "aetheris.node_id": message.nodes[0],
            "aetheris.run_nodes": len(message.nodes),
            "aetheris.token": message.token,
            **_SENDING,
        }
        end_ns = round(self._clock.now().timestamp() * 1e9)
        kind, parent = SpanKind.PRODUCER, grant.parent
        return self._telemetry.record(
            traced, "adjudicate", _ns(now), end_ns, kind=kind, parent=parent, attributes=attributes
        )

    def _events(self, emit: Emit, now: Now) -> Group:
        context = self._record_judgement(emit, emit.key, now) if emit.key is not None else None
        return tuple(
            draft(
                Topic.JOBS_EVENTS,
                written.event,
                key=emit.job_id,
                id=written.id,
                source=SOURCE,
                time=_text(now),
                traceparent=context,
                partition=self._number,
            )
            for written in emit.events
        )

    def _record_judgement(self, emit: Emit, key: str, now: Now) -> bytes | None:
        names = ", ".join(written.event.event_type for written in emit.events)
        attributes = {"aetheris.job_id": emit.job_id, "aetheris.writes": names}
        always = not isinstance(emit.events[0].event, _ORDINARY)
        traced, at_ns = self._traced(emit.job_id, key), _ns(now)
        return self._telemetry.record(traced, "judge", at_ns, at_ns, attributes=attributes, always=always)

    def _line(self, line: ContentRecord, now: Now) -> Draft:
        """Keyed by its call, in the partition of its scope: there all see the lines of a scope in one order."""
        is_named = partition_of(line.job_id, self._duplicates.partitions) == self._number
        return draft(
            Topic.LEDGER_CONTENTS,
            line if is_named else line.model_copy(update={"partition": self._number}),
            key=f"{line.scope_key}:{line.execution_id}",
            id=derived("content", line.scope_key, line.execution_id, line.state),
            source=SOURCE,
            time=_text(now),
            partition=partition_of(line.scope_key, self._duplicates.partitions),
        )

    def _barrier(self, barrier: PartitionBarrier, now: Now) -> Draft:
        """Of the partition, and of no job: no job has such a key."""
        return draft(
            Topic.JOBS_EVENTS,
            barrier,
            key=barrier.job_id,
            id=derived(barrier.type_name, *barrier.cause, str(self._number)),
            source=SOURCE,
            time=_text(now),
            partition=self._number,
        )

    def _answer(self, answer: FreezeAnswer, now: Now) -> Draft:
        id_ = derived("freeze answer", answer.key, f"{answer.number} {answer.frozen}", str(answer.partition))
        return draft(Topic.FREEZES, answer, key=answer.key, id=id_, source=SOURCE, time=_text(now))

    def _policy_answer(self, answer: PolicyAnswer | RulesAnswer, now: Now) -> Draft:
        id_ = derived(f"{answer.key} answer", str(answer.number), str(answer.partition))
        return draft(Topic.POLICIES, answer, key=answer.key, id=id_, source=SOURCE, time=_text(now))

    def _view(self, record: LedgerRecord, now: Now) -> Draft:
        """Keyed by its idempotency key, so that compaction keeps the last; in its job's partition all the same."""
        key = record.idempotency_key
        return draft(
            Topic.LEDGER_RECORDS,
            record,
            key=key,
            id=derived("record", key, str(record.offset)),
            source=SOURCE,
            time=_text(now),
            partition=self._number,
        )

    def _draft(self, topic: Topic, body: ToolGrant | Verification, id_: str, now: Now, context: bytes | None) -> Draft:
        return draft(
            topic,
            body,
            key=body.job_id,
            id=id_,
            source=SOURCE,
            time=_text(now),
            traceparent=context,
            partition=self._number,
        )

    def _traced(self, job_id: str, key: str) -> Traced:
        job = self._jobs.get(job_id)
        return Traced(job_id, key, None if job is None else job.state.trace)


def _text(now: Now) -> str:
    return _time(now.wall)


@lru_cache(maxsize=8)
def _time(wall: datetime) -> str:
    """A round has one, and all its records say it."""
    return wall.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _ns(now: Now) -> int:
    return round(now.wall.timestamp() * 1e9)
