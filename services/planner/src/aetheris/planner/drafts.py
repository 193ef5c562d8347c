"""What the core decides, as records: each with the id that follows from its cause, and the span that it belongs to."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC

from aetheris.planner.core.decisions import (
    Append,
    Behind,
    IndexUpdate,
    Joined,
    NewEvent,
    NodesRequest,
    Place,
    Tell,
    tell_id,
)
from aetheris.planner.core.placements import JobPlacements
from aetheris.protocol.base.ids import derived, event_id
from aetheris.protocol.base.keys import job_key
from aetheris.protocol.base.records import Draft, Group
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobBehind
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.submission_numbers import SubmissionAnswered
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.telemetry.spans import SpanKind, sending
from aetheris.runtime.telemetry.tracer import Telemetry, Traced

SOURCE = "aetheris/planner"
_SENDING = sending(Topic.TOOLS_REQUESTS)

Written = Append | NodesRequest | IndexUpdate | Behind | Tell | Place


class PlannerDrafts:
    """Of one partition; `wants_trace`: what a live job's submission says of tracing.

    What is of a job of this partition lies in it; what is said to another job, in the one that its id names.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        clock: Clock,
        wants_trace: Callable[[str], bool | None],
        partition: int,
        placements: JobPlacements,
    ) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._wants_trace = wants_trace
        self._partition = partition
        self._placements = placements

    def groups(self, outputs: Sequence[Written], *, again: bool = False) -> list[Group]:
        """One group of each, in their order; `again`: a request that is repeated has a span beside the first."""
        time = self._now()
        return [self._group(output, time, again=again) for output in outputs]

    def answers(self, said: Sequence[SubmissionAnswered]) -> list[Draft]:
        """Of the partition, and of no job."""
        time = self._now()
        return [self._answer_draft(one, time) for one in said]

    def _answer_draft(self, said: SubmissionAnswered, time: str) -> Draft:
        number = said.receipt
        named = (number.gateway, said.tenant, str(number.partition), str(number.number), said.answer)
        return draft(
            Topic.JOBS_EVENTS,
            said,
            key=said.job_id,
            id=derived(said.type_name, *named),
            source=SOURCE,
            time=time,
            partition=self._partition,
        )

    def _now(self) -> str:
        return self._clock.now().astimezone(UTC).isoformat().replace("+00:00", "Z")

    def trace_joined(self, found: Iterable[Joined]) -> None:
        """The later nodes of a run are never requested: their span is made when they have started."""
        if not self._telemetry.on:
            return
        now_ns = round(self._clock.now().timestamp() * 1e9)
        for joined in found:
            traced = self._traced(joined.job_id, joined.key)
            if self._telemetry.sampled(joined.job_id, traced.wanted):
                attributes = {"aetheris.job_id": joined.job_id, "aetheris.node_id": joined.node_id}
                links = (job_key(joined.job_id),)
                self._telemetry.record(traced, "request", now_ns, now_ns, attributes=attributes, links=links, root=True)

    def _group(self, output: Written, time: str, *, again: bool) -> Group:
        if isinstance(output, Append):
            return tuple(
                draft(
                    Topic.JOBS_EVENTS,
                    fact.event,
                    key=fact.event.job_id,
                    id=event_id(fact.event.job_id, fact.event.event_type, *fact.cause),
                    source=SOURCE,
                    time=time,
                    traceparent=self._traceparent(fact),
                    partition=self._partition,
                )
                for fact in output.facts
            )
        if isinstance(output, NodesRequest):
            return (self._traced_request(output, time, again=again),)
        if isinstance(output, Behind):
            return (_behind_draft(output, time),)
        if isinstance(output, Tell):
            return (self._told_draft(output, time),)
        if isinstance(output, Place):
            return (self._placed_draft(output, time),)
        return (self._index_draft(output, time),)

    def _traceparent(self, fact: NewEvent) -> bytes | None:
        if fact.key is None or not self._telemetry.on:
            return None
        return self._telemetry.traceparent(self._traced(fact.event.job_id, fact.key))

    def _traced(self, job_id: str, key: str) -> Traced:
        return Traced(job_id, key, self._wants_trace(job_id))

    def _traced_request(self, output: NodesRequest, time: str, *, again: bool) -> Draft:
        """The first span of the key's trace; asked again after a restore, one beside it."""
        job_id = output.body.job_id
        if output.key is None:
            return self._request_draft(output, time, None)
        traced = self._traced(job_id, output.key)
        if not self._telemetry.sampled(job_id, traced.wanted):
            return self._request_draft(output, time, None)
        nodes, links = output.body.nodes, (job_key(job_id),)
        attributes = {"aetheris.job_id": job_id, "aetheris.node_id": nodes[0], "aetheris.run_nodes": len(nodes)}
        with self._telemetry.span(
            traced,
            "request",
            kind=SpanKind.PRODUCER,
            attributes={**attributes, **_SENDING},
            links=links,
            root=not again,
        ) as span:
            return self._request_draft(output, time, span.traceparent)

    def _request_draft(self, output: NodesRequest, time: str, traceparent: bytes | None) -> Draft:
        body = output.body
        return draft(
            Topic.TOOLS_REQUESTS,
            body,
            key=body.job_id,
            id=derived("request", body.job_id, body.nodes[0], str(body.revision), str(body.as_of)),
            source=SOURCE,
            time=time,
            subject=body.nodes[0],
            traceparent=traceparent,
            partition=self._partition,
        )

    def _index_draft(self, output: IndexUpdate, time: str) -> Draft:
        """In the partition that the key's hash names, as of any table."""
        entry = output.entry
        place = self._placements.stands(entry.job_id)
        sealed = ("sealed",) if entry.stretches else ()
        return draft(
            Topic.JOBS_INDEX,
            entry if place is None else entry.model_copy(update={"partition": place}),
            key=entry.job_id,
            id=derived("index", entry.job_id, entry.status, *sealed),
            source=SOURCE,
            time=time,
        )

    def _told_draft(self, output: Tell, time: str) -> Draft:
        said = output.command
        place = self._placements.named(said.job_id)
        id_ = tell_id(output)
        return draft(Topic.JOBS_COMMANDS, said, key=said.job_id, id=id_, source=SOURCE, time=time, partition=place)

    def _placed_draft(self, output: Place, time: str) -> Draft:
        """Of the partition, and of no job: no job has such a key."""
        said = output.barrier
        return draft(
            Topic.JOBS_EVENTS,
            said,
            key=said.job_id,
            id=derived(said.type_name, *said.cause, str(self._partition)),
            source=SOURCE,
            time=time,
            partition=self._partition,
        )


def _behind_draft(output: Behind, time: str) -> Draft:
    entry = output.entry
    return draft(
        Topic.JOBS_INDEX,
        entry,
        key=JobBehind.key_of(entry.of_job),
        id=derived("behind", entry.of_job, str(entry.stretches[-1][1])),
        source=SOURCE,
        time=time,
    )
