"""The tool of the bench for every peer: a line in a file, and a result of 200 bytes (as aetheris.rigs.bench.tools).

Environment: BENCH_FILE. A line is `<monotonic ns> bench:<job>:<step>`.
"""

import asyncio
import os
import time
from typing import TypedDict


class Job(TypedDict):
    """What a worker is asked to run: steps after each other or, `parallel`, all at once; `slow` ones return later."""

    job: str
    steps: int
    parallel: bool
    slow: bool


NOTE = {"note": "x" * 189}
"""200 bytes of JSON."""

_PATH = os.environ["BENCH_FILE"]


async def note(job: str, step: int, slow: bool) -> dict[str, str]:
    """Append one line; a slow one returns 20 ms after it."""
    append(job, step)
    if slow:
        await asyncio.sleep(0.02)
    return NOTE


def append(job: str, step: int) -> None:
    """One line; whole, since it is one write to a file opened for appending."""
    line = f"{time.monotonic_ns()} bench:{job}:n{step}\n".encode()
    file = os.open(_PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)
