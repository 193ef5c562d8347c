"""When the amendments of seals are looked at, by a clock that nobody can set."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

from aetheris.runtime.log.interface import ArchiveUnusable
from aetheris.verifier.amendment_watch import AmendmentWatch
from aetheris.verifier.core.amendments import LateJobs, LateJudgement

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class SteppedClock:
    """It goes on where somebody waits for it."""

    def __init__(self) -> None:
        self.at_s = 1.0

    def monotonic(self) -> float:
        return self.at_s

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.at_s)

    async def sleep(self, seconds: float) -> None:
        self.at_s += max(seconds, 0.0)
        await asyncio.sleep(0)


async def test_a_seal_that_is_dated_ahead_puts_its_amendment_off_for_no_more_than_an_hour() -> None:
    clock, late, amended = SteppedClock(), LateJobs(), list[float]()
    late.note("job", 7)
    ahead = (BEGIN + timedelta(days=3650)).isoformat()
    due = SimpleNamespace(first_sealed_at=ahead, last_sealed_at=ahead, offsets=(7,))

    async def found(*_: object, **__: object) -> LateJudgement:
        return LateJudgement((), cast("Any", due), None)

    async def told(*_: object) -> bool:
        return False

    async def amend(_: object) -> bool:
        amended.append(clock.at_s)
        return True

    proofs = cast("Any", SimpleNamespace(late=found))
    watch = AmendmentWatch(late, proofs, cast("Any", clock), tell=told, amend=amend, stand_still=lambda *_: None)
    for _ in range(20):
        watch.hurry()
        looking = watch._looking  # pyright: ignore[reportPrivateUsage]
        if looking is not None:
            await looking
        due_s = late.next_s()
        if amended or due_s is None:
            break
        clock.at_s = max(clock.at_s, due_s)
    (at_s,) = amended
    assert 3600 <= at_s < 3700


async def test_a_job_whose_bundle_is_gone_is_asked_for_ever_more_seldom_and_counted_until_it_is_there() -> None:
    clock, late, asked = SteppedClock(), LateJobs(), list[float]()
    late.note("job", 7)

    async def read(*_: object, **__: object) -> LateJudgement:
        asked.append(clock.at_s)
        if len(asked) < 30:
            raise ArchiveUnusable("archive_missing", "the store of blobs has no bundle")
        return LateJudgement((), None, None)

    async def told(*_: object) -> bool:
        return False

    async def amend(_: object) -> bool:
        return True

    proofs = cast("Any", SimpleNamespace(late=read))
    watch = AmendmentWatch(late, proofs, cast("Any", clock), tell=told, amend=amend, stand_still=lambda *_: None)
    unread: list[int] = []
    while (due_s := late.next_s()) is not None:
        clock.at_s = max(clock.at_s, due_s)
        watch.hurry()
        looking = watch._looking  # pyright: ignore[reportPrivateUsage]
        assert looking is not None
        await looking
        unread.append(late.unread)
    pauses = [round(after - before) for before, after in pairwise(asked)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert set(pauses[7:]) == {60}
    assert unread == [1] * 29 + [0]
