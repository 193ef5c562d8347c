"""Events as the API shows them, and the names that event streams give them."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from aetheris.protocol.records import Record

SSE_NAMES: Mapping[str, str] = {
    "job_created": "status",
    "plan_generated": "status",
    "job_waiting": "status",
    "wait_completed": "status",
    "cancel_requested": "status",
    "job_stopping": "status",
    "tool_invocation_finished": "tool_result",
    "job_completed": "done",
    "job_cancelled": "done",
    "job_failed": "error",
}
"""event_type → the name that an SSE client listens to; the others come as `message`."""


class Sequence:
    """A job's records in order, numbered from 1; a record that repeats an event_id has no number."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.last = 0

    def number(self, record: Record) -> int | None:
        """The record's place among the job's events; None for a repeat."""
        event_id = _text(record.header("ce_id")) or f"{record.partition}:{record.offset}"
        if event_id in self._seen:
            return None
        self._seen.add(event_id)
        self.last += 1
        return self.last


def event_view(sequence: int, record: Record) -> dict[str, Any]:
    """An event as clients get it: its envelope, and its payload under `data`."""
    return {
        "seq": sequence,
        "id": _text(record.header("ce_id")),
        "type": event_type_of(record),
        "time": _text(record.header("ce_time")),
        "source": _text(record.header("ce_source")),
        "subject": _text(record.header("ce_subject")),
        "partition": record.partition,
        "offset": record.offset,
        "data": payload_of(record),
    }


def event_type_of(record: Record) -> str:
    """The snake_case name in ce_type; empty where there is none."""
    parts = _text(record.header("ce_type")).split(".")
    return parts[2] if len(parts) == 4 else ""


def _text(header: bytes | None) -> str:
    return (header or b"").decode(errors="replace")


def payload_of(record: Record) -> Any:
    """The payload as JSON, or its bytes."""
    try:
        return json.loads(record.value)
    except (ValueError, RecursionError):
        return {"$raw": base64.b64encode(record.value).decode()}
