"""Attacks on names: two at once, copies, late records, a person's word, and who reads only what compaction left."""

import asyncio
import itertools
import json
import random
import stat
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import MAX_REMEMBERED, LifeWord
from aetheris.protocol.fold.workers import Name, Names
from aetheris.protocol.messages.commands import WorkerEnd, WorkerEntry
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.refusal import WorkerIdTaken, refusal
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.lock import Lock
from aetheris.testkit.memory import MemoryLog
from aetheris.tool_executor.core.tries import Worker
from aetheris.tool_executor.identity import living
from aetheris.tool_executor.life_secrets import LifeSecrets
from tests.testkit.lives import ended_word, incarnation_of, left_word, secret_of_life

NAME = "w"


def entry(live: str | None, *ended: str, left: Sequence[str] = (), at: str | None = None) -> bytes:
    """A line, by the names of lives; with the words of those who have left or ended."""
    reported = WorkerEntry(
        worker_id=NAME,
        live=None if live is None else incarnation_of(live),
        since=at,
        left=tuple(map(left_word, left)),
        ended=tuple(map(ended_word, ended)),
    )
    return reported.model_dump_json().encode()


def end(of: str) -> tuple[str, bytes]:
    """A person's word, with the key that it lies under."""
    said = WorkerEnd(worker_id=NAME, incarnation=incarnation_of(of), by="ann", evidence="seen")
    return said.key, said.model_dump_json().encode()


class FoldedNames(Names):
    """The fold, asked by the names of lives; everybody's words count, or nobody's."""

    def __init__(self, *, heard: bool = True) -> None:
        super().__init__(lambda *_: heard)

    def takes(self, *lines: bytes | tuple[str, bytes] | None) -> list[bool]:
        """Which of them count."""
        return [self.take(*(one if isinstance(one, tuple) else (NAME, one))).counts for one in lines]

    @property
    def live(self) -> str | None:
        return self._short(self[NAME].live)

    @property
    def left(self) -> list[str | None]:
        return [self._short(one) for one in self[NAME].left]

    @property
    def ended(self) -> list[str | None]:
        return [self._short(one) for one in self[NAME].ended]

    def _short(self, incarnation: str | None) -> str | None:
        return next((one for one in "abcdefgxyz" if incarnation == incarnation_of(one)), incarnation)


def folded(*lines: bytes | tuple[str, bytes] | None) -> tuple[FoldedNames, list[bool]]:
    names = FoldedNames()
    return names, names.takes(*lines)


def test_of_two_that_start_at_once_the_second_is_void() -> None:
    names, counted = folded(entry("a"), entry("b"))
    assert (names.live, counted) == ("a", [True, False])
    names, counted = folded(entry("a"), entry("b", "a"), entry("c", "a"))
    assert (names.live, counted) == ("b", [True, True, False])


def test_who_has_ended_or_left_never_lives_again() -> None:
    names, counted = folded(entry("a"), entry("b", "a"), entry("a", "b"))
    assert (names.live, counted, names.ended) == (None, [True, True, False], ["a", "b"])
    names, counted = folded(entry("a"), entry(None, left="a"), entry("a"), entry("b"))
    assert (names.live, counted) == ("b", [True, True, False, True])


def test_a_person_ends_who_lives_and_the_name_is_free() -> None:
    names, counted = folded(entry("a"), end("a"), entry("a"), entry("b"))
    assert (names.live, counted) == ("b", [True, True, False, True])
    how = names[NAME].ended[incarnation_of("a")]
    assert (how.how, how.by, how.evidence) == ("human", "ann", "seen")


def test_a_late_word_about_who_lives_no_more_takes_nothing() -> None:
    names, counted = folded(entry("a"), entry("b", "a"), end("a"))
    assert (names.live, names.ended, counted) == ("b", ["a"], [True, True, True])
    assert names[NAME].ended[incarnation_of("a")].how == "lock", "what was known first"


def test_who_has_left_is_not_known_to_have_ended() -> None:
    names, counted = folded(entry("a"), entry(None, left=["a"]), entry("b"))
    assert (names.live, counted) == ("b", [True] * 3)
    assert names[NAME].may_act(incarnation_of("a"))
    names.takes(end("a"))
    assert not names[NAME].may_act(incarnation_of("a"))


