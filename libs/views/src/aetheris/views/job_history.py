"""A job's whole history: its events folded, the calls that it made derived anew, what differs from the record.

Nothing is executed: results are injected from the log (docs/replay.md).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.canonical import InvalidArgs, digest
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.fold.job_log import LoggedEvent, fold_event, logged_events
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.fold.state import JobState, KeyState, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.planning.invocation import Invocation, NotReady, invocation
from aetheris.protocol.planning.turns import gone_without
from aetheris.views.effect_log import EffectLog

DONE = frozenset({"success", "side_effect_committed", "compensated"})

Blobs = Mapping[str, Any]
"""sha256 → a large result; KeyError for what is not here."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that replay derives otherwise than it was recorded."""

    rule: str
    logged: LoggedEvent
    message: str

    def to_json(self) -> dict[str, Any]:
        """{rule, event_id, offset, message}, as violations have it."""
        offset = self.logged.record.offset
        return {"rule": self.rule, "event_id": self.logged.id, "offset": offset, "message": self.message}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An event, and whether it counts: a void one changed nothing."""

    logged: LoggedEvent
    counts: bool


@dataclass(slots=True)
class JobHistory:
    """Takes a job's events one after another."""

    blobs: Blobs = field(default_factory=dict)
    job: JobState | None = None
    moments: list[HistoryEntry] = field(default_factory=list)
    by_key: dict[str, list[HistoryEntry]] = field(default_factory=dict)
    plans: dict[int, LoggedEvent] = field(default_factory=dict)
    created: LoggedEvent | None = None
    calls: dict[str, Invocation] = field(default_factory=dict)
    """idempotency_key → the call, its arguments resolved from injected results."""
    differences: list[Difference] = field(default_factory=list)
    unchecked: int = 0
    """Calls that could not be derived: a large result is not here."""
    effects: EffectLog = field(default_factory=EffectLog)

    def take(self, logged: LoggedEvent) -> HistoryEntry:
        """The next event."""
        found = [] if self.job is None else list(self._compare(self.job, logged))
        self.job, counts = fold_event(self.job, logged.event, logged.record.offset)
        if counts:
            self.differences.extend(found)
            self._keep(logged)
        if self.job is not None:
            self.effects.take(self.job, logged, counts=counts)
        moment = HistoryEntry(logged, counts or self._informs(logged))
        self.moments.append(moment)
        if isinstance(logged.event, ev.KeyEvent | ev.WaitCompleted) and logged.event.idempotency_key is not None:
            self.by_key.setdefault(logged.event.idempotency_key, []).append(moment)
        return moment

    def _informs(self, logged: LoggedEvent) -> bool:
        """A fact that no rule reads counts once; a commit only where its finished does."""
        if logged.sequence is None or logged.record.header("ce_type") not in UNREAD:
            return False
        event = logged.event
        return not isinstance(event, ev.CommandCommitted) or self.effects.knows(event.idempotency_key)

    def _keep(self, logged: LoggedEvent) -> None:
        if isinstance(logged.event, ev.JobCreated):
            self.created = logged
        elif isinstance(logged.event, ev.PlanGenerated) and self.job is not None:
            self.plans[logged.event.revision] = logged

    def _compare(self, job: JobState, logged: LoggedEvent) -> Iterator[Difference]:
        """What this event says otherwise than it follows from those before it."""
        match logged.event:
            case ev.PlanGenerated() as event:
                yield from _plan(logged, event)
            case ev.ToolInvocationStarted() as event:
                yield from self._call(job, logged, event)
            case ev.ToolInvocationFinished() as event if event.outcome.took_effect and event.result_ref is None:
                if _hash(event.result) != event.output_hash:
                    yield Difference(
                        "result_differs", logged, f"the result of {event.node_id} hashes to something else"
                    )
            case ev.NodeFinished() as event:
                yield from self._node(job, logged, event)
            case ev.JobCompleted():
                missing = [node for node in job.entries if not (_is_done(job, node) or _may_lack(job, node))]
                if missing and job.terminal is None:
                    yield Difference("incomplete", logged, f"the job is completed, but {missing[0]} is not done")
            case _:
                pass

    def _call(self, job: JobState, logged: LoggedEvent, event: ev.ToolInvocationStarted) -> Iterator[Difference]:
        entry = job.entry(event.node_id)
        if entry is None:
            return
        try:
            call = invocation(job, entry, self.blobs)
        except KeyError:
            self.unchecked += 1
            return
        except (NotReady, UnresolvedReference, InvalidArgs):
            yield Difference(
                "call_differs", logged, f"the call of {event.node_id} does not follow from what was recorded"
            )
            return
        recorded = (event.idempotency_key, event.args_hash, event.content_key, event.tool_name, event.tool_version)
        derived = (call.key, call.args_hash, call.content_key, entry.node.tool_name, entry.tool_version)
        if recorded != derived:
            yield Difference("call_differs", logged, f"replay derives another call of {event.node_id}")
        else:
            self.calls[event.idempotency_key] = call

    def _node(self, job: JobState, logged: LoggedEvent, event: ev.NodeFinished) -> Iterator[Difference]:
        settled = job.settled_key(event.node_id)
        if event.result_type == "compensated" or settled is None:
            return
        entry = job.entry(event.node_id)
        derived = _result_type(settled[1], entry.effect_class if entry is not None else EffectClass.PURE)
        if event.result_type != derived:
            yield Difference(
                "result_type_differs", logged, f"{event.node_id} is {event.result_type}, replayed {derived}"
            )
        if settled[1].outcome is Settled.SUCCESS and event.output_hash != settled[1].result_hash:
            yield Difference("output_differs", logged, f"{event.node_id} carries another result than was injected")
        if event.step_index != job.places.get(event.node_id):
            yield Difference("step_index_differs", logged, f"{event.node_id} has another place in the plan")


def job_history(records: Iterable[Record], blobs: Blobs | None = None) -> JobHistory:
    """The history of a job, from its records in log order."""
    history = JobHistory(blobs if blobs is not None else {})
    for logged in logged_events(records):
        history.take(logged)
    return history


def about(event: Event | Any) -> str | None:
    """The node that an event is about."""
    node_id = getattr(event, "node_id", None)
    return node_id if isinstance(node_id, str) else None


def _plan(logged: LoggedEvent, event: ev.PlanGenerated) -> Iterator[Difference]:
    part = event.task_graph if event.revision == 0 else event.diff
    if _hash(part) != event.plan_hash:
        yield Difference("plan_hash_differs", logged, f"revision {event.revision} hashes to something else")


def _is_done(job: JobState, node_id: str) -> bool:
    finished = job.finished.get(node_id)
    return finished is not None and finished.result_type in DONE


def _may_lack(job: JobState, node_id: str) -> bool:
    """A call that a model, or code, goes on without; what became of code's own is told if it has begun."""
    entry = job.entry(node_id)
    if entry is None or entry.call is None:
        return gone_without(job, node_id)
    return node_id in job.finished or not any(job.keys[key].invocations for key in job.node_keys.get(node_id, ()))


def _result_type(state: KeyState, effect_class: EffectClass) -> str:
    if state.outcome is not Settled.SUCCESS:
        return Outcome.PERMANENT
    if effect_class is EffectClass.PURE:
        return "success"
    return Outcome.COMPENSATABLE if state.partial else "side_effect_committed"


def _hash(value: Any) -> str:
    try:
        return digest(value)
    except InvalidArgs:
        return ""
