"""Attacks on names: two at once, copies, late records, a person's word, and who reads only what compaction left."""

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.workers import Name, Names
from aetheris.protocol.messages.commands import Ended, WorkerEntry
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.refusal import WorkerIdTaken, refusal
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.lock import Lock
from aetheris.testkit.memory import MemoryLog
from aetheris.tool_executor.core.partition import Worker
from aetheris.tool_executor.identity import living

NAME = "w"


def entry(live: str | None, *ended: str, left: Sequence[str] = (), how: str = "lock") -> bytes:
    ends = tuple(Ended(incarnation=one, how=how) for one in ended)
    reported = WorkerEntry(worker_id=NAME, live=live, left=tuple(left), ended=ends)
    return reported.model_dump_json().encode()


def folded(*values: bytes | None) -> tuple[Names, list[bool]]:
    names = Names()
    return names, [names.take(NAME, value).counts for value in values]


def test_of_two_that_start_at_once_the_second_is_void() -> None:
    names, counted = folded(entry("a"), entry("b"))
    assert (names[NAME].live, counted) == ("a", [True, False])
    names, counted = folded(entry("a"), entry("b", "a"), entry("c", "a"))
    assert (names[NAME].live, counted) == ("b", [True, True, False])


def test_a_void_record_ends_nobody() -> None:
    names, _ = folded(entry("a", "z"), entry("b", "x"))
    assert list(names[NAME].ended) == ["z"]


def test_who_has_ended_never_lives_again() -> None:
    names, counted = folded(entry("a"), entry("b", "a"), entry("a", "b"))
    assert (names[NAME].live, counted) == ("b", [True, True, False])


def test_a_person_ends_who_lives_and_the_name_is_free() -> None:
    names, counted = folded(entry("a"), entry(None, "a", how="human"), entry("a"), entry("b"))
    assert (names[NAME].live, counted) == ("b", [True, True, False, True])


def test_a_late_word_about_who_lives_no_more_is_void() -> None:
    names, counted = folded(entry("a"), entry("b", "a"), entry(None, "a", how="human"))
    assert (names[NAME].live, counted) == ("b", [True, True, False])


def test_who_has_left_is_not_known_to_have_ended() -> None:
    names, counted = folded(entry("a"), entry(None, left=["a"]), entry("b"))
    assert (names[NAME].live, counted) == ("b", [True] * 3)
    assert names[NAME].may_act("a")
    names.take(NAME, entry(None, "a", left=["b"], how="human"))
    assert not names[NAME].may_act("a")


def test_who_may_act_lives_or_has_left() -> None:
    names, _ = folded(entry("a"), entry(None, left=["a"]), entry("b"))
    assert [names[NAME].may_act(one) for one in ("a", "b", "z")] == [True, True, False]
    assert (NAME in names, "v" in names) == (True, False)


def test_an_end_is_told_once_and_who_has_ended_has_not_left() -> None:
    names, _ = folded(entry("a"), entry(None, left=["a"]))
    answer = entry(None, "a", left=["a"], how="human")
    assert [names.take(NAME, answer).ended for _ in range(2)] == [[(NAME, "a")], []]
    assert names[NAME].left == {}


def test_who_repeats_what_he_says_takes_nothing_and_lives_since_the_same_time() -> None:
    def since(live: str, at: str, *ended: str) -> bytes:
        return entry(live, *ended).replace(b'"since":null', f'"since":"{at}"'.encode())

    names, counted = folded(since("a", "1"), since("a", "2", "z"))
    assert (counted, names[NAME].since, list(names[NAME].ended)) == ([True, True], "1", ["z"])
    names.take(NAME, since("b", "3", "a"))
    assert names[NAME].since == "3"


def test_an_entry_says_of_nobody_that_he_left_and_that_he_ended() -> None:
    names, _ = folded(entry("a"), entry(None, left=["a"]), entry("b"), entry(None, left=["b"]))
    reported = names[NAME].entry(NAME, "c", None, Ended(incarnation="a", how="lock"))
    assert (reported.left, [one.incarnation for one in reported.ended]) == (("b",), ["a"])


