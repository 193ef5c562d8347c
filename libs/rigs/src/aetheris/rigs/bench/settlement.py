"""Waits until a system has done what the last workload left it to do: seals, views, garbage, flushes."""

import asyncio
import time
from collections.abc import Callable, Mapping

from aetheris.cli.embedded.jars import Progress
from aetheris.rigs.bench.usage import cpu_s

IDLE = 0.15
"""Of one core's time, over all processes; an embedded system that nobody asks for anything takes half of it."""
SETTLED_WITHIN_S = 30.0
LOOK_EVERY_S = 0.5


async def settled(
    pids: Callable[[], Mapping[str, int]], progress: Progress, *, idle: float = IDLE, within_s: float = SETTLED_WITHIN_S
) -> bool:
    """Whether the processes were all but idle, between two looks, before the time was up; says which it was."""
    began = time.monotonic()
    while True:
        busy, waited_s = await _busy(pids()), time.monotonic() - began
        if sum(busy.values()) < idle:
            progress("settled", f"after {waited_s:.1f} s")
            return True
        if waited_s >= within_s:
            still = ", ".join(f"{name} {share:.0%}" for name, share in busy.items() if share > 0)
            progress("settled", f"not within {within_s:.0f} s: {still} of a core")
            return False


async def _busy(pids: Mapping[str, int]) -> Mapping[str, float]:
    """The share of a core that each process took between two looks; one that ended meanwhile counts as busy."""
    before, began = cpu_s(pids), time.monotonic()
    await asyncio.sleep(LOOK_EVERY_S)
    after, passed_s = cpu_s(pids), time.monotonic() - began
    return {name: abs(after[name] - before[name]) / passed_s for name in pids}
