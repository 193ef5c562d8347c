"""Permits that come back together are taken together, and in turn."""

import asyncio

from aetheris.tool_executor.slots import Slots

LIMIT = 3


async def test_permits_that_come_back_together_are_given_out_together() -> None:
    tasks: list[asyncio.Task[None]] = []
    slots = Slots(LIMIT, lambda work: tasks.append(asyncio.create_task(work)))
    woken: list[tuple[str, int]] = []

    def waiter(name: str, wanted: int) -> None:
        left = wanted

        def wake() -> None:
            nonlocal left
            took = 0
            while left and slots.take(wake):
                left, took = left - 1, took + 1
            woken.append((name, took))

        wake()

    waiter("holds", LIMIT)
    waiter("first", 2)
    waiter("second", 2)
    for _ in range(LIMIT):
        slots.release()
    await tasks.pop()
    assert not tasks
    slots.release()
    await tasks.pop()
    assert woken == [("holds", LIMIT), ("first", 0), ("second", 0), ("first", 2), ("second", 1), ("second", 1)]
    assert slots.taken == LIMIT
    slots.release()
    assert not tasks
