"""Who may join a group under a name: nobody beside another who lives."""

import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping

import pytest

from aetheris.runtime.base.refusal import WorkerIdTaken
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.log.names import unclaimed

SESSION_S = 6.0

Looks = Iterable[Mapping[str, str] | Exception]


class Clock:
    """Jumps over each sleep."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def shows(looks: Looks) -> Callable[[], Awaitable[Mapping[str, str]]]:
    """What the brokers say, look after look; the last for ever."""
    *first, last = looks
    coming = itertools.chain(first, itertools.repeat(last))

    async def ask() -> Mapping[str, str]:
        found = next(coming)
        if isinstance(found, Exception):
            raise found
        return found

    return ask


async def waited_s(looks: Looks, ended: Iterable[str] = ()) -> float:
    clock = Clock()
    await unclaimed(shows(looks), "w", frozenset(ended), clock=clock, session_timeout_s=SESSION_S)  # pyright: ignore[reportArgumentType]
    return clock.now_s


@pytest.mark.parametrize("there", [{}, {"v-1": "v", "": "", "w2-1": "w2"}])
async def test_a_name_that_nobody_has_is_free_at_once(there: Mapping[str, str]) -> None:
    assert await waited_s([there]) == 0.0


async def test_who_is_proven_to_have_ended_is_not_waited_for() -> None:
    assert await waited_s([{"w-1": "w", "v-1": "v"}], ["w-0", "w-1"]) == 0.0


async def test_who_goes_with_its_session_has_ended() -> None:
    assert 0 < await waited_s([{"w-1": "w"}, {"w-1": "w"}, {"v-1": "v"}]) < SESSION_S


async def test_who_stays_lives() -> None:
    with pytest.raises(WorkerIdTaken, match="another process lives as w:"):
        await waited_s([{"w-1": "w"}])


async def test_each_that_comes_is_given_its_sessions() -> None:
    """One that restarts again and again is several, of which none has shown that it lives."""
    looks = [{f"w-{number // 20}": "w"} for number in range(400)]
    assert await waited_s([*looks, {}]) > 10 * SESSION_S


async def test_brokers_that_cannot_say_keep_nobody_from_joining() -> None:
    assert await waited_s([LogUnreachable("no coordinator")]) == 0.0


async def test_who_is_stopped_waits_no_longer() -> None:
    clock = Clock()
    await unclaimed(
        shows([{"w-1": "w"}]),
        "w",
        (),
        clock=clock,  # pyright: ignore[reportArgumentType]
        session_timeout_s=SESSION_S,
        stopped=lambda: clock.now_s > 1,
    )
    assert clock.now_s < 2
