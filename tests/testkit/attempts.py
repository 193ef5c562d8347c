"""A second chance is a chance: an attempt's names are its own, and what a failed one left behind is cleared away."""

import gc
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from uuid import uuid4

_clearing: list[Callable[[], None]] = []


def fresh(name: str) -> str:
    """A tag, a file's name or a key that no attempt before has used: NAME-hex."""
    return f"{name}-{uuid4().hex[:8]}"


@contextmanager
def cleared_by(clear: Callable[[], None]) -> Generator[None]:
    """Within the block `clear` is called after each attempt that failed; it may raise TimeoutError."""
    _clearing.append(clear)
    try:
        yield
    finally:
        _clearing.remove(clear)


def clear_away() -> None:
    """What a failed attempt left in shared parts, and what it left open, whose warnings would fail the next one."""
    for clear in _clearing:
        with suppress(TimeoutError):
            clear()
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
