"""A reader knows how far behind it is, and catches up."""

import asyncio

from aetheris.protocol.base.records import Draft, Record
from aetheris.runtime.log.interface import Place
from aetheris.runtime.log.pump import Pump
from aetheris.testkit.memory import MemoryLog


async def test_lag_is_what_the_log_has_beyond_what_was_delivered() -> None:
    log = MemoryLog()
    log.create("t", 1)
    appender = log.appender()
    await appender.start()
    pump = Pump(log, lambda _place, _records: None)
    pump.add({("t", 0): 0})
    await appender.append([(Draft("t", b"k", b"v"),)] * 3)
    await pump.check_silence()
    assert pump.lag == 3


async def test_who_is_far_behind_makes_no_pauses() -> None:
    log = MemoryLog()
    log.create("t", 1)
    appender = log.appender()
    await appender.start()
    await appender.append([(Draft("t", b"k", b"v"),)] * 15_000)
    seen, caught_up = list[Record](), asyncio.Event()

    def take(_place: Place, records: list[Record]) -> None:
        seen.extend(records)
        if len(seen) == 15_000:
            caught_up.set()

    pump = Pump(log, take, pause_s=3600.0)
    pump.add({("t", 0): 0})
    await pump.check_silence()
    running = asyncio.create_task(pump.run())
    try:
        async with asyncio.timeout(30):
            await caught_up.wait()
    finally:
        running.cancel()
        await asyncio.wait({running})
    assert [record.offset for record in seen] == list(range(15_000))
