"""Why a service has refused to run, as it says in its log (docs/deployment.md, "What a service refuses")."""

import json
from pathlib import Path
from typing import Any

from aetheris.runtime.base.refusal import REFUSAL

_TAIL_BYTES = 64 * 1024


def reason_in(log: Path) -> str | None:
    """The last refusal that a log tells of; None where it tells of none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    return next((reason for line in reversed(lines) if (reason := _reason(line)) is not None), None)


def _reason(line: str) -> str | None:
    if REFUSAL not in line:
        return None
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return None
    return str(entry.get("reason")) if isinstance(entry, dict) and entry.get("event") == REFUSAL else None
