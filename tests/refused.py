"""Keeps a history that must be refused: `keep(log.records, "rule")` writes it to the folder `refused`."""

import base64
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from aetheris.proofs import RawRecord, verify
from aetheris.proofs.trust import TrustedKey

FOLDER = Path(__file__).parent / "replay" / "refused"


def keep(records: Sequence[RawRecord], rule: str, keys: Iterable[TrustedKey] = ()) -> Path:
    """Write a stream that breaks a rule, with the event that breaks it and the reason in its first line."""
    trusted = list(keys)
    broken = next(one for one in verify(records, keys=trusted).violations if one.rule == rule)
    head = {
        "format": "aetheris-stream",
        "version": 1,
        "job_id": (records[0].key or b"").decode() if records else "",
        "keys": [key.to_json() for key in trusted],
        "records": len(records),
        "refused": broken.to_json(),
    }
    path = FOLDER / f"{rule}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *map(_json, records))))
    return path


def _json(record: RawRecord) -> dict[str, Any]:
    headers = [[name, _base64(value)] for name, value in record.headers]
    key = None if record.key is None else _base64(record.key)
    return {"offset": record.offset, "key": key, "headers": headers, "value": _base64(record.value)}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
