"""A record as JSON: exact bytes, in base64 as they need not be text."""

import base64
from typing import Any

from aetheris.protocol.base.records import Record


def record_json(record: Record) -> dict[str, Any]:
    """{offset, key, headers, value}."""
    return {
        "offset": record.offset,
        "key": _base64(record.key) if record.key is not None else None,
        "headers": [[name, _base64(value)] for name, value in record.headers],
        "value": _base64(record.value),
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
