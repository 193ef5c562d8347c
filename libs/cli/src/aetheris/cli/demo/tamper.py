"""An exported stream: written to a file, verified without the system, and with one byte changed (docs/demo.md)."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from aetheris.proofs import RawRecord, Report, Violation, verify


@dataclass(frozen=True)
class Stream:
    """A job's records as they lay in the log, and the keys whose seals are taken."""

    records: tuple[RawRecord, ...]
    public_keys: tuple[Ed25519PublicKey, ...]

    @staticmethod
    def read(path: Path) -> "Stream":
        """What the verifier's `/jobs/{job_id}/stream` said.

        Raises:
            OSError, ValueError, KeyError: it is no such file.
        """
        content: Mapping[str, Any] = json.loads(path.read_bytes())
        keys = [load_pem_public_key(pem.encode()) for pem in content["public_keys"]]
        records = tuple(_record(raw) for raw in content["records"])
        return Stream(records, tuple(key for key in keys if isinstance(key, Ed25519PublicKey)))

    def verify(self) -> Report:
        """Nothing but the records is asked."""
        return verify(self.records, public_keys=self.public_keys)


@dataclass(frozen=True)
class Forgery:
    """A stream in which one byte of one event is another."""

    stream: Stream
    event_id: str
    was: bytes
    now: bytes


def forge(stream: Stream, event_type: str, node_id: str, text: bytes) -> Forgery:
    """Raise the first digit of `text` in the node's event: one byte, and it is still JSON.

    Raises:
        LookupError: there is no such event.
    """
    at = next(at for at, record in enumerate(stream.records) if _is(record, event_type, node_id, text))
    found = stream.records[at]
    digit = found.value.rindex(text)
    other = b"%d" % ((int(text[:1]) + 5) % 10 or 1)
    changed = replace(found, value=found.value[:digit] + other + found.value[digit + 1 :])
    records = (*stream.records[:at], changed, *stream.records[at + 1 :])
    return Forgery(replace(stream, records=records), found.header("ce_id").decode(), text, other + text[1:])


def named(report: Report, event_id: str) -> Violation | None:
    """What the report says of that event; None if it doesn't name it."""
    return next((broken for broken in report.violations if broken.event_id == event_id), None)


def _is(record: RawRecord, event_type: str, node_id: str, text: bytes) -> bool:
    if record.header("ce_type") != f"io.aetheris.{event_type}.v1".encode() or text not in record.value:
        return False
    return json.loads(record.value).get("node_id") == node_id


def _record(raw: Mapping[str, Any]) -> RawRecord:
    key = base64.b64decode(raw["key"]) if raw["key"] is not None else None
    headers = tuple((str(name), base64.b64decode(value)) for name, value in raw["headers"])
    return RawRecord(int(raw["offset"]), key, headers, base64.b64decode(raw["value"]))
