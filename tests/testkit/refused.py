"""Keeps a history that must be refused: `keep(log.records, "rule")` writes it to the folder `refused`.

Large results lie in its folder `blobs`, as in the data folder of a system.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aetheris.proofs import RawRecord, verify
from aetheris.proofs.trust import TrustedKey

FOLDER = Path(__file__).parent.parent / "replay" / "refused"


class Blobs(Mapping[str, bytes]):
    """The large results that lie beside the streams: hex SHA-256 → bytes."""

    def __getitem__(self, sha256: str) -> bytes:
        try:
            return (FOLDER / "blobs" / sha256[:2] / sha256).read_bytes()
        except OSError:
            raise KeyError(sha256) from None

    def __iter__(self) -> Any:
        return (path.name for path in FOLDER.glob("blobs/*/*"))

    def __len__(self) -> int:
        return len(list(iter(self)))


def keep(records: Sequence[RawRecord], rule: str, keys: Iterable[TrustedKey] = ()) -> Path:
    """Write a stream that breaks a rule, with the event that breaks it and the reason in its first line."""
    trusted, blobs = list(keys), Blobs()
    report = verify(records, keys=trusted, load_blob=blobs.__getitem__)
    broken = next(one for one in report.violations if one.rule == rule)
    path = FOLDER / f"{rule}.jsonl"
    write(path, records, trusted, refused=broken.to_json())
    return path


def write(path: Path, records: Sequence[RawRecord], keys: Iterable[TrustedKey] = (), /, **head: Any) -> None:
    """A stream as `aetheris export --stream` writes it; `head`: more of its first line, or other than it is."""
    first = {
        "format": "aetheris-stream",
        "version": 1,
        "job_id": (records[0].key or b"").decode() if records else "",
        "keys": [key.to_json() for key in keys],
        "records": len(records),
    }
    path.write_text("".join(json.dumps(line) + "\n" for line in (first | head, *map(record_json, records))))


def record_json(record: RawRecord) -> dict[str, Any]:
    """A record as streams and bundles have it."""
    headers = [[name, _base64(value)] for name, value in record.headers]
    key = None if record.key is None else _base64(record.key)
    return {"offset": record.offset, "key": key, "headers": headers, "value": _base64(record.value)}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
