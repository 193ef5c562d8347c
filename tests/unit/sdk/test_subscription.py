"""A subscription: from anywhere, resumed, filtered, over outages; and the sink that takes each fact once."""

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import JobCancelled, JobCompleted
from aetheris.runtime.log.interface import LogGap
from aetheris.sdk import subscription as subscriptions
from aetheris.sdk.received import GROUPS, Received
from aetheris.sdk.subscription import Start, subscribe
from aetheris.testkit.memory import MemoryLog

PAGE = Path(__file__).parents[3] / "docs" / "subscribing.md"


def fact(number: int, kind: type[JobCompleted | JobCancelled] = JobCompleted) -> Draft:
    job = f"j-{number}"
    body = JobCompleted(job_id=job, result=number) if kind is JobCompleted else JobCancelled(job_id=job, by="ada")
    return draft(Topic.JOBS_EVENTS, body, key=job, id=f"e-{number}", source="test", time="2026-01-01T00:00:00Z")


async def append(log: MemoryLog, *drafts: Draft) -> None:
    appender = log.appender()
    await appender.start()
    await appender.append([(one,) for one in drafts])
    await appender.stop()


async def read(log: MemoryLog, **how: Any) -> list[Received]:
    async with subscribe(log, **how) as found:
        return [one async for one in found.events(until_now=True)]


async def test_each_fact_once_typed_and_filtered() -> None:
    log = MemoryLog()
    await append(log, *(fact(n) for n in range(20)), fact(99, JobCancelled))
    await append(log, Draft(Topic.JOBS_EVENTS, b"j-1", b"{", (("ce_id", b"x"), ("ce_type", b"io.aetheris.odd.v1"))))
    found = await read(log)
    assert sorted(one.id for one in found) == sorted([f"e-{n}" for n in range(20)] + ["e-99", "x"])
    assert {one.event.result for one in found if isinstance(one.event, JobCompleted)} == set(range(20))
    assert [(one.event, one.type) for one in found if one.id == "x"] == [(None, "odd")]
    assert [one.id for one in await read(log, types={"job_cancelled"})] == ["e-99"]
    assert [one.id for one in await read(log, jobs={"j-7"})] == ["e-7"]
    places = {(one.partition, one.offset) for one in found}
    assert len(places) == len(found)


async def test_a_group_resumes_after_what_was_done() -> None:
    log = MemoryLog(partitions=1)
    await append(log, *(fact(n) for n in range(6)))
    async with subscribe(log, group="billing") as found:
        async for one in found.events():
            await found.done(one)
            if one.id == "e-3":
                break
    assert [one.id for one in await read(log, group="billing")] == ["e-4", "e-5"]
    assert [one.id for one in await read(log, group="other", start={0: 5})] == ["e-5"]


async def test_now_is_when_it_is_said() -> None:
    log = MemoryLog()
    await append(log, *(fact(n) for n in range(6)))
    async with subscribe(log, start="now") as found:
        await append(log, fact(6))
        async for one in found.events():
            assert one.id == "e-6"
            break


async def test_a_gap_is_an_error() -> None:
    log = MemoryLog(partitions=1)
    await append(log, fact(1))
    start: Start = {0: 7}
    async with subscribe(log, start=start) as found:
        with pytest.raises(LogGap):
            await anext(found.events())


async def test_outages_and_silence_lose_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "_SILENCE_S", 0.0)
    monkeypatch.setattr(subscriptions, "_RETRY_S", 0.0)
    monkeypatch.setattr(subscriptions, "_POLL_S", 0.01)
    log = MemoryLog(partitions=2)
    await append(log, *(fact(n) for n in range(3)))
    found: list[str] = []
    async with asyncio.timeout(10), subscribe(log) as subscription:
        async for one in subscription.events():
            found.append(one.id)
            if len(found) == 3:
                log.silence_readers()
                log.faults.unreachable_polls = 2
                await append(log, *(fact(n) for n in range(3, 6)))
            if len(found) == 6:
                break
    assert sorted(found) == [f"e-{n}" for n in range(6)]


async def test_what_was_revoked_is_not_read_on() -> None:
    log = MemoryLog(partitions=2)
    await append(log, *(fact(n) for n in range(12)))
    seen: list[int] = []
    async with subscribe(log, group="shared", member="a") as found:
        async for one in found.events(until_now=True):
            if not seen:
                await log.assign(GROUPS + "shared", {"a": {one.partition}})
            seen.append(one.partition)
    assert len(set(seen)) == 1


async def test_the_recipe_takes_each_fact_once_however_often_it_dies(tmp_path: Path) -> None:
    recipe: dict[str, Any] = {}
    [block] = [code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "sqlite3" in code]
    exec(block, recipe)  # noqa: S102  the page's own example, as readers copy it
    database = str(tmp_path / "facts.db")
    log = MemoryLog(partitions=3)
    for count in range(1, 9):
        await append(log, *(fact(n) for n in range(count * 10)))  # every fact is said again and again
        dying = asyncio.create_task(recipe["copy"](log, database))
        await asyncio.sleep(0.002 * count)
        dying.cancel()
        await asyncio.wait({dying})
    await recipe["copy"](log, database, until_now=True)
    rows = sqlite3.connect(database).execute("SELECT id FROM fact").fetchall()
    assert sorted(row[0] for row in rows) == sorted(f"e-{n}" for n in range(80))
