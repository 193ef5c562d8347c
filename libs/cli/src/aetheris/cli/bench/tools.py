"""The tool of the bench; load as `aetheris.cli.bench.tools`. Its effect is a line in a file, so it is never pure.

Environment: AETHERIS_BENCH_FILE. A line is `<monotonic ns> <external key>`, and names job and node by the latter.
"""

import os
import time
from pathlib import Path

from aetheris.sdk import Found, NotFound, ToolContext, tool

_NOTE = "x" * 189
"""Makes the result 200 bytes of JSON."""


@tool("note", effect_class="probeable", timeout_s=30)
async def note(ctx: ToolContext, text: str = "") -> dict[str, str]:  # noqa: ARG001  as real tools have it
    """Append one line; whole, since it is one write to a file opened for appending."""
    line = f"{time.monotonic_ns()} {ctx.external_key}\n".encode()
    file = os.open(_path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)
    return {"note": _NOTE}


@note.probe
async def noted(external_key: str) -> Found | NotFound:
    """Whether the file has a line with the key."""
    found = any(line.split()[1:] == [external_key] for line in _path().read_text().splitlines())
    return Found({"note": _NOTE}) if found else NotFound()


def _path() -> Path:
    return Path(os.environ["AETHERIS_BENCH_FILE"])
