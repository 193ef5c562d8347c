"""How often a job is asked for that a submission continues, and that can't be read."""

import asyncio
from itertools import pairwise
from typing import cast

from aetheris.planner.lookup import LookUp, LookUps
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.adoption import Continues
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.planning.continuation import EndedJob
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import ArchiveUnusable
from tests.testkit.histories import JOB


class LeapingClock:
    """It goes on where somebody waits for it."""

    def __init__(self) -> None:
        self.at_s = 0.0

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds
        await asyncio.sleep(0)


async def test_what_cannot_be_read_is_asked_for_ever_more_seldom_and_counted_until_it_can() -> None:
    clock, asked, counted, woken = LeapingClock(), list[float](), list[int](), asyncio.Event()

    async def read(_job_id: str) -> EndedJob | None:
        asked.append(clock.at_s)
        counted.append(look_ups.unread)
        if len(asked) < 12:
            raise ArchiveUnusable("archive_missing", "the store of blobs has no bundle")
        return None

    look_ups = LookUps(read, cast("Clock", clock), woken.set)
    continued = Continues.model_construct(job_id="job-0")
    command = Submit.model_construct(job_id=JOB, continues=continued)
    look_ups.begin(LookUp(command, "c", Record(Topic.JOBS_COMMANDS, 0, 3, 0, b"", (), b"")))
    await woken.wait()
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert set(pauses[7:]) == {60}
    assert counted == [0] + [1] * 11
    assert look_ups.unread == 0
    assert [found for _, found in look_ups.take()] == [None]