def test_who_may_act_lives_or_has_left() -> None:
    names, _ = folded(entry("a"), entry(None, left=["a"]), entry("b"))
    assert [names[NAME].may_act(incarnation_of(one)) for one in ("a", "b", "z")] == [True, True, False]
    assert (NAME in names, "v" in names) == (True, False)


def test_an_end_is_told_once_and_who_has_ended_has_not_left() -> None:
    for said in (entry(None, "a", left=["a"]), end("a")):
        names, _ = folded(entry("a"), entry(None, left=["a"]))
        key, value = said if isinstance(said, tuple) else (NAME, said)
        assert [names.take(key, value).ended for _ in range(2)] == [[(NAME, incarnation_of("a"))], []]
        assert names.left == []


def test_who_repeats_what_he_says_takes_nothing_and_lives_since_the_same_time() -> None:
    names, counted = folded(entry("a", at="1"), entry("a", "z", at="2"))
    assert (counted, names[NAME].since, names.ended) == ([True, True], "1", ["z"])
    names.takes(entry("b", "a", at="3"))
    assert names[NAME].since == "3"


def test_an_entry_says_of_nobody_that_he_left_and_that_he_ended() -> None:
    names, _ = folded(entry("a"), entry(None, left=["a"]), entry("b"), entry(None, left=["b"]))
    reported = names[NAME].entry(NAME, incarnation_of("c"), None, ended=[ended_word("a")])
    assert (reported.left, reported.ended) == ((left_word("b"),), (ended_word("a"),))


_LIVES = f'{{"worker_id":"w","live":"{incarnation_of("x")}"'.encode()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        None,
        b"{",
        b"[]",
        b"null",
        b'{"worker_id":"v","live":null}',
        b'{"worker_id":"w","live":"x"}',
        b'{"worker_id":"w","live":"' + b"A" * 64 + b'"}',
        b'{"worker_id":"w","live":"' + b"a" * 65 + b'"}',
        _LIVES + b',"ended":["x"]}',
        _LIVES + b',"ended":[{"incarnation":"x","how":"lock"}]}',
        _LIVES + b',"left":"' + b"a" * 64 + b'"}',
        _LIVES + b',"left":[' + b",".join([b'"' + b"a" * 64 + b'"'] * 201) + b"]}",
        _LIVES + b',"ended":[' + b",".join([b'"' + b"a" * 64 + b'"'] * 14_000) + b"]}",
        b'{"worker_id":"w","live":' + b"[" * 100_000,
        b'{"worker_id":"w","incarnation":"x","by":"ann","evidence":"e"}',
    ],
)
def test_what_is_no_entry_of_the_name_is_void(value: bytes | None) -> None:
    names, counted = folded(entry("a"), value)
    assert (names.live, counted, names.ended, names.left) == ("a", [True, False], [], [])


@pytest.mark.parametrize("worker_id", ["", "w:v", "w" * 65, "w\n", "ä"])
def test_what_is_no_name_has_no_line(worker_id: str) -> None:
    names = FoldedNames()
    value = json.dumps({"worker_id": worker_id, "live": incarnation_of("a")}).encode()
    assert not names.take(worker_id, value).counts
    assert list(names) == []


# what others say of him


def test_nobody_says_of_another_that_he_has_ended_or_left() -> None:
    """A forger has the log and may write: the incarnation, words of others, and of himself."""
    mine = incarnation_of("a")
    for word in (mine, ended_word("x"), left_word("x"), incarnation_of("x"), mine[::-1], "0" * 64):
        for how in ("ended", "left"):
            forged = WorkerEntry.model_validate({"worker_id": NAME, "live": incarnation_of("x"), how: (word,)})
            names, counted = folded(entry("a"), forged.model_dump_json().encode())
            assert (names.live, counted) == ("a", [True, False])
            assert names[NAME].may_act(mine)