@pytest.mark.parametrize("value", [b"", None, b"{", b'{"worker_id":"v","live":"x"}', b'{"worker_id":"w"}'])
def test_what_is_no_entry_of_the_name_is_void(value: bytes | None) -> None:
    names, counted = folded(entry("a"), value)
    assert (names[NAME].live, counted) == ("a", [True, False])


def test_all_orders_of_claims_have_one_that_lives_and_no_two_at_a_time() -> None:
    """Whoever folds a prefix agrees with everyone, and a record never ends who lives but by naming him."""
    seed = random.randrange(2**32)  # noqa: S311  printed where it fails
    draw = random.Random(seed)  # noqa: S311
    for _ in range(2_000):
        names = Names()
        for _ in range(12):
            before = names[NAME]
            live, known = before.live, set(before.ended)
            picked = draw.sample("abcde", draw.randrange(3))
            answer = entry(draw.choice([*"abcde", None]), *picked, left=draw.sample("abcde", draw.randrange(2)))
            taken = names.take(NAME, answer)
            after = names[NAME]
            assert known <= set(after.ended), seed
            assert after.live not in after.ended, seed
            if live is not None and after.live != live:
                assert taken.counts, seed
                assert live in after.ended or live in after.left, seed


class WorkersTopic:
    """A log, folders with locks, and what stood down."""

    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog(1)
        self.folder = folder
        self.stood_down: list[str] = []
        self._count = itertools.count()

    def lock(self, *former: str) -> SimpleNamespace:
        held: list[str] = []
        return SimpleNamespace(former=list(former), hold=held.append, held=held)

    @asynccontextmanager
    async def lives(self, lock: SimpleNamespace, log: MemoryLog | None = None) -> AsyncGenerator[Worker]:
        appender = self.log.appender()
        await appender.start()
        async with living(
            NAME,
            lock,  # pyright: ignore[reportArgumentType]
            log=log or self.log,
            appender=appender,
            clock=SystemClock(),
            stand_down=self.stood_down.append,
        ) as worker:
            yield worker

    async def say(self, value: bytes) -> None:
        appender = self.log.appender()
        await appender.start()
        reported = WorkerEntry.model_validate_json(value)
        await appender.append([(draft(Topic.WORKERS, reported, key=NAME, id="x", source="test", time="t"),)])

    async def read(self) -> tuple[Name, Name]:
        """As who reads every record sees it, and as who reads what compaction leaves."""
        every, last = Names(), Names()
        table = Table(self.log, Topic.WORKERS)
        table.on_change(every.take)  # pyright: ignore[reportArgumentType]
        await table.load()
        for key, value in table.items():
            last.take(key, value)
        return every[NAME], last[NAME]


@pytest.fixture
async def workers(tmp_path: Path) -> WorkersTopic:
    made = WorkersTopic(tmp_path)
    await made.log.start()
    return made


@asynccontextmanager
async def refused() -> AsyncGenerator[None]:
    """What is inside raises WorkerIdTaken, in however many groups."""
    with pytest.raises(BaseException) as raised:  # noqa: PT011
        yield
    assert isinstance(refusal(raised.value), WorkerIdTaken), raised.value


