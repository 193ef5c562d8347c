"""What a call costs in a process of its own: `python -m tests.bench.isolated_calls [CALLS]` (docs/tools.md)."""

import asyncio
import resource
import statistics
import sys
import time

from aetheris.sdk import ToolContext
from aetheris.sdk.invoke import invoke
from aetheris.sdk.isolation.kept_process import HostSetup
from aetheris.sdk.isolation.tools import isolated_tools
from aetheris.sdk.loader import load
from aetheris.sdk.tools import AnyTool
from tests.testkit.system import REPOSITORY

MODULE = "tests.testkit.isolated_tools"


async def median_ms(tool: AnyTool, calls: int) -> float:
    """Of calls one after the other."""
    took: list[float] = []
    for _ in range(calls):
        began = time.perf_counter()
        await invoke(tool, {"what": "json"}, ToolContext("k", 1, "i", "j", "n"))
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


async def main(calls: int) -> None:
    """Both ways, one after the other."""
    here = await median_ms(load(MODULE, REPOSITORY).get("returns", "1"), calls)
    _, start_s = await elsewhere(0)
    there, spent_s = await elsewhere(calls)
    cpu_ms = (spent_s - start_s) / calls * 1000
    print(f"median of {calls} calls: {here:.2f} ms here; {there:.2f} ms in a process of its own")  # noqa: T201
    print(f"CPU of those processes: {cpu_ms:.2f} ms a call, {start_s:.2f} s to start")  # noqa: T201


async def elsewhere(calls: int) -> tuple[float, float]:
    """The median, and the CPU seconds of the module's process and its calls'."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    async with isolated_tools(None, MODULE, REPOSITORY, HostSetup(), lambda *_said: None) as tools:
        median = await median_ms(tools.get("returns", "1"), calls) if calls else 0.0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return median, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
