"""Permits that come back together are taken together, and in turn; nobody's share of them is another's."""

import asyncio

from aetheris.tool_executor.slots import Slots

LIMIT, SHARE = 20, 2


class Waiter:
    """Takes permits for one tenant, as many as it wants and gets."""

    def __init__(self, slots: Slots, tenant: str, wanted: int) -> None:
        self.slots, self.tenant, self.wanted, self.held = slots, tenant, wanted, 0
        self.wake()

    def wake(self) -> None:
        while self.held < self.wanted and self.slots.may_take(self.tenant):
            self.slots.take(self.tenant)
            self.held += 1
        if self.held < self.wanted:
            self.slots.wait(self.wake)


def full() -> tuple[Slots, list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    slots = Slots(LIMIT, lambda work: tasks.append(asyncio.create_task(work)))
    Waiter(slots, "first", LIMIT)
    return slots, tasks


async def test_permits_that_come_back_together_are_given_out_together_and_in_turn() -> None:
    slots, tasks = full()
    waiting = [Waiter(slots, "first", 2), Waiter(slots, "first", 2)]
    for _ in range(3):
        slots.release("first")
    await tasks.pop()
    assert not tasks
    assert [one.held for one in waiting] == [2, 1]
    slots.release("first")
    await tasks.pop()
    assert [one.held for one in waiting] == [2, 2]
    assert slots.taken == LIMIT
    slots.release("first")
    assert not tasks


async def test_a_tenant_has_its_share_where_another_has_filled_the_whole() -> None:
    slots, tasks = full()
    second = Waiter(slots, "second", SHARE + 1)
    assert second.held == SHARE
    assert not slots.may_take("first")
    slots.release("second")
    second.held -= 1
    await tasks.pop()
    assert second.held == SHARE, "its own share came back, so it is woken although all others are out"


async def test_shares_have_an_end() -> None:
    slots, _ = full()
    held = [Waiter(slots, f"tenant-{number}", SHARE).held for number in range(LIMIT)]
    assert sum(held) == LIMIT
    assert slots.taken == 2 * LIMIT
