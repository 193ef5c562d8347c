"""A job's whole course: its events folded, the calls that it made derived anew, what differs from the record.

Nothing is executed: results are injected from the log (docs/replay.md).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.canonical import InvalidArgs, digest
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.fold.job_log import Told, fold_event, step_indexes, tell
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.fold.state import JobState, KeyState, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectClass, dependencies
from aetheris.protocol.planning.invocation import Invocation, NotReady, invocation
from aetheris.protocol.planning.turns import may_go_without
from aetheris.protocol.views.effect_log import EffectLog

DONE = frozenset({"success", "side_effect_committed", "compensated"})

Blobs = Mapping[str, Any]
"""sha256 → a large result; KeyError for what is not here."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that replay derives otherwise than it was recorded."""

    rule: str
    told: Told
    message: str

    def to_json(self) -> dict[str, Any]:
        """{rule, event_id, offset, message}, as violations have it."""
        offset = self.told.record.offset
        return {"rule": self.rule, "event_id": self.told.id, "offset": offset, "message": self.message}


@dataclass(frozen=True, slots=True)
class Moment:
    """An event, and whether it counts: a void one changed nothing."""

    told: Told
    counts: bool


@dataclass(slots=True)
class Course:
    """Takes a job's events one after another."""

    blobs: Blobs = field(default_factory=dict)
    job: JobState | None = None
    moments: list[Moment] = field(default_factory=list)
    of_key: dict[str, list[Moment]] = field(default_factory=dict)
    plans: dict[int, Told] = field(default_factory=dict)
    created: Told | None = None
    calls: dict[str, Invocation] = field(default_factory=dict)
    """idempotency_key → the call, its arguments resolved from injected results."""
    differences: list[Difference] = field(default_factory=list)
    unchecked: int = 0
    """Calls that could not be derived: a large result is not here."""
    effects: EffectLog = field(default_factory=EffectLog)
    _order: Mapping[str, int] = field(default_factory=dict)

    def take(self, told: Told) -> Moment:
        """The next event."""
        found = [] if self.job is None else list(self._compare(self.job, told))
        self.job, counts = fold_event(self.job, told.said, told.record.offset)
        if counts:
            self.differences.extend(found)
            self._keep(told)
        if self.job is not None:
            self.effects.take(self.job, told, counts=counts)
        moment = Moment(told, counts or self._informs(told))
        self.moments.append(moment)
        if isinstance(told.said, ev.KeyEvent | ev.WaitCompleted) and told.said.idempotency_key is not None:
            self.of_key.setdefault(told.said.idempotency_key, []).append(moment)
        return moment

    def _informs(self, told: Told) -> bool:
        """A fact that no rule reads counts once; a commit only where its finished does."""
        if told.sequence is None or told.record.header("ce_type") not in UNREAD:
            return False
        said = told.said
        return not isinstance(said, ev.CommandCommitted) or self.effects.knows(said.idempotency_key)

    def _keep(self, told: Told) -> None:
        if isinstance(told.said, ev.JobCreated):
            self.created = told
        elif isinstance(told.said, ev.PlanGenerated) and self.job is not None:
            self.plans[told.said.revision] = told
            self._order = step_indexes(self.job)

    def _compare(self, job: JobState, told: Told) -> Iterator[Difference]:
        """What this event says otherwise than it follows from those before it."""
        match told.said:
            case ev.PlanGenerated() as said:
                yield from _plan(told, said)
            case ev.ToolInvocationStarted() as said:
                yield from self._call(job, told, said)
            case ev.ToolInvocationFinished() as said if said.outcome.took_effect and said.result_ref is None:
                if _hash(said.result) != said.output_hash:
                    yield Difference("result_differs", told, f"the result of {said.node_id} hashes to something else")
            case ev.NodeFinished() as said:
                yield from self._node(job, told, said)
            case ev.JobCompleted():
                missing = [node for node in job.entries if not (_is_done(job, node) or _gone_without(job, node))]
                if missing and job.terminal is None:
                    yield Difference("incomplete", told, f"the job is completed, but {missing[0]} is not done")
            case _:
                pass

    def _call(self, job: JobState, told: Told, said: ev.ToolInvocationStarted) -> Iterator[Difference]:
        entry = job.entry(said.node_id)
        if entry is None:
            return
        try:
            call = invocation(job, entry, self.blobs)
        except KeyError:
            self.unchecked += 1
            return
        except (NotReady, UnresolvedReference, InvalidArgs):
            yield Difference("call_differs", told, f"the call of {said.node_id} does not follow from what was recorded")
            return
        recorded = (said.idempotency_key, said.args_hash, said.content_key, said.tool_name, said.tool_version)
        derived = (call.key, call.args_hash, call.content_key, entry.node.tool_name, entry.tool_version)
        if recorded != derived:
            yield Difference("call_differs", told, f"replay derives another call of {said.node_id}")
        else:
            self.calls[said.idempotency_key] = call

    def _node(self, job: JobState, told: Told, said: ev.NodeFinished) -> Iterator[Difference]:
        settled = job.settled_key(said.node_id)
        if said.result_type == "compensated" or settled is None:
            return
        entry = job.entry(said.node_id)
        derived = _result_type(settled[1], entry.effect_class if entry is not None else EffectClass.PURE)
        if said.result_type != derived:
            yield Difference("result_type_differs", told, f"{said.node_id} is {said.result_type}, replayed {derived}")
        if settled[1].outcome is Settled.SUCCESS and said.output_hash != settled[1].result_hash:
            yield Difference("output_differs", told, f"{said.node_id} carries another result than was injected")
        if said.step_index != self._order.get(said.node_id):
            yield Difference("step_index_differs", told, f"{said.node_id} has another place in the plan")


def course_of(records: Iterable[Record], blobs: Blobs | None = None) -> Course:
    """The course of a job, from its records in log order."""
    course = Course(blobs if blobs is not None else {})
    for told in tell(records):
        course.take(told)
    return course


def about(event: Event | Any) -> str | None:
    """The node that an event is about."""
    node_id = getattr(event, "node_id", None)
    return node_id if isinstance(node_id, str) else None


def _plan(told: Told, said: ev.PlanGenerated) -> Iterator[Difference]:
    part = said.task_graph if said.revision == 0 else said.diff
    if _hash(part) != said.plan_hash:
        yield Difference("plan_hash_differs", told, f"revision {said.revision} hashes to something else")


def _is_done(job: JobState, node_id: str) -> bool:
    finished = job.finished.get(node_id)
    return finished is not None and finished.result_type in DONE


def _gone_without(job: JobState, node_id: str) -> bool:
    """A model's call that failed surely, and that nothing of the last plan needs."""
    if not may_go_without(job, node_id) or node_id not in job.finished:
        return False
    return not any(node_id in dependencies(entries[-1].node) for entries in job.entries.values())


def _result_type(state: KeyState, effect_class: EffectClass) -> str:
    if state.outcome is not Settled.SUCCESS:
        return ev.Outcome.PERMANENT
    if effect_class is EffectClass.PURE:
        return "success"
    return ev.Outcome.COMPENSATABLE if state.partial else "side_effect_committed"


def _hash(value: Any) -> str:
    try:
        return digest(value)
    except InvalidArgs:
        return ""
