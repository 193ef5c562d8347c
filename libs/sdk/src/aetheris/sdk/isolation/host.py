"""The process that holds the tools of one module: it imports them once, and forks for each call.

It is started afresh, with an environment of its own, and has never had a credential. What it says is believed of calls
of its own tools, and of nothing else.
"""

import gc
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from aetheris.sdk.inheritance import kept_by_children
from aetheris.sdk.isolation import call_process, kernel
from aetheris.sdk.isolation.frames import packed, receive
from aetheris.sdk.loader import Toolbox, examine

LARGEST_ORDER = 4096
"""Bytes of a message about a call, either way."""
_SWEEP_WITHIN_S = 1.0
_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class Loading:
    """A module, and the folder that it may lie in."""

    source: str
    folder: Path | None


def main(keeper: int, orders: int, loading: int) -> NoReturn:
    """Load what the executor names, then fork for calls until it hangs up.

    Args:
        keeper: the process above.
        orders, loading: descriptors of the two sockets to the executor.
    """
    with socket.socket(fileno=loading) as asking:
        toolbox = _loaded(asking, asked_to_load(keeper, asking))
    gc.collect()
    gc.freeze()
    gc.disable()  # a call's process doesn't live long, and each page that the collector touches is copied
    _Host(socket.socket(fileno=orders), toolbox).run()


def asked_to_load(keeper: int, asking: socket.socket) -> Loading:
    """What this process is to load, once it can do no more than what it loads may."""
    kernel.end_with(keeper)
    kernel.without_capabilities()
    kernel.signals_stay_within()
    kernel.unreadable()
    kernel.adopt_orphans()
    asked = receive(asking)
    if asked is None:
        os._exit(1)
    kernel.reads_nothing_of(asked["closed"])
    for descriptor in asked["kept"]:
        kept_by_children(descriptor)
    return Loading(asked["source"], Path(asked["folder"]) if asked["folder"] else None)


def _loaded(asking: socket.socket, wanted: Loading) -> Toolbox:
    toolbox, faults = examine(wanted.source, wanted.folder)
    tools = [{"entry": tool.registry_entry(), "kind": tool.kind} for tool in toolbox]
    asking.sendall(packed({"tools": tools, "faults": [str(fault) for fault in faults]}))
    return toolbox


class _Host:
    def __init__(self, orders: socket.socket, toolbox: Toolbox) -> None:
        self._orders = orders
        self._toolbox = toolbox
        self._calls: dict[int, int] = {}
        """Process → the number of its call."""
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._can_tell = True
        self._own = set(self._children())
        """Children of the module itself, from its import, that live: a call may have handed work to them."""

    def run(self) -> NoReturn:
        while True:
            ready, _, _ = select.select([self._orders, self._woken], [], [])
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._reap()
            if self._orders in ready:
                self._take()

    def _take(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._orders, LARGEST_ORDER, 1)
        if not data:
            os._exit(0)  # the executor has ended, and every call with it
        order = json.loads(data)
        if descriptors:
            self._begin(order["call"], socket.socket(fileno=descriptors[0]))
        else:
            for pid in (pid for pid, call in self._calls.items() if call == order["kill"]):
                os.kill(pid, signal.SIGKILL)

    def _begin(self, call: int, connection: socket.socket) -> None:
        host = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            connection.close()
            self._tell({"not_begun": call})
            return
        if pid == 0:
            try:
                self._orders.close()
                os.close(self._woken)
                call_process.serve(connection, self._toolbox, host)
            finally:
                os._exit(0)
        connection.close()
        self._calls[pid] = call

    def _reap(self) -> None:
        """What a call's process leaves behind comes to us when it ends, and is killed."""
        over: list[tuple[int, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._own.discard(pid)
            if pid in self._calls:
                over.append((self._calls.pop(pid), os.waitstatus_to_exitcode(status)))
        if over:
            nothing_lives = self._swept()
            for call, status in over:
                self._tell({"ended": call, "status": status, "all": nothing_lives})

    def _swept(self) -> bool:
        """Kill every child that is no call's: a call adopts what it starts, so these are of calls that have ended.

        Returns whether nothing lives that could act for them, the module's own processes and threads among it.
        """
        until_s = time.monotonic() + _SWEEP_WITHIN_S
        while left := [pid for pid in self._children() if pid not in self._calls and pid not in self._own]:
            if time.monotonic() > until_s:
                return False
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(_PAUSE_S)
        return self._can_tell and not self._own and threading.active_count() == 1

    def _children(self) -> Collection[int]:
        try:
            return kernel.children()
        except OSError:
            self._can_tell = False
            return ()

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(OSError):
            self._orders.send(json.dumps(message).encode())
