"""An event loop of one body: nothing happens in it but what its own code does, and what it is told, one by one.

What asyncio has of tasks runs in it as anywhere: gather, wait, TaskGroup, timeout, sleep, locks, queues. Its time is
that of its timers, which are recorded. What would bring in something from outside is refused: sockets, processes,
threads.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from itertools import count
from typing import Any, NoReturn, TypeVar, cast
from weakref import WeakSet

from aetheris.sdk.workflows.errors import Misuse

T = TypeVar("T")
_MOST_AT_THE_END = 10_000
"""Steps of tasks that are cancelled."""


def _refused(*_: Any, **__: Any) -> NoReturn:
    raise Misuse("a workflow does no I/O of its own and has no threads: have a tool called")


_REFUSED: Any = _refused


class BodyFuture(asyncio.Future[Any]):
    """A future that has a place of its own in sets, the same in each run: addresses differ."""

    def __init__(self, loop: "BodyLoop") -> None:
        super().__init__(loop=loop)
        self._place = loop.next_place()

    def __hash__(self) -> int:
        return self._place


class BodyTask(asyncio.Task[Any]):
    """A task that has a place of its own in sets, the same in each run.

    Those of thousands of bodies have the same places, so they must not lie in one set, as asyncio keeps them.
    """

    def __init__(self, coro: Coroutine[Any, Any, Any], loop: "BodyLoop", **options: Any) -> None:
        self._place = loop.next_place()
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._place


class BodyLoop(asyncio.AbstractEventLoop):
    """Runs what is ready, and returns when nothing is."""

    def __init__(self) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        """By identity: two of one time and one callback are equal."""
        self._places = count(1)
        self._now_s = 0.0
        self._is_running = False
        self._tasks: WeakSet[BodyTask] = WeakSet()

    def cancel_all(self) -> None:
        """Have every task end, as far as it does so within a while."""
        for task in sorted(self._tasks, key=hash):
            task.cancel()
        with suppress(SystemExit, KeyboardInterrupt):
            self.run_ready(_MOST_AT_THE_END)
        self._ready.clear()

    def run_ready(self, most: int | None = None) -> None:
        """Until nothing is ready, or so much was done; raises what no task keeps: SystemExit, KeyboardInterrupt."""
        outer = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        task = asyncio.current_task(outer) if outer is not None else None
        if outer is not None and task is not None:
            asyncio._leave_task(outer, task)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage]
        self._is_running = True
        try:
            for _ in count() if most is None else range(most):
                if not self._ready:
                    break
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()  # pyright: ignore[reportPrivateUsage]
        finally:
            self._is_running = False
            asyncio._set_running_loop(outer)  # pyright: ignore[reportPrivateUsage]
            if outer is not None and task is not None:
                asyncio._enter_task(outer, task)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]

    def timers(self) -> list[asyncio.TimerHandle]:
        """Those that are set and not cancelled, in the order in which they were set."""
        return list(self._timers.values())

    def fire(self, timer: asyncio.TimerHandle) -> None:
        """A timer's time has come."""
        if self._timers.pop(id(timer), None) is not None:
            self._now_s = max(self._now_s, timer.when())
            self._ready.append(timer)

    def next_place(self) -> int:
        """The next number of a future or a task."""
        return next(self._places)

    def time(self) -> float:
        """Seconds, moved by timers alone."""
        return self._now_s

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """As the next thing but what is ready."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """When its timer has settled."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers[id(timer)] = timer
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """The same, from now on."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers.pop(id(handle), None)

    def create_future(self) -> asyncio.Future[Any]:
        """See BodyFuture."""
        return BodyFuture(self)

    def create_task(  # pyright: ignore[reportIncompatibleMethodOverride]  of each version of Python another
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        """See BodyTask."""
        task = BodyTask(cast("Coroutine[Any, Any, Any]", coro), self, **options)
        self._tasks.add(task)
        asyncio._unregister_task(task)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]  see BodyTask
        return cast("asyncio.Task[T]", task)

    def get_task_factory(self) -> None:
        """There is none."""

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Whether its code runs just now."""
        return self._is_running

    def is_closed(self) -> bool:
        """It has nothing that could be closed."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody has awaited is nobody's: the body's own end is what counts."""

    def call_soon_threadsafe(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: nothing comes from another thread."""
        raise Misuse("a workflow has no threads: what another thread says comes at another time in each run")

    run_in_executor = _REFUSED
    getaddrinfo = getnameinfo = _REFUSED
    create_connection = create_server = create_unix_connection = create_unix_server = _REFUSED
    create_datagram_endpoint = connect_accepted_socket = sendfile = start_tls = _REFUSED
    connect_read_pipe = connect_write_pipe = subprocess_exec = subprocess_shell = _REFUSED
    add_reader = remove_reader = add_writer = remove_writer = add_signal_handler = remove_signal_handler = _REFUSED
    sock_recv = sock_recv_into = sock_sendall = sock_connect = sock_accept = sock_sendfile = _REFUSED
    sock_recvfrom = sock_recvfrom_into = sock_sendto = _REFUSED
    run_forever = run_until_complete = _REFUSED
