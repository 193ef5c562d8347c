"""A handler is ticked at the time it asked for, also where the loop's timers are early, as uvloop's are."""

import asyncio
from collections.abc import Mapping, Sequence

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.worker.handler import Inputs, PartitionHandler
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.testkit.memory import MemoryLog

ROUNDS = 5
PAUSE_S = 0.01
EARLY_S = 0.004


class EarlyClock(SystemClock):
    """Its sleeps end before their time."""

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s - EARLY_S if delay_s > EARLY_S else delay_s / 2)


class Ticked(PartitionHandler):
    """Asks for the next tick in each one, and notes how late it came."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.late_s: list[float] = []
        self.done = asyncio.Event()
        self.worker: PartitionWorker
        self.clock = EarlyClock()

    def fold(self, records: Sequence[Record]) -> None: ...

    async def restored(self) -> None:
        self.ask()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None: ...

    async def tick(self) -> None:
        self.late_s.append(self.clock.monotonic() - self.due_s)
        if len(self.late_s) == ROUNDS:
            self.done.set()
        else:
            self.ask()

    def live(self) -> list[tuple[str, int]]:
        return []

    def ask(self) -> None:
        self.due_s = self.clock.monotonic() + PAUSE_S
        self.worker.call_at(self.number, self.due_s)


async def test_an_early_timer_loses_no_tick() -> None:
    log = MemoryLog(partitions=1)
    handler = Ticked(0)
    appender = log.appender()
    inputs = Inputs(commands={}, authority=Topic.JOBS_EVENTS)
    worker = PartitionWorker(log, appender, inputs, lambda _number: handler, group="g", member="m", clock=handler.clock)
    handler.worker = worker
    stop = asyncio.Event()
    await asyncio.gather(log.start(), appender.start())
    running = asyncio.create_task(worker.run(stop))
    try:
        await asyncio.wait_for(handler.done.wait(), 10)
    finally:
        stop.set()
        await running
    assert min(handler.late_s) >= 0
