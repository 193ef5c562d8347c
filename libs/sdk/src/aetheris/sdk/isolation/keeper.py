"""The process above that of a module's tools: it runs nothing of theirs, and sees all that they start to its end.

Whatever a tool starts, and whatever of its own processes it kills, has this one above it: the nearest that adopts
orphans. It ends by 0 when nothing below it lives, and only then: who has started it is told so by that alone.
"""

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from aetheris.sdk.isolation import kernel
from aetheris.sdk.isolation.frames import packed, receive

_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.1


Program = Callable[[int, int, int], NoReturn]
"""What the module's process does: from its keeper's process id, and the descriptors `orders` and `loading`."""


def main(program: Program, executor: int, identity: tuple[int, int], descriptors: tuple[int, int, int]) -> NoReturn:
    """Start the module's process, and end all that comes of it when that ends, or the executor hangs up or ends.

    Args:
        program: what the module's process does.
        executor: its process.
        identity: the user and the group that the module's process runs as; -1: as this one.
        descriptors: of a socket on which nobody says anything, the lifeline, and of the two of the module's process.
    """
    lifeline, orders, loading = descriptors
    user, group = identity
    kernel.end_with(executor, by=signal.SIGTERM)
    kernel.unreadable()
    kernel.adopt_orphans()
    if user < 0:
        kernel.without_capabilities()
    elif lacks := kernel.lacks_for_another_user():
        _refuse(loading, f"AETHERIS_TOOL_USER is set: its tools' processes can't be had without {', '.join(lacks)}")
    woken = _woken()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            for descriptor in (lifeline, woken, signal.set_wakeup_fd(-1)):
                os.close(descriptor)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            if user >= 0:
                os.setgroups([])
                os.setgid(group)
                os.setuid(user)
            program(keeper, orders, loading)
        finally:
            os._exit(1)
    os.close(orders)
    os.close(loading)
    while _lives(pid) and lifeline not in select.select([lifeline, woken], [], [])[0]:
        if _told(woken):
            break
    _end_all()
    os._exit(0)


def _refuse(loading: int, why: str) -> NoReturn:
    with socket.socket(fileno=loading) as asking:
        receive(asking)
        asking.sendall(packed({"faults": [why]}))
    os._exit(0)


def _woken() -> int:
    """A descriptor that has something to read when a child has ended, or this process is to end."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    return woken


def _told(woken: int) -> bool:
    """Whether it is to end."""
    with suppress(BlockingIOError):
        return signal.SIGTERM in os.read(woken, 4096)
    return False


def _lives(pid: int) -> bool:
    """Whether the module's process does; its orphans are buried along the way."""
    with suppress(ChildProcessError):
        while ended := os.waitpid(-1, os.WNOHANG)[0]:
            if ended == pid:
                return False
        return True
    return False


def _end_all() -> None:
    """Returns when no child is left: what a child has started is one when the child has ended."""
    pause_s = _PAUSE_S
    while True:
        with suppress(OSError):
            for pid in kernel.children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pause_s = _PAUSE_S
        except ChildProcessError:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
