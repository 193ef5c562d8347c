"""What a call that has raised may have left behind: tasks, threads, child processes (docs/guarantees.md, "In doubt").

Whatever can't be told to be somebody else's counts as the call's own: only a sure "nothing" is of use. Not seen are
processes that have detached themselves, threads below Python, and bare timers of the event loop.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

T = TypeVar("T")

_CHILDREN = "/proc/self/task/{}/children"


class RunningCall:
    """One call of a tool; what it starts is known by the context that it runs in."""

    __slots__ = ("__weakref__", "is_over", "is_unsure")

    def __init__(self) -> None:
        self.is_over = self.is_unsure = False


_CALL: ContextVar[RunningCall | None] = ContextVar("aetheris_call", default=None)
_OURS: WeakSet[threading.Thread] = WeakSet()
"""Threads that do nothing for a tool, or are watched themselves."""
_CHILDREN_OF_THE_ENGINE: set[int] = set()
_STARTED: "WeakKeyDictionary[asyncio.Task[Any] | Future[Any], RunningCall]" = WeakKeyDictionary()
"""Tasks, and work of the event loop's pool → the call that started it."""


def watch() -> None:
    """See from now on what calls start in the running event loop."""
    loop = asyncio.get_running_loop()
    if loop.get_task_factory() is None:
        loop.set_task_factory(_task)
        loop.set_default_executor(_Pool())


class Calling:
    """What is started in the block, and in what that starts, is the call's.

    There is one for each call: a generator's context would take three times as long.
    """

    __slots__ = ("_call", "_token")

    def __enter__(self) -> RunningCall:
        self._call = RunningCall()
        self._token = _CALL.set(self._call)
        return self._call

    def __exit__(self, *_: object) -> None:
        self._call.is_over = True
        _CALL.reset(self._token)


@contextmanager
def of_the_engine() -> Generator[None]:
    """Threads that come up in the block are no tool's."""
    before = set(threading.enumerate())
    yield
    _OURS.update(set(threading.enumerate()) - before)


def know_child(pid: int) -> None:
    """A process of the engine: nothing of a call that is made here lives in it."""
    _CHILDREN_OF_THE_ENGINE.add(pid)


def forget_child(pid: int) -> None:
    """It has ended; another may have its number."""
    _CHILDREN_OF_THE_ENGINE.discard(pid)


def unsure() -> None:
    """The call that says so may leave behind what nobody here can see."""
    call = _CALL.get()
    if call is not None:
        call.is_unsure = True


def know(thread: threading.Thread) -> None:
    """A thread of the engine, or one that runs a call and is watched by it."""
    _OURS.add(thread)


def nothing_lives(call: RunningCall) -> bool:
    """Whether a call that has just returned can certainly not act any more from this process or a child of it."""
    if call.is_unsure or asyncio.get_running_loop().get_task_factory() is not _task:
        return False
    return not (_any_work(call) or _any_thread() or _any_child())


def _any_work(call: RunningCall) -> bool:
    """Of its own; or left by a call that is over, which may serve this one."""
    try:
        started = list(_STARTED.items())
    except RuntimeError:  # another thread has just added some
        return True
    return any((by is call or by.is_over) and not work.done() for work, by in started)


def _any_thread() -> bool:
    main = threading.main_thread()
    return any(thread is not main and thread not in _OURS for thread in threading.enumerate())


def _any_child() -> bool:
    """Looked for twice: the kernel may pass over one while another ends."""
    known = {str(pid) for pid in _CHILDREN_OF_THE_ENGINE}
    return any(_alive(pid) for _ in range(2) for pid in _children() if pid not in known)


def _children() -> list[str]:
    """The process ids of all children; "?" where the system doesn't tell."""
    found: list[str] = []
    if not os.path.exists(_CHILDREN.format(os.getpid())):
        return ["?"]
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(_CHILDREN.format(thread), encoding="ascii") as children:
                found += children.read().split()
        except OSError:
            continue  # the thread has ended; what it had started is another's now
    return found


def _alive(pid: str) -> bool:
    """Also what can't be told; a zombie is dead."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return pid == "?"
    except OSError:
        return True


def _task(loop: asyncio.AbstractEventLoop, coro: Any, *, context: Context | None = None, **options: Any) -> Any:
    if context is None:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        call = _CALL.get()
    else:
        task = asyncio.Task(coro, loop=loop, context=context, **options)
        call = context.get(_CALL)
    if call is not None:
        _STARTED[task] = call
    return task


class _Pool(ThreadPoolExecutor):
    """The event loop's own, which knows whose work it does."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="pool", initializer=_know_this_thread)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        call = _CALL.get()
        if call is not None:
            _STARTED[future] = call
        return future


def _know_this_thread() -> None:
    _OURS.add(threading.current_thread())