def test_who_has_seen_the_word_of_leaving_cannot_say_the_end() -> None:
    names, _ = folded(entry("a"), entry(None, left=["a"]))
    public = WorkerEntry(worker_id=NAME, ended=(left_word("a"),))
    names.takes(public.model_dump_json().encode())
    assert names[NAME].may_act(incarnation_of("a"))
    names.takes(entry(None, "a"))
    assert names.ended[-1] == "a"


def test_a_persons_word_that_is_not_the_gateways_ends_nobody() -> None:
    names = FoldedNames(heard=False)
    assert names.takes(entry("a"), end("a")) == [True, False]
    assert (names.live, names.ended) == ("a", [])


def test_a_persons_word_counts_under_its_own_key_alone() -> None:
    _, value = end("a")
    for key in (NAME, "v", f"v:{incarnation_of('a')}", f"{NAME}:{incarnation_of('b')}"):
        names = FoldedNames()
        names.takes(entry("a"))
        assert not names.take(key, value).counts
        assert names.live == "a"


def test_lines_of_a_former_life_said_again_change_nothing() -> None:
    history = [entry("a"), entry(None, left=["a"]), entry("b", "a"), end("b"), entry("c", "a", "b")]
    names, _ = folded(*history)
    before = (names.live, names.ended, names.left, names[NAME].since)
    for one in history:
        names.takes(one)
        assert (names.live, names.ended, names.left, names[NAME].since) == before


def test_an_end_before_its_beginning_is_of_that_life_alone() -> None:
    for said in (entry(None, "a"), end("a")):
        names, counted = folded(said, entry("a"), entry("b"))
        assert (names.live, names.ended, counted) == ("b", ["a"], [True, False, True])


def test_who_folds_what_compaction_left_knows_who_lives_and_who_has_ended() -> None:
    """A person's word lies under a key of its own: no line of the name takes its place."""
    lines = [entry("a"), end("a"), entry("b")]
    names, _ = folded(*lines[1:])
    assert (names.live, names.ended) == ("b", ["a"])


def test_all_orders_of_claims_have_one_that_lives_and_no_two_at_a_time() -> None:
    """Whoever folds a prefix agrees with everyone, and nobody is taken from his name but by a word about him."""
    seed = random.randrange(2**32)  # noqa: S311  printed where it fails
    draw = random.Random(seed)  # noqa: S311
    for _ in range(500):
        names = FoldedNames()
        for _ in range(12):
            live, known = names.live, set(names.ended)
            picked, left = draw.sample("abcde", draw.randrange(3)), draw.sample("abcde", draw.randrange(2))
            names.takes(entry(draw.choice([*"abcde", None]), *picked, left=left))
            assert set(names.ended) == known | set(picked), seed
            assert names.live not in (*names.ended, *names.left), seed
            if live is not None and names.live != live:
                assert live in (*picked, *left), seed


class WorkersTopic:
    """A log, folders with locks, and what stood down."""

    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog(1)
        self.folder = folder
        self.stood_down: list[str] = []
        self.secrets: dict[str, bytes] = {}
        """Of those who have lived here: what their folders hold."""
        self._count = itertools.count()

    def lock(self, *former: str) -> SimpleNamespace:
        """Of a folder that has seen these lives, by their names or as they are called in the log."""
        held: list[str] = []
        named = [one if len(one) == 64 else incarnation_of(one) for one in former]
        data = self.folder / str(next(self._count))
        (data / "workers").mkdir(parents=True)
        secrets = LifeSecrets(data, NAME)
        for one in former:
            secrets.keep(self.secrets.get(one) or secret_of_life(one))
        return SimpleNamespace(former=named, hold=held.append, held=held, secrets=secrets, data=data)

    @asynccontextmanager
    async def lives(self, lock: SimpleNamespace, log: MemoryLog | None = None) -> AsyncGenerator[Worker]:
        appender = self.log.appender()
        await appender.start()
        async with living(
            NAME,
            lock,  # pyright: ignore[reportArgumentType]
            lock.secrets,
            log=log or self.log,
            appender=appender,
            clock=SystemClock(),
            is_theirs=lambda *_: True,
            stand_down=self.stood_down.append,
        ) as worker:
            (self.secrets[worker.incarnation],) = (
                bytes.fromhex(one) for one in (lock.data / f"workers/{NAME}.secrets").read_text().split()[-1:]
            )
            yield worker

    async def say(self, line: bytes | tuple[str, bytes]) -> None:
        appender = self.log.appender()
        await appender.start()
        key, value = line if isinstance(line, tuple) else (NAME, line)
        kind = WorkerEntry if key == NAME else WorkerEnd
        said = kind.model_validate_json(value)
        await appender.append([(draft(Topic.WORKERS, said, key=key, id="x", source="test", time="t"),)])

    async def read(self) -> tuple[Name, Name]:
        """As who reads every record sees it, and as who reads what compaction leaves."""
        every, last = FoldedNames(), FoldedNames()
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
        assert (every.live, every.ended[incarnation_of("i1")].how) == (second.incarnation, "lock")
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
    assert names[NAME].live == incarnation_of("i3")
    async with workers.lives(lock):
        every, _ = await workers.read()
        assert {incarnation_of("i1"), incarnation_of("i2")} <= set(every.ended)


