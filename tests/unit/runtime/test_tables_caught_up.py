"""Who needs a table as it is now waits for it: through silent readers, and brokers that do not answer."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log import table as tables
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.log.table import Table
from aetheris.runtime.worker.handler import Inputs, PartitionHandler
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.testkit.memory import MemoryLog


async def test_a_table_whose_reader_falls_silent_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_LOOK_S", 0.01)
    log = MemoryLog(1)
    appender = log.appender()
    await appender.start()
    table = Table(log, "t")
    await table.load()
    running = asyncio.create_task(table.run())
    try:
        await appender.append([(Draft("t", b"first", b"v"),)])
        await asyncio.wait_for(table.caught_up(), 20)
        log.silence_readers()
        await appender.append([(Draft("t", b"second", b"v"),)])
        await asyncio.wait_for(table.caught_up(), 20)
        assert table.get("second") == b"v"
    finally:
        running.cancel()
        await asyncio.wait({running})


class Learning(PartitionHandler):
    """The log doesn't answer it at first, or never."""

    def __init__(self, refusals: float) -> None:
        self.refusals = refusals
        self.asked = asyncio.Event()
        self.is_restored = asyncio.Event()

    def fold(self, records: Sequence[Record]) -> None:
        """There is no history."""

    async def learn(self) -> None:
        self.asked.set()
        if self.refusals > 0:
            self.refusals -= 1
            raise LogUnreachable("no answer")

    async def restored(self) -> None:
        self.is_restored.set()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Nothing comes."""

    def live(self) -> list[tuple[str, int]]:
        return []


@pytest.mark.parametrize("refusals", [1, float("inf")])
async def test_what_a_handler_must_know_is_asked_for_until_the_log_answers_or_it_closes(refusals: float) -> None:
    log = MemoryLog(1)
    handler = Learning(refusals)
    worker = PartitionWorker(
        log, log.appender(), Inputs(authority=Topic.JOBS_EVENTS), lambda _: handler, group="g", member="m"
    )
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    await asyncio.wait_for((handler.is_restored if refusals == 1 else handler.asked).wait(), 20)
    stop.set()
    await asyncio.wait_for(running, 15)
    assert handler.is_restored.is_set() is (refusals == 1)
