"""Listeners of the live feed: the slow are cut off, none is left waiting."""

import asyncio

import pytest

from aetheris.gateway.feed import MAX_UNREAD, Feed, FeedClosed, JobFeed
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import Sequence, fold_into, since_creation
from aetheris.runtime.base.clock import SystemClock
from aetheris.testkit.memory import MemoryLog


def record(offset: int, kind: str = "node_finished", major: int = 1) -> Record:
    headers = (("ce_id", b"e"), ("ce_type", f"io.aetheris.{kind}.v{major}".encode()))
    return Record("t", 0, offset, 0, b"job-1", headers, b"{}")


async def test_who_lags_too_far_is_cut_off() -> None:
    subscription = JobFeed()
    for offset in range(MAX_UNREAD + 5):
        subscription.put(record(offset))
    got = [(await subscription.get()).offset for _ in range(MAX_UNREAD)]
    assert got == list(range(MAX_UNREAD))
    for _ in range(2):
        with pytest.raises(FeedClosed):
            await subscription.get()


async def test_what_arrived_together_is_taken_together_and_in_order() -> None:
    subscription = JobFeed()
    taking = asyncio.ensure_future(subscription.take(4))
    await asyncio.sleep(0)
    for offset in range(6):
        subscription.put(record(offset))
    subscription.close()
    subscription.put(record(6))
    assert [one.offset for one in await taking] == [0, 1, 2, 3]
    assert [one.offset for one in await subscription.take(4)] == [4, 5]
    with pytest.raises(FeedClosed):
        await subscription.take(4)


async def test_who_asks_for_some_types_is_not_woken_by_others() -> None:
    subscription = JobFeed({b"io.aetheris.job_completed.v1"})
    taking = asyncio.ensure_future(subscription.take(10))
    for offset in range(MAX_UNREAD + 5):
        subscription.put(record(offset))
    subscription.put(Record("t", 0, 0, 0, b"job-1", (), b"{}"))
    await asyncio.sleep(0)
    assert not taking.done()
    subscription.put(record(MAX_UNREAD + 6, "job_completed"))
    assert [one.offset for one in await taking] == [MAX_UNREAD + 6]


async def test_a_closed_feed_lets_nobody_wait() -> None:
    log = MemoryLog()
    await log.start()
    feed = Feed(log, SystemClock(), 0.01)
    await feed.start()
    async with feed.subscribe("job-1") as early:
        feed.close()
        async with feed.subscribe("job-1") as late:
            for subscription in (early, late):
                with pytest.raises(FeedClosed):
                    await subscription.get()


def test_a_job_begins_with_its_birth() -> None:
    given = [record(0), record(1, "job_created"), record(2), record(3, "job_created")]
    assert [one.offset for one in since_creation(given)] == [1, 2, 3]


def test_before_its_birth_a_job_has_no_state() -> None:
    assert fold_into(None, record(0, major=2), Sequence()) is None
    assert fold_into(None, record(0, "no_such_event"), Sequence()) is None