async def test_who_ends_in_good_order_leaves_the_name_and_claims_nothing(workers: WorkersTopic) -> None:
    async with workers.lives(workers.lock()) as first:
        pass
    async with workers.lives(workers.lock()) as second:
        every, last = await workers.read()
        assert (every.live, list(every.left), dict(every.ended)) == (second.incarnation, [first.incarnation], {})
        assert last.live == second.incarnation


async def test_who_reads_its_own_end_stands_down(workers: WorkersTopic) -> None:
    async with workers.lives(workers.lock()) as worker:
        said = WorkerEnd(worker_id=NAME, incarnation=worker.incarnation, by="ann", evidence="seen")
        await workers.say((said.key, said.model_dump_json().encode()))
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
        assert not every.ended
    assert workers.stood_down == []


async def test_whoever_lives_says_it_again_where_a_line_would_hide_an_end_or_himself(workers: WorkersTopic) -> None:
    await workers.say(entry("i1"))
    async with workers.lives(workers.lock("i1")) as worker:
        mine = WorkerEntry(worker_id=NAME, live=worker.incarnation).model_dump_json().encode()
        for forged in (mine, entry(None), entry("intruder")):
            await workers.say(forged)
            async with asyncio.timeout(10):
                while incarnation_of("i1") not in (await workers.read())[1].ended:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            _, last = await workers.read()
            assert last.live == worker.incarnation
    assert workers.stood_down == []


async def test_whose_secret_is_gone_is_not_known_to_have_ended(workers: WorkersTopic) -> None:
    await workers.say(entry("i1"))
    lock = workers.lock("i1")
    (lock.data / f"workers/{NAME}.secrets").write_bytes(b"\xff\n" + b"0" * 62 + b"\n")
    async with refused(), workers.lives(lock):
        pass


def test_secrets_are_kept_for_their_owner_alone_the_newest_of_them(tmp_path: Path) -> None:
    secrets = LifeSecrets(tmp_path, NAME)
    (tmp_path / "workers").mkdir()
    for number in range(MAX_REMEMBERED + 5):
        secrets.keep(secret_of_life(f"i{number}"))
    file = tmp_path / f"workers/{NAME}.secrets"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text().split()) == MAX_REMEMBERED
    newest = incarnation_of(f"i{MAX_REMEMBERED + 4}")
    known = secrets.of([incarnation_of("i0"), newest])
    assert {one: words.word(LifeWord.ENDED) for one, words in known.items()} == {
        newest: ended_word(f"i{MAX_REMEMBERED + 4}")
    }
    assert [one.name for one in file.parent.iterdir()] == [file.name]
    assert secret_of_life("i7").hex() not in repr(secrets.of([incarnation_of("i7")]))


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

    slow, lock = SlowAppender(inner, first), workers.lock()
    arguments = {"log": workers.log, "appender": slow, "clock": SystemClock(), "stand_down": workers.stood_down.append}
    anybody = {"is_theirs": lambda *_: True}
    async with refused(), living(NAME, lock, lock.secrets, **arguments, **anybody):  # pyright: ignore[reportArgumentType]
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
