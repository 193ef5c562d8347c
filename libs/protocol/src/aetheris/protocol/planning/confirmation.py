"""Recorded effects to compare with the external system, and what the answers come to (docs/confirmation.md)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from aetheris.protocol.fold.job_log import LoggedEvent, fold_event
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.messages.event_values import Change, ConfirmationMode
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.planning.invocation import has_hidden

Verifies = Callable[[str, str], bool]
"""Whether a tool, by name and version, has a verifier."""

Verdict = Literal["confirmed", "drift", "unknown"]


@dataclass(frozen=True, slots=True)
class RecordedEffect:
    """A settled call, and what the external system should still show of it."""

    node_id: str
    key: str
    state: KeyState
    changes: tuple[Change, ...]

    @property
    def started(self) -> ev.ToolInvocationStarted | None:
        """The last `started` of the call."""
        return self.state.started


def recorded_effects(reported: Iterable[LoggedEvent]) -> tuple[JobState | None, list[RecordedEffect]]:
    """The job, and its effects in log order.

    A later change of the same resource takes the place of an earlier one; what was undone is not expected any more.
    """
    job: JobState | None = None
    unchanged: dict[str, str] = {}
    changed: dict[str, tuple[Change, ...]] = {}
    latest: dict[tuple[str, str], str] = {}
    for one in reported:
        if job is not None and isinstance(one.event, ev.StateChanged):
            key = unchanged.pop(one.event.node_id, None)
            if key is not None:
                changed[key] = one.event.changes
                latest.update({_resource(change): key for change in one.event.changes})
            continue
        before = _settled(job, one.event)
        job, _ = fold_event(job, one.event, one.record.offset)
        if isinstance(one.event, ev.ToolInvocationFinished) and not before and _settled(job, one.event):
            unchanged[one.event.node_id] = one.event.idempotency_key
    return job, list(_standing(job, changed, latest)) if job is not None else []


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question whether what a step did still stands, that no verifier has answered yet."""

    node_id: str
    """The step that it is about."""
    waits: str
    """The step that starts only when it is answered."""
    since: str | None
    """When it was asked first."""

    def __str__(self) -> str:
        asked = f"whether what {self.node_id} did still stands was asked first at {self.since}"
        return f"{self.waits} waits for a verifier: {asked}, and nobody has answered"


def unanswered(job: JobState) -> list[Unanswered]:
    """The questions that a job waits for since they were worth waiting for no longer."""
    if job.terminal is not None:
        return []
    waiting = [one for (wait_type, _), one in job.open_waits.items() if wait_type == "verifier"]
    # the step's name stands behind the place from which the job goes on
    return [Unanswered((one.correlation_key or "").partition(".")[2], one.node_id or "", one.since) for one in waiting]


def silent_effects(job: JobState, reported: Iterable[LoggedEvent]) -> list[str]:
    """The keys of calls that took effect, were not undone, and recorded no change that could be compared."""
    changed = {one.event.node_id for one in reported if isinstance(one.event, ev.StateChanged)}
    return [key for key, state in job.keys.items() if state.node_id not in changed and _took_effect(job, state)]


def _took_effect(job: JobState, state: KeyState) -> bool:
    entry, last = job.entry(state.node_id), job.finished.get(state.node_id)
    if entry is None or entry.effect_class is EffectClass.PURE or state.started is None:
        return False
    return state.outcome is Settled.SUCCESS and (last is None or last.result_type != "compensated")


def _settled(job: JobState | None, reported: object) -> bool:
    if job is None or not isinstance(reported, ev.ToolInvocationFinished):
        return False
    state = job.keys.get(reported.idempotency_key)
    return state is not None and state.status is KeyStatus.SETTLED and state.outcome is Settled.SUCCESS


def _standing(
    job: JobState, changed: dict[str, tuple[Change, ...]], latest: dict[tuple[str, str], str]
) -> Iterator[RecordedEffect]:
    for key, changes in changed.items():
        state = job.keys[key]
        last = job.finished.get(state.node_id)
        if last is not None and last.result_type == "compensated":
            continue
        stand = tuple(change for change in changes if latest[_resource(change)] == key)
        if stand:
            yield RecordedEffect(state.node_id, key, state, stand)


def _resource(change: Change) -> tuple[str, str]:
    return change.resource_type, change.resource_id


def to_ask(
    effects: Iterable[RecordedEffect], verifies: Verifies
) -> Iterator[tuple[RecordedEffect, ev.ToolInvocationStarted]]:
    """The effects whose tool can compare them with the external system."""
    for effect in effects:
        started = effect.started
        if started is not None and verifies(started.tool_name, started.tool_version):
            yield effect, started


def question(
    job: JobState,
    effect: RecordedEffect,
    started: ev.ToolInvocationStarted,
    *,
    ask: str,
    mode: ConfirmationMode,
    caused_by: str | None = None,
) -> Verification:
    """What the verifier is asked about one effect."""
    return Verification(
        job_id=job.job_id,
        birth=job.creation_offset,
        node_id=effect.node_id,
        idempotency_key=effect.key,
        invocation_id=effect.state.settled_by or started.invocation_id,
        external_key=started.external_key,
        tool_name=started.tool_name,
        tool_version=started.tool_version,
        ask=ask,
        what="confirm",
        mode=mode,
        caused_by=caused_by,
        hidden=has_hidden(job, effect.node_id),
        resources=tuple(change.model_dump(mode="json") for change in effect.changes),
    )


@dataclass(slots=True)
class Tally:
    """The answers to one question, as they come; a repeat changes nothing."""

    answered: dict[int, Verdict] = field(default_factory=dict)

    def take(self, answer: ev.EffectConfirmed | ev.ConfirmationFailed) -> Verdict | None:
        """Drift in one resource is drift; None while answers are missing. The first answer about a resource counts."""
        verdict: Verdict = "confirmed" if isinstance(answer, ev.EffectConfirmed) else answer.reason
        self.answered.setdefault(answer.place, verdict)
        if len(self.answered) < answer.of:
            return None
        verdicts = set(self.answered.values())
        return "drift" if "drift" in verdicts else "unknown" if "unknown" in verdicts else "confirmed"


Found = Literal["confirmed", "failed", "incomplete", "not_asked", "nothing_to_compare"]


def verdict(asked: int, confirmed: int, failed: int, unverifiable: int) -> Found:
    """The result of a reconciliation, in one word; where nothing could be asked, it tells nothing of the effects."""
    if asked == 0:
        return "not_asked" if unverifiable else "nothing_to_compare"
    if confirmed + failed < asked:
        return "incomplete"
    return "failed" if failed else "confirmed"
