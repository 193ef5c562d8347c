"""A job's events as lines of a log: what happened, to which step, by whom and why; no arguments and no results."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aetheris.cli.console import CommandError, Exit, progress
from aetheris.cli.embedded.errors import NotRunningError
from aetheris.cli.gateway import connected
from aetheris.cli.job_ids import whole_id
from aetheris.cli.loglines import LogLine
from aetheris.protocol.base.keys import trace_id
from aetheris.protocol.fold.job_log import moment_of
from aetheris.sdk.client import JobEvent

_FACTS = (
    "node_id",
    "tool_name",
    "attempt",
    "attempt_id",
    "revision",
    "number",
    "outcome",
    "result_type",
    "via",
    "how",
    "answer",
    "reason",
    "detail",
    "error_class",
    "error",
    "rule",
    "decision",
    "approver",
    "by",
    "wait_type",
    "correlation_key",
    "due_at",
    "since",
    "compensates",
    "mode",
    "external_id",
    "worker_id",
    "event_count",
)
"""What a line says of an event, where the event says it. What a person wrote in comments stays out, as payloads do."""
_PARTS = {"tool_executor": "executor"}
"""Service → what its process is called in a data folder, where that is not its own name."""
_WARNINGS = frozenset(
    {"invocation_in_doubt", "invocation_parked", "invocation_rejected", "worker_ended", "job_stopping"}
)
_ERRORS = frozenset({"job_failed", "violation_found", "confirmation_failed"})
_BAD_ENDS = frozenset({"retryable_failure", "permanent_failure"})


_AWAY = frozenset({Exit.UNREACHABLE, Exit.UNKNOWN_JOB})
_PAGE = 10_000


class JobEvents:
    """A job's events as its gateway gives them, read on as they come; none, said once, where it gives none."""

    def __init__(self, data: Path, job_id: str, part: str | None) -> None:
        self.job_id = job_id
        """The id that was given; the whole one as soon as a gateway has said it."""
        self._data = data
        self._part = part or ""
        self._lines = EventLines()
        self._found = False
        self._left_out = False
        self._last = 0

    def more(self) -> Iterator[LogLine]:
        """Those that have come since, of the part that is asked for.

        Raises:
            CommandError: several jobs begin so.
        """
        try:
            with connected(self._data) as client:
                if not self._found:
                    self.job_id = whole_id(client, self.job_id)
                self._found = True
                page = _PAGE
                while page == _PAGE:
                    events = client.events(self.job_id, after=self._last, limit=_PAGE)
                    page = len(events)
                    self._last = events[-1].seq if events else self._last
                    lines = map(self._lines.line, events)
                    yield from (line for line in lines if line.part.startswith(self._part))
        except NotRunningError as error:
            self._leave_out(error.message)
        except CommandError as error:
            if error.ends not in _AWAY:
                raise
            self._leave_out(error.message)

    def _leave_out(self, why: str) -> None:
        if not self._left_out:
            progress(self.job_id, f"without its events: {why}")
        self._left_out = True


class EventLines:
    """Turns a job's events into lines, in their order; remembers when each try began."""

    def __init__(self) -> None:
        self._began: dict[str, datetime] = {}

    def line(self, event: JobEvent) -> LogLine:
        """The line of the service that wrote it, with how long a try took, as far as its writers' clocks tell."""
        data: Mapping[str, Any] = event.data if isinstance(event.data, dict) else {}
        service = event.source.rpartition("/")[2]
        level = "warning" if event.void else _level(event.type, data)
        body: dict[str, Any] = {"service": service, "level": level, "event": event.type}
        body["job_id"] = data.get("job_id", "")
        body |= {name: data[name] for name in _FACTS if isinstance(data.get(name), str | int | float)}
        body |= {"void": True} if event.void else self._took(event, data)
        key = data.get("idempotency_key")
        if isinstance(key, str):
            body["trace_id"] = trace_id(key)
        time = _comparable(event.time)
        return LogLine(_PARTS.get(service, service), time, event.type, {**body, "seq": event.seq, "timestamp": time})

    def _took(self, event: JobEvent, data: Mapping[str, Any]) -> dict[str, int]:
        name, at = data.get("invocation_id"), moment_of(event.time)
        if not isinstance(name, str) or at is None:
            return {}
        if event.type == "tool_invocation_started":
            self._began[name] = at
        elif event.type == "tool_invocation_finished" and name in self._began:
            return {"took_ms": round((at - self._began.pop(name)).total_seconds() * 1000)}
        return {}


def _level(kind: str, data: Mapping[str, Any]) -> str:
    if kind in _ERRORS:
        return "error"
    return "warning" if kind in _WARNINGS or data.get("outcome") in _BAD_ENDS else "info"


def _comparable(time: str) -> str:
    """As the services write their times, so that both can be ordered."""
    moment = moment_of(time)
    return time if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
