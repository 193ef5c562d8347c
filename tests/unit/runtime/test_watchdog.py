"""Who holds up an event loop is named: a tool, or a function of ours (docs/metrics.md)."""

import asyncio
import time
from collections.abc import Callable
from types import FunctionType

import structlog
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from aetheris.runtime.process.watchdog import Block, Watchdog, reported
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.sdk.tools import tool

AFTER_S = 0.2


def _hold(until: list[Block]) -> None:
    while not until:
        time.sleep(0.01)


@tool("hog", effect_class="pure")
async def hog(until: list[Block]) -> None:
    while not until:
        time.sleep(0.01)  # noqa: ASYNC251  it is what is looked for


async def _found_in(block: Callable[[list[Block]], object]) -> list[Block]:
    found: list[Block] = []
    dog = Watchdog(found.append, AFTER_S)
    dog.name({hog.function.__code__: hog.key})
    with dog.watching():
        held = block(found)
        if asyncio.iscoroutine(held):
            await held
    return found


async def test_a_tool_that_blocks_the_loop_is_named_once_with_its_line() -> None:
    (found,) = await _found_in(hog.function)
    first = hog.function.__code__.co_firstlineno
    assert found.tool == "hog@1"
    assert found.at in {f"{__file__}:{line}" for line in range(first, first + 5)}
    assert found.for_s >= AFTER_S


async def test_a_function_of_ours_that_blocks_it_is_named() -> None:
    ours = FunctionType(_hold.__code__, globals() | {"__name__": "aetheris.planner.fold"})
    (found,) = await _found_in(ours)
    assert (found.tool, found.function) == (None, "aetheris.planner.fold._hold")


async def test_a_loop_that_waits_is_held_up_by_nobody() -> None:
    assert await _found_in(lambda _: asyncio.sleep(5 * AFTER_S)) == []


def test_it_is_counted_by_tool_or_function_and_logged() -> None:
    reader = InMemoryMetricReader()
    report = reported(Metrics("planner", reader))
    with structlog.testing.capture_logs() as lines:
        report(Block("pay@1", "shop.pay", "shop.py:3", 1.26))
        report(Block(None, "aetheris.planner.fold", "fold.py:9", 2.0))
    assert [(line.get("tool"), line.get("function"), line["at"], line["for_s"]) for line in lines] == [
        ("pay@1", None, "shop.py:3", 1.3),
        (None, "aetheris.planner.fold", "fold.py:9", 2.0),
    ]
    data = reader.get_metrics_data()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    [metric] = [one for one in metrics if one.name == "aetheris.loop.blocked"]
    points = {str(point.attributes and point.attributes["by"]) for point in metric.data.data_points}
    assert points == {"pay@1", "aetheris.planner.fold"}