async def until(seen: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not seen():  # noqa: ASYNC110  what is waited for is no event
            await asyncio.sleep(0.01)


async def test_a_fresh_folder_proves_nothing(workers: WorkersTopic) -> None:
    async with workers.lives(workers.lock()) as first:
        fresh = workers.lock()
        async with refused(), workers.lives(fresh):
            pass
        every, last = await workers.read()
        assert (every.live, dict(every.ended)) == (first.incarnation, {})
        assert last.live == first.incarnation
        assert fresh.held == [], "who is refused by the table says nothing"


async def test_the_holder_of_the_lock_ends_whom_it_names_and_nobody_else(workers: WorkersTopic) -> None:
    await workers.say(entry("i1"))
    async with workers.lives(workers.lock("i0", "i1")) as second:
        every, _ = await workers.read()
        assert (every.live, every.ended["i1"].how) == (second.incarnation, "lock")
    await workers.say(entry("other"))
    async with refused(), workers.lives(workers.lock("i0", "i1", second.incarnation)):
        pass


async def test_a_crash_between_the_lock_and_the_topic_loses_no_name(workers: WorkersTopic) -> None:
    await workers.say(entry("i1"))
    async with workers.lives(workers.lock("i1", "i2")) as third:
        await workers.say(entry("i2", "i1"))  # what i2 had sent arrives now
        every, _ = await workers.read()
        assert every.live == third.incarnation


async def test_who_was_on_its_way_when_its_successor_looked_is_ended_too(workers: WorkersTopic) -> None:
    """i2's record lies between what i3 read and what i3 says."""
    lock = workers.lock("i1", "i2")
    await workers.say(entry("i1"))
    names, _ = folded(entry("i1"), entry("i2", "i1"), entry("i3", "i1", "i2"))
    assert names[NAME].live == "i3"
    async with workers.lives(lock):
        every, _ = await workers.read()
        assert {"i1", "i2"} <= set(every.ended)


async def test_who_ends_in_good_order_leaves_the_name_and_claims_nothing(workers: WorkersTopic) -> None:
    async with workers.lives(workers.lock()) as first:
        pass
    async with workers.lives(workers.lock()) as second:
        every, last = await workers.read()
        assert (every.live, list(every.left), dict(every.ended)) == (second.incarnation, [first.incarnation], {})
        assert last.live == second.incarnation


async def test_who_reads_its_own_end_stands_down(workers: WorkersTopic) -> None:
    async with workers.lives(workers.lock()) as worker:
        await workers.say(entry(None, worker.incarnation, how="human"))
        await until(lambda: bool(workers.stood_down))
        assert workers.stood_down[0].startswith("human")


async def test_whoever_lives_says_it_again_where_a_void_record_would_hide_it(workers: WorkersTopic) -> None:
    async with workers.lives(workers.lock()) as worker:
        await workers.say(entry("intruder"))

        async with asyncio.timeout(10):
            while (await workers.read())[1].live != worker.incarnation:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        every, last = await workers.read()
        assert every.live == last.live == worker.incarnation
        assert last.ended["intruder"].how == "refused"
    assert workers.stood_down == []


class SlowAppender:
    """An appender that lets somebody else in before it writes."""

    def __init__(self, inner: Appender, first: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self.inner, self.first = inner, first

    async def append(self, groups: Sequence[tuple[object, ...]]) -> None:
        async with self.first():
            await self.inner.append(groups)  # pyright: ignore[reportArgumentType]


async def test_of_two_that_look_at_once_the_second_in_the_log_withdraws(workers: WorkersTopic) -> None:
    """Both read that the name is free; the first to write has it."""
    inner = workers.log.appender()
    await inner.start()
    done = asyncio.Event()

    @asynccontextmanager
    async def first() -> AsyncGenerator[None]:
        async with workers.lives(workers.lock()):
            yield
            done.set()

    slow = SlowAppender(inner, first)
    arguments = {"log": workers.log, "appender": slow, "clock": SystemClock(), "stand_down": workers.stood_down.append}
    async with refused(), living(NAME, workers.lock(), **arguments):  # pyright: ignore[reportArgumentType]
        pass
    assert done.is_set()


def test_a_lock_keeps_its_holders(tmp_path: Path) -> None:
    import os

    for number in range(3):
        descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
        lock = Lock(descriptor)
        assert lock.former == [f"i{one}" for one in range(number)]
        lock.hold(f"i{number}")
        os.close(descriptor)
