"""Which leases are renewed, and for how long: by a thread of its own, and never for ever."""

import asyncio
from collections.abc import Sequence

import pytest

from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.redis.leases import Lease
from aetheris.testkit.clock import VirtualClock
from aetheris.tool_executor.heartbeat import Heartbeat, Watched

TTL_S, PATIENCE_S = 5.0, 60.0
HERE, THERE = object(), object()


class Renewals:
    """Remembers what was renewed last."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def extend(self, leases: Sequence[Lease]) -> list[bool]:
        self.keys = [lease.idempotency_key for lease in leases]
        return [True] * len(leases)


class HeartbeatBench:
    def __init__(self) -> None:
        self.clock, self.renewals = VirtualClock(), Renewals()
        self.heartbeat = Heartbeat(self.renewals, TTL_S, self.clock, PATIENCE_S)  # pyright: ignore[reportArgumentType]

    async def renewed(self) -> list[str]:
        """What is renewed now; the event loop has just turned."""
        self.renewals.keys = []
        self.heartbeat.turn()
        await self.heartbeat.beat()
        return self.renewals.keys


@pytest.fixture
def bench() -> HeartbeatBench:
    return HeartbeatBench()


async def test_a_grant_in_hand_is_renewed_until_all_its_holders_have_let_go(bench: HeartbeatBench) -> None:
    bench.heartbeat.hold("k", "l")
    bench.heartbeat.hold("k", "l")
    bench.heartbeat.let_go("k", "l")
    assert await bench.renewed() == ["k"]
    bench.heartbeat.let_go("k", "l")
    bench.heartbeat.let_go("k", "l")
    assert await bench.renewed() == []


async def test_a_call_is_renewed_for_its_time_and_a_little_more(bench: HeartbeatBench) -> None:
    bench.heartbeat.hold("k", "l")
    await bench.clock.advance(10 * PATIENCE_S)
    assert await bench.renewed() == ["k"], "it has not begun"
    bench.heartbeat.begin("k", "l", 20.0)
    await bench.clock.advance(20.0 + PATIENCE_S)
    assert await bench.renewed() == ["k"]
    await bench.clock.advance(0.1)
    assert await bench.renewed() == []


async def test_who_can_not_report_renews_nothing_of_that_partition(bench: HeartbeatBench) -> None:
    bench.heartbeat.hold("here", "l", HERE)
    bench.heartbeat.hold("there", "l", THERE)
    with bench.heartbeat.appending(HERE):
        await bench.clock.advance(PATIENCE_S)
        assert await bench.renewed() == ["here", "there"]
        await bench.clock.advance(0.1)
        with bench.heartbeat.appending(HERE):
            assert await bench.renewed() == ["there"], "another that has just begun does not help"
    assert await bench.renewed() == ["here", "there"]


async def test_an_append_that_fails_is_none_that_stands(bench: HeartbeatBench) -> None:
    class Broken:
        async def append(self, groups: Sequence[object]) -> None:
            raise ConnectionError(len(groups))

    bench.heartbeat.hold("k", "l", HERE)
    with pytest.raises(ConnectionError):
        await Watched(Broken(), bench.heartbeat, HERE, 0).append([])  # pyright: ignore[reportArgumentType]
    await bench.clock.advance(2 * PATIENCE_S)
    assert await bench.renewed() == ["k"]


async def test_a_loop_that_does_not_turn_renews_nothing_in_the_end(bench: HeartbeatBench) -> None:
    bench.heartbeat.hold("k", "l")
    bench.heartbeat.turn()
    await bench.clock.advance(PATIENCE_S)
    await bench.heartbeat.beat()
    assert bench.renewals.keys == ["k"]
    bench.renewals.keys = []
    await bench.clock.advance(0.1)
    await bench.heartbeat.beat()
    assert bench.renewals.keys == []
    assert await bench.renewed() == ["k"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_that_ends_ends_the_process() -> None:
    heartbeat = Heartbeat(Renewals(), 0.03, SystemClock(), PATIENCE_S)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RuntimeError):
        await asyncio.wait_for(heartbeat.run("redis://127.0.0.1:x"), 20)
