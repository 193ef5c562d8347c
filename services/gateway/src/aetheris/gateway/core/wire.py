"""Events as the API shows them, and the names that event streams give them."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import LoggedEvent, event_type_of, text_of
from aetheris.protocol.messages.events import JobWaiting, ToolInvocationFinished
from aetheris.views.contracts import Transition

SSE_NAMES: Mapping[str, str] = {
    "job_created": "status",
    "plan_generated": "status",
    "job_waiting": "status",
    "wait_completed": "status",
    "job_paused": "status",
    "job_resumed": "status",
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


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Moved:
    """An event of a job with its place in it, from 1, and the moves of contracts that follow from it."""

    sequence: int
    logged: LoggedEvent
    moves: Sequence[Transition] = ()


def sse_bytes(event: Moved) -> bytes:
    """One event of a stream, behind the moves that follow from it.

    The moves have no id: whoever lost the connection between them and their event gets both again.
    """
    name = sse_name(event.logged)
    named = b"event: %b\n" % name.encode() if name is not None else b""
    view = b"%bdata: %b\nid: %d\n\n" % (named, event_json(event.sequence, event.logged), event.sequence)
    return b"".join((*(_move_bytes(event.sequence, move) for move in event.moves), view))


def sse_name(logged: LoggedEvent) -> str | None:
    """The name of an event in a stream; none for what is void.

    A form of the plan is one to answer, as a request for an approval is; what a model said is text.
    """
    if logged.is_void:
        return None
    if isinstance(logged.event, JobWaiting) and logged.event.form is not None:
        return "ecs"
    if isinstance(logged.event, ToolInvocationFinished) and logged.event.usage is not None:
        return "text"
    return SSE_NAMES.get(logged.type)


def event_json(sequence: int, logged: LoggedEvent) -> bytes:
    """An event's view as one line of JSON: its payload as it lies in the log, where it was decoded from there."""
    value = logged.record.value
    if not logged.is_void and b"\n" not in value and b"\r" not in value:
        return b'%b,"data":%b}' % (_encode(_envelope(sequence, logged.record))[:-1].encode(), value)
    return json.dumps(event_view(sequence, logged), separators=(",", ":")).encode()


def _move_bytes(sequence: int, moved: Transition) -> bytes:
    named = {"seq": sequence, "execution_id": moved.execution_id, "node_id": moved.node_id}
    return b"event: %b\ndata: %b\n\n" % (EXECUTION_STATE.encode(), _encode(named | moved.view()).encode())


def event_view(sequence: int, logged: LoggedEvent) -> dict[str, Any]:
    """An event as clients get it: its envelope, `void` where it is, and its payload under `data`."""
    return told(sequence, logged.record, is_void=logged.is_void)


def told(sequence: int, record: Record, *, is_void: bool) -> dict[str, Any]:
    """As `event_view`, of a record that was judged before."""
    void = {"void": True} if is_void else {}
    return {**_envelope(sequence, record), **void, "data": payload_of(record)}


def record_view(sequence: int, record: Record) -> dict[str, Any]:
    """A record as it lies in the log, its bytes in base64 as they need not be text."""
    return {
        "seq": sequence,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _base64(record.key) if record.key is not None else None,
        "headers": [[name, _base64(value)] for name, value in record.headers],
        "value": _base64(record.value),
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _envelope(sequence: int, record: Record) -> dict[str, Any]:
    return {
        "seq": sequence,
        "id": text_of(record.header("ce_id")),
        "type": event_type_of(record),
        "time": text_of(record.header("ce_time")),
        "source": text_of(record.header("ce_source")),
        "subject": text_of(record.header("ce_subject")),
        "partition": record.partition,
        "offset": record.offset,
    }


def payload_of(record: Record) -> Any:
    """The payload as JSON, or its bytes."""
    try:
        return json.loads(record.value)
    except (ValueError, RecursionError):
        return {"$raw": _base64(record.value)}
