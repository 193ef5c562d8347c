"""One byte of an exported stream, changed (docs/demo.md)."""

import base64
import json
from dataclasses import dataclass, replace

from aetheris.cli.streamfile import Stream
from aetheris.proofs import ProofReport, RawRecord, Violation, verify


@dataclass(frozen=True)
class Forgery:
    """A stream in which one byte of one event's value is another."""

    stream: Stream
    event_id: str
    was: str
    now: str


def forge(stream: Stream, event_type: str, node_id: str, amount: int) -> Forgery:
    """Change the first digit of the amount in the node's event: one byte, and still good JSON.

    Raises:
        LookupError: there is no such event.
    """
    text = str(amount).encode()
    at, found = _find(stream, event_type, node_id, text)
    digit = b"%d" % (int(text[:1]) % 9 + 1)
    place = found.value.rindex(text)
    value = found.value[:place] + digit + found.value[place + 1 :]
    records = [dict(record) for record in stream.records]
    records[at]["value"] = base64.b64encode(value).decode()
    forged = replace(stream, records=tuple(records))
    return Forgery(forged, found.header("ce_id").decode(), text.decode(), (digit + text[1:]).decode())


def judge(stream: Stream) -> ProofReport:
    """Verify it here: nothing is asked but the records."""
    return verify(stream.raw(), keys=stream.keys)


def complaint(report: ProofReport, event_id: str) -> Violation | None:
    """What the report has against that event, be it that its writer did not sign it; None if it doesn't name it."""
    found = (*report.violations, *report.unproven)
    return next((broken for broken in found if broken.event_id == event_id), None)


def _find(stream: Stream, event_type: str, node_id: str, text: bytes) -> tuple[int, RawRecord]:
    wanted = f"io.aetheris.{event_type}.v1".encode()
    for at, record in enumerate(stream.raw()):
        of_type = record.header("ce_type") == wanted and text in record.value
        if of_type and json.loads(record.value).get("node_id") == node_id:
            return at, record
    raise LookupError(f"no {event_type} of {node_id}")
