"""The tool of the bench; load as `aetheris.rigs.bench.tools`. Its effect is a line in a file, so it is never pure.

Environment: AETHERIS_BENCH_FILE. A line is `<monotonic ns> <external key>`, and names job and node by the latter.
"""

import asyncio
import json
import os
import time
from pathlib import Path

from aetheris.sdk import Found, NotFound, ToolContext, tool

_NOTE = "x" * 189
RESULT = json.dumps({"note": _NOTE}).encode()
"""What a call returns: 200 bytes."""


@tool("note", effect_class="probeable", timeout_s=30, settles_within_s=0)
async def note(ctx: ToolContext) -> dict[str, str]:
    """Append one line: a file of this machine, so whoever has ended has written, or never will."""
    append(_path(), ctx.external_key)
    return {"note": _NOTE}


@tool("note_slowly", effect_class="probeable", timeout_s=30, settles_within_s=0)
async def note_slowly(ctx: ToolContext) -> dict[str, str]:
    """Append one line, and return 20 ms later: who is killed in between doesn't know that it has."""
    append(_path(), ctx.external_key)
    await asyncio.sleep(0.02)
    return {"note": _NOTE}


@note.probe
@note_slowly.probe
async def noted(external_key: str) -> Found | NotFound:
    """Whether the file has a line with the key."""
    return Found({"note": _NOTE}) if f" {external_key}\n".encode() in _notes() else NotFound()


def append(path: str | Path, external_key: str) -> None:
    """One line; whole, since it is one write to a file opened for appending."""
    line = f"{time.monotonic_ns()} {external_key}\n".encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def _notes() -> bytes:
    """Searched as a whole: lines taken apart are 5 ms of CPU where there are 10,000, for each probe."""
    return Path(_path()).read_bytes()


def _path() -> str:
    return os.environ["AETHERIS_BENCH_FILE"]
