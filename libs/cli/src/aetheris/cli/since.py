"""`--since`: a time, or how long ago."""

import re
from datetime import UTC, datetime, timedelta

from aetheris.cli.console import CommandError, Exit

_AGO = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def since_time(since: str | None) -> str | None:
    """As RFC 3339; raises CommandError."""
    ago = _AGO.fullmatch(since or "")
    if ago is not None:
        return (datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).isoformat()
    if since is None or _is_time(since):
        return since
    rule = "--since: such as 2h or 30d, or a time with its offset (RFC 3339)"
    raise CommandError(Exit.BAD_INPUT, "bad_request", rule, field="--since")


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
