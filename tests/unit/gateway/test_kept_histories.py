"""A long job's history is folded once, and told as if it were folded anew each time, whatever comes meanwhile."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.gateway import kept_histories
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.job_histories import EventFilter
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.kept_histories import KeptHistories
from aetheris.gateway.views import Row
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import LoggedEvent
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.protocol.messages.envelope import draft
from aetheris.views.job_history import job_history
from aetheris.views.trace import trace_of
from tests.testkit import histories as h
from tests.unit.gateway.test_long_jobs import PartitionWithOthers, made, other, row_of

SEEDS = range(8)


class NoEnd:
    @asynccontextmanager
    async def deadline(self) -> AsyncGenerator[None]:
        yield


class CountedFolds(KeptHistories):
    """How often it has folded."""

    folds = 0

    def _folded(self, records: Any) -> Any:
        self.folds += 1
        return super()._folded(records)


def histories_of(partition: PartitionWithOthers, blobs: Any = None) -> CountedFolds:
    return CountedFolds(cast("JobReader", partition), blobs or {}, cast("Deadlines", NoEnd()))


async def told(histories: KeptHistories, partition: PartitionWithOthers) -> dict[str, Any]:
    found = await histories.of(row_of(partition))
    assert found is not None
    return trace_of(found)


def anew(partition: PartitionWithOthers) -> dict[str, Any]:
    return trace_of(job_history(as_sealed(partition.of_job)))


@pytest.mark.parametrize("seed", SEEDS)
async def test_it_tells_what_is_told_anew(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)  # noqa: S311  a repeatable test
    for name, most in (("LONG", 20), ("MOST_RECORDS", 90), ("MOST_BYTES", 20_000)):
        monkeypatch.setattr(kept_histories, name, dice.randint(1, most))
    partition = PartitionWithOthers()
    partition.put(*(other() for _ in range(dice.randint(0, 5))), made(0), made(1))
    histories, number = histories_of(partition), 2
    for _ in range(40):
        for _ in range(dice.randint(0, 4)):
            partition.put(made(number), *(other() for _ in range(dice.randint(0, 3))))
            number += 1
        if dice.random() < 0.2:
            partition.line, partition.known = object(), len(partition.log)
        elif partition.line is not None:
            partition.line = None  # a gateway that has lost its index reads the log itself
        assert await told(histories, partition) == anew(partition), f"seed {seed}"


async def test_a_page_after_the_first_folds_nothing_and_reads_what_is_new() -> None:
    partition = PartitionWithOthers()
    partition.put(*(made(number) for number in range(1_500)))
    histories = histories_of(partition)
    await asyncio.gather(*(told(histories, partition) for _ in range(5)))
    assert (histories.folds, partition.read) == (1, 1_500)
    partition.put(*(other() for _ in range(300)))
    await told(histories, partition)
    assert (histories.folds, partition.read) == (1, 1_800)
    partition.put(made(1_500))
    assert len((await told(histories, partition))["events"]) == 1_501
    assert (histories.folds, partition.read) == (2, 1_801)
    partition.line, partition.known = object(), len(partition.log)
    await told(histories, partition)
    read = partition.read
    await told(histories, partition)
    assert (histories.folds, partition.read) == (3, read)


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_histories, "MOST_RECORDS", 1_200)
    partition = PartitionWithOthers()
    partition.put(*(made(number) for number in range(1_300)))
    histories = histories_of(partition)
    for _ in range(2):
        await told(histories, partition)
    assert histories.folds == 2
    short = PartitionWithOthers()
    short.put(*(made(number) for number in range(10)))
    histories = histories_of(short)
    for _ in range(2):
        await told(histories, short)
    assert histories.folds == 2


async def test_another_birth_is_another_job() -> None:
    partition = PartitionWithOthers()
    partition.put(*(made(number) for number in range(1_100)))
    histories = histories_of(partition)
    await told(histories, partition)
    later = cast("Row", SimpleNamespace(job_id=row_of(partition).job_id, first_offset=1))
    await histories.of(later)
    assert histories.folds == 2


async def test_of_what_is_not_born_nothing_is_told() -> None:
    partition = PartitionWithOthers()
    partition.put(made(0))
    nobody = cast("Row", SimpleNamespace(job_id="job-of-nobody", first_offset=9))
    assert await histories_of(partition).of(nobody) is None


async def test_some_events_are_told_with_their_numbers_and_what_is_void_is_not() -> None:
    partition = PartitionWithOthers()
    partition.put(*(made(number) for number in range(40)))
    history = await histories_of(partition).of(row_of(partition))
    assert history is not None
    logged = [one.logged for one in history.moments]
    paused = EventFilter(frozenset({"job_paused"}), None)
    assert [one.sequence for one in logged if paused.takes(one)] == [
        number + 1 for number in range(2, 40) if number % 7 != 5
    ]
    assert not [one for one in logged if EventFilter(frozenset(), "pay").takes(one)]
    assert len([one for one in logged if EventFilter(frozenset(), None).takes(one)]) == 40 - 5


@pytest.mark.parametrize(("usage", "is_said"), [({"input_tokens": 1}, True), (None, False)])
def test_what_a_model_said_is_text(usage: dict[str, int] | None, is_said: bool) -> None:
    end = h.finished("ask", "i-1", result={"text": "yes"}).model_copy(update={"usage": usage})
    record = draft(Topic.JOBS_EVENTS, end, key=h.JOB, id="e", source="t", time="2026-01-01T00:00:00Z")
    one = LoggedEvent(1, Record(record.topic, 0, 0, 0, record.key, record.headers, record.value), end)
    assert EventFilter(frozenset({"text"}), "ask").takes(one) is is_said
    assert EventFilter(frozenset({"tool_invocation_finished"}), "ask").takes(one)
    assert not EventFilter(frozenset({"text"}), "other").takes(one)
