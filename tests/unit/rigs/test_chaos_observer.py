"""Who reads along while a system is hurt must outlive whatever a reader may say."""

import asyncio
import threading
from typing import Any

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.rigs.chaos.observer import JobsObserver, _follow
from aetheris.runtime.log.interface import Place

PLACE = (str(Topic.JOBS_EVENTS), 0)


class _PolledReader:
    """Says each of these, then asks to stop."""

    def __init__(self, stop: threading.Event, *batches: list[Record]) -> None:
        self._stop = stop
        self._batches = list(batches)

    async def poll(self, _timeout_s: float) -> dict[tuple[str, int], list[Record]]:
        if len(self._batches) == 1:
            self._stop.set()
        return {PLACE: self._batches.pop(0)}


def test_a_poll_that_brings_nothing_new_of_a_place_is_passed_over() -> None:
    stop, positions = threading.Event(), dict[Place, int]({PLACE: 5})
    record = Record(PLACE[0], 0, 7, 0, b"k", (), b"{}")
    reader: Any = _PolledReader(stop, [], [record], [])
    asyncio.run(_follow(reader, positions, JobsObserver(), stop))
    assert positions == {PLACE: 8}
