"""What a strict workflow's code may not use, since it is another in each run: clocks, chance, files, network, threads.

Its calls of C functions are looked at while it runs, and what CPython's audit hooks tell of. Nothing is patched: other
code of the process, and what the body has called by name before, is as it was.
"""

import _thread
import datetime
import gc
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from aetheris.sdk.places import at_place, is_an_authors
from aetheris.sdk.workflows.errors import Misuse

_INSTEAD = {
    "clock": "ctx.now()",
    "chance": "ctx.random() or ctx.uuid(), or random.Random(seed) with one of them",
    "file": "a tool, or ctx.record()",
    "network": "a tool, or ctx.record()",
    "process": "a tool, or ctx.record()",
    "thread": "asyncio's tasks",
}
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_FUNCTIONS: dict[int, tuple[Any, str, str]] = {}
"""By identity: the function, what it is called, and what it draws on."""
_NOW = frozenset({"now", "utcnow", "today"})
_CHANCE: Any = getattr(random.random, "__self__", None)
"""The generator that all share: random.random() is a method of it."""
_DRAWS = frozenset({"random", "getrandbits"})
_AUDITED = {
    "open": "file",
    "os.": "file",
    "shutil.": "file",
    "tempfile.": "file",
    "glob.": "file",
    "sqlite3.": "file",
    "socket.": "network",
    "urllib.": "network",
    "http.": "network",
    "smtplib.": "network",
    "subprocess.": "process",
    "os.system": "process",
    "os.exec": "process",
    "os.fork": "process",
    "os.posix_spawn": "process",
}
_LETS = tuple(
    str(Path(str(module.__file__)).parent if str(module.__file__).endswith("__init__.py") else module.__file__)
    for name in ("logging", "linecache", "traceback", "importlib")
    if (module := sys.modules.get(name) or __import__(name))
)
"""What reads a clock, or files, for nothing that code decides by: log lines, sources in tracebacks, imports."""
_FROZEN = "<frozen importlib"


def _watch() -> None:
    clocks = [name for one in _CLOCKS for name in (one, f"{one}_ns")]
    for module, names, kind in (
        (time, (*clocks, "localtime", "ctime", "sleep"), "clock"),
        (os, ("urandom", "getrandom"), "chance"),
        (uuid, ("_generate_time_safe",), "chance"),
        (_thread, ("start_new_thread", "start_joinable_thread"), "thread"),
    ):
        for name in names:
            function = getattr(module, name, None)
            if function is not None:
                _FUNCTIONS[id(function)] = (function, f"{module.__name__}.{name}", kind)


_watch()


class StrictBody:
    """Watches one body; what it used first is `refused`, and its code gets no further, whatever it catches."""

    def __init__(self) -> None:
        self.refused: Misuse | None = None

    @contextmanager
    def watching(self) -> Generator[None]:
        """While its code runs."""
        before, outer = sys.getprofile(), _here.watched
        _hook_once()
        _here.watched = self
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(before)
            _here.watched = outer

    def heard(self, event: str) -> None:
        """CPython's audit tells of something that it does."""
        kind = _audited(event)
        if kind is not None:
            self._refuse(event, kind, sys._getframe(2))  # pyright: ignore[reportPrivateUsage]  # behind the hook

    def _look(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            known = _FUNCTIONS.get(id(called)) or _bound(called, frame)
            if known is not None:
                self._refuse(known[1], known[2], frame)

    def _refuse(self, what: str, kind: str, frame: FrameType) -> None:
        place = _place(frame)
        if place is None:
            return
        if self.refused is None:
            where = at_place(place, "an unknown place")
            self.refused = Misuse(f"{what} at {where}: a strict workflow has no {kind} of its own: {_INSTEAD[kind]}")
        raise self.refused


class _Watched(threading.local):
    """Who is watched in this thread; its code's tasks have contexts of their own, so none of those could say."""

    watched: StrictBody | None = None


_here = _Watched()
_hooked = False


def _hook_once() -> None:
    """Hooks can't be taken away again; where nobody is watched this one does nothing."""
    global _hooked  # noqa: PLW0603  of the process, as hooks are
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)


def _audit(event: str, _: Any) -> None:
    watched = _here.watched
    if watched is not None:
        watched.heard(event)


def _audited(event: str) -> str | None:
    fits = [name for name in _AUDITED if event == name or (event.startswith(name) and name != "open")]
    return _AUDITED[max(fits, key=len)] if fits else None


def _bound(called: Any, frame: FrameType) -> tuple[Any, str, str] | None:
    """A method that reads a clock or draws: of datetime's classes, or of the generator that all share."""
    owner, name = getattr(called, "__self__", None), getattr(called, "__name__", "")
    if name in _NOW and isinstance(owner, type) and issubclass(owner, datetime.date):
        return called, f"{owner.__name__}.{name}", "clock"
    if name in _DRAWS and owner is _CHANCE:
        return called, f"random.{name}", "chance"
    if name == "seed" and isinstance(owner, random.Random | super) and frame.f_locals.get("a", 0) is None:
        return called, "random.Random() without a seed", "chance"
    return None


def _place(frame: FrameType) -> tuple[str, int] | None:
    """The innermost line of the author's, else the innermost at all; None of what may be."""
    first, found = (frame.f_code.co_filename, frame.f_lineno), None
    collectors = {_code(callback) for callback in gc.callbacks}
    here: FrameType | None = frame
    while here is not None:
        file = here.f_code.co_filename
        if file.startswith((_FROZEN, *_LETS)) or here.f_code in collectors:
            return None
        if found is None and is_an_authors(file) and not file.startswith(_STANDARD):
            found = (file, here.f_lineno)
        here = here.f_back
    return found or first


def _code(callback: Any) -> CodeType | None:
    """The code of one of gc.callbacks: CPython calls it amid whatever code runs, which did not ask for it."""
    function = getattr(callback, "__func__", callback)
    return getattr(function, "__code__", None) or getattr(type(callback).__call__, "__code__", None)


_STANDARD = str(Path(str(os.__file__)).parent)
