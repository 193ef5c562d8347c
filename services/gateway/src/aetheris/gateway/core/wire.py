"""Events as the API shows them, and the names that event streams give them."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from aetheris.protocol.job_log import event_type_of, text_of
from aetheris.protocol.records import Record

SSE_NAMES: Mapping[str, str] = {
    "job_created": "status",
    "plan_generated": "status",
    "job_waiting": "status",
    "wait_completed": "status",
    "cancel_requested": "status",
    "job_stopping": "status",
    "approval_requested": "ecs",
    "tool_invocation_finished": "tool_result",
    "job_completed": "done",
    "job_cancelled": "done",
    "job_failed": "error",
}
"""event_type → the name that an SSE client listens to; the others come as `message`."""

EXECUTION_STATE = "execution_state"
"""The name of a contract's move, which is told beside the event that it follows from."""


def sse_name(event_type: str, data: Any) -> str | None:
    """The name of an event in a stream; a form of the plan is one to answer, as a request for an approval is; what a
    model said is text."""
    if event_type == "job_waiting" and isinstance(data, dict) and "form" in data:
        return "ecs"
    if event_type == "tool_invocation_finished" and isinstance(data, dict) and "usage" in data:
        return "text"
    return SSE_NAMES.get(event_type)


def event_view(sequence: int, record: Record) -> dict[str, Any]:
    """An event as clients get it: its envelope, and its payload under `data`."""
    return {
        "seq": sequence,
        "id": text_of(record.header("ce_id")),
        "type": event_type_of(record),
        "time": text_of(record.header("ce_time")),
        "source": text_of(record.header("ce_source")),
        "subject": text_of(record.header("ce_subject")),
        "partition": record.partition,
        "offset": record.offset,
        "data": payload_of(record),
    }


def payload_of(record: Record) -> Any:
    """The payload as JSON, or its bytes."""
    try:
        return json.loads(record.value)
    except (ValueError, RecursionError):
        return {"$raw": base64.b64encode(record.value).decode()}
