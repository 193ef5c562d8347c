"""For how long seals wait for witnesses: since they were first looked at, until enough witnesses have seen them."""

import asyncio
from pathlib import Path

import pytest

from aetheris.testkit.clock import VirtualClock
from aetheris.verifier.seallog import SealLogForked
from aetheris.verifier.witness_watch import LOOK_S, WitnessWatch
from tests.unit.verifier.test_witnessed import put, seal_log, seen


class GrowingLog:
    """Says of a log what it is told to say."""

    def __init__(self) -> None:
        self.says: tuple[int, int] | Exception = (0, 0)

    async def seen(self) -> tuple[int, int]:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


async def after(watch: WitnessWatch, clock: VirtualClock, looks: int = 1) -> int:
    """How long it says that they wait, so many looks later."""
    for _ in range(looks):
        await clock.advance(LOOK_S)
    return watch.waits_s


async def test_the_oldest_that_is_not_seen_counts() -> None:
    log, clock = GrowingLog(), VirtualClock()
    watch = WitnessWatch(log, clock)  # pyright: ignore[reportArgumentType]  what it asks of it
    running = asyncio.create_task(watch.run())
    try:
        assert await after(watch, clock) == 0
        log.says = (3, 0)
        assert await after(watch, clock, 2) == LOOK_S
        log.says = (5, 0)
        assert await after(watch, clock, 2) == 3 * LOOK_S
        log.says = (7, 4)
        assert await after(watch, clock) == 2 * LOOK_S, "those up to 5 were looked at then"
        log.says = SealLogForked("it lacks one")
        assert await after(watch, clock) == 3 * LOOK_S, "what is not known is not seen"
        log.says = (7, 7)
        assert await after(watch, clock) == 0
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_what_is_of_this_tree_and_has_its_quorum_is_seen(tmp_path: Path) -> None:
    log = await seal_log(tmp_path)
    assert await log.seen() == (20, 0)
    for size, note in ((7, seen(7)), (9, seen(9, forked=True)), (12, "nothing")):
        put(tmp_path, size, note)
    assert await log.seen() == (20, 7)
    put(tmp_path, 20, seen(20))
    assert await log.seen() == (20, 20)
