"""What modules of tools start as they are imported: it lives in their process while calls fork from it."""

import importlib
import threading
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from aetheris.sdk import loader
from aetheris.sdk.places import at_place

_OURS = (loader.__file__, importlib.__file__)


class StartedThreads:
    """Python threads that were started in a block, each with the line of the module that was being imported."""

    def __init__(self) -> None:
        self._started: list[tuple[threading.Thread, tuple[str, int] | None]] = []

    def took(self, thread: threading.Thread) -> None:
        """It is started just now."""
        self._started.append((thread, _importing()))

    def places(self) -> Sequence[str]:
        """File and line of each that lives."""
        return [at_place(place, thread.name) for thread, place in self._started if thread.is_alive()]


@contextmanager
def threads_started() -> Generator[StartedThreads]:
    """In the block modules are imported."""
    found, start = StartedThreads(), threading.Thread.start

    def starts(self: threading.Thread) -> None:
        start(self)
        found.took(self)

    threading.Thread.start = starts
    try:
        yield found
    finally:
        threading.Thread.start = start


def _importing() -> tuple[str, int] | None:
    """The outermost line below the loader: of the tools' own module, also where what it imports starts the thread."""
    frames = [one for one in traceback.extract_stack() if not one.filename.startswith("<")]
    last = max((number for number, one in enumerate(frames) if one.filename in _OURS), default=-1)
    below = frames[last + 1 :]
    return (below[0].filename, below[0].lineno) if last >= 0 and below[0].lineno is not None else None
