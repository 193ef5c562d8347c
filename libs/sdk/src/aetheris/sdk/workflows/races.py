"""What waits for several things at once, or for a time of day: alike in each run of the same code."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class AsCompleted(Generic[T]):
    """An iteration over tasks, each when it is done: in the order in which they end."""

    def __init__(self, *wanted: Awaitable[T]) -> None:
        self._left = len(wanted)
        self._done: asyncio.Queue[asyncio.Future[T]] = asyncio.Queue()
        for one in wanted:
            asyncio.ensure_future(one).add_done_callback(self._done.put_nowait)

    def __aiter__(self) -> "AsCompleted[T]":
        return self

    async def __anext__(self) -> "asyncio.Future[T]":
        if self._left == 0:
            raise StopAsyncIteration
        self._left -= 1
        return await self._done.get()


async def first_of(*wanted: Awaitable[T]) -> tuple[int, T]:
    """See WorkflowContext.first."""
    if not wanted:
        raise ValueError("first of nothing")
    tasks: list[asyncio.Future[T]] = [asyncio.ensure_future(one) for one in wanted]
    try:
        done = await anext(AsCompleted(*tasks))
        return tasks.index(done), done.result()
    finally:
        for one in tasks:
            one.cancel()


class TimeoutAt:
    """See WorkflowContext.timeout_at."""

    def __init__(self, comes: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`comes`: waits until the time has come."""
        self._comes = comes
        self._timeout = asyncio.timeout(None)
        self._waiting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "TimeoutAt":
        await self._timeout.__aenter__()
        self._waiting = asyncio.create_task(self._wait())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if self._waiting is not None:
            self._waiting.cancel()
        return await self._timeout.__aexit__(kind, error, traceback)

    async def _wait(self) -> None:
        await self._comes()
        self._timeout.reschedule(asyncio.get_running_loop().time())
