"""Replay: a job's states again, at any point of its log, with every result injected and nothing called."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import LoggedEvent, logged_events, moment_of
from aetheris.protocol.fold.state import IN_FLIGHT, JobState
from aetheris.protocol.messages import events as ev
from aetheris.views.job_history import DONE, Blobs, HistoryEntry, JobHistory, about
from aetheris.views.standing import job_status, job_view, step_view

_QUIET = (ev.ToolInvocationStarted, ev.ToolInvocationFinished, ev.CommandCommitted, ev.StateChanged, ev.NodeFinished)
"""Facts that move a job only where it waited; asking after each of a long job's is not cheap."""


class UnknownPoint(ValueError):
    """What names no event of the job, no number and no time."""

    code = "unknown_point"


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One event of a replay, and what it changed: step or job → what it is now."""

    moment: HistoryEntry
    changes: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """{seq, id, type, time, offset, counts, changes}."""
        return {**self.moment.logged.named(), "counts": self.moment.counts, "changes": self.changes}


class Replay:
    """One replay of one job."""

    def __init__(self, blobs: Blobs | None = None) -> None:
        self.history = JobHistory(blobs if blobs is not None else {})
        self._states: dict[str, str] = {}

    def take(self, logged: LoggedEvent) -> ReplayStep:
        """Inject the next event."""
        moment = self.history.take(logged)
        return ReplayStep(moment, self._changes(logged) if moment.counts else {})

    def report(self) -> dict[str, Any]:
        """Where the job stands now, and what differs from the record; {} before its birth."""
        history = self.history
        if history.job is None or history.created is None:
            return {}
        state = state_of(history.job, history.created.time)
        return {
            "job_id": history.job.job_id,
            "ok": not history.differences,
            "at": history.moments[-1].logged.named(),
            "events": len(history.moments),
            "injected": dict(sorted(Counter(row["kind"] for row in history.effects.rows if row["stands"]).items())),
            "unchecked": history.unchecked,
            "differences": [one.to_json() for one in history.differences],
            "state_hash": digest(state),
            "state": state,
        }

    def _changes(self, logged: LoggedEvent) -> dict[str, str]:
        job, node_id = self.history.job, about(logged.event)
        if job is None:
            return {}
        now: dict[str, str] = {}
        entry = job.entry(node_id) if node_id is not None else None
        if entry is not None:
            now[entry.node.id] = _shown(step_view(job, entry))
        if not isinstance(logged.event, _QUIET) or self._states.get("") == "waiting":
            now[""] = job_status(job)
        changed = {name: value for name, value in now.items() if self._states.get(name) != value}
        self._states |= changed
        return {name or "job": value for name, value in changed.items()}


def replay(
    records: Iterable[Record], to: str | None = None, blobs: Blobs | None = None
) -> tuple[Replay, list[ReplayStep]]:
    """The replay of a job up to a point (default: its end), and its steps.

    Raises:
        UnknownPoint: `to` names nothing in the job.
    """
    reported = list(logged_events(records))
    found = Replay(blobs)
    return found, [found.take(one) for one in reported[: upto(reported, to)]]


def upto(reported: Sequence[LoggedEvent], point: str | None) -> int:
    """How many events lie before, or at, a point: an event's id, its number, or a time (RFC 3339).

    A time stands for everything before the first event that was written later.

    Raises:
        UnknownPoint.
    """
    if point is None:
        return len(reported)
    for index, one in enumerate(reported):
        if one.id == point or (one.sequence is not None and str(one.sequence) == point):
            return index + 1
    moment = moment_of(point)
    if moment is None:
        raise UnknownPoint(f"{point}: neither the id nor the number of an event of this job, nor a time (RFC 3339)")
    count = next((index for index, one in enumerate(reported) if _is_later(one, moment)), len(reported))
    if count == 0:
        raise UnknownPoint(f"{point}: the job was created later")
    return count


def state_of(job: JobState, created_at: str) -> dict[str, Any]:
    """How a job stands: as the API shows it, with its plan, what is done and what is open."""
    return {
        **job_view(job, created_at),
        "revision": job.revision,
        "plan_hash": job.plan_hash if job.plan_hashes else "",
        "done": [node_id for node_id, one in job.finished.items() if one.result_type in DONE],
        "open": [key for key, state in job.keys.items() if state.status in IN_FLIGHT],
    }


def _shown(step: dict[str, Any]) -> str:
    invocations = f", try {step['attempts']}" if step["attempts"] > 1 else ""
    text = f" ({step['result_type']})" if "result_type" in step else ""
    return f"{step['state']}{text}{invocations}"


def _is_later(logged: LoggedEvent, moment: datetime) -> bool:
    written = moment_of(logged.time)
    return written is not None and written > moment
