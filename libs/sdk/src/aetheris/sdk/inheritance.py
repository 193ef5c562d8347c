"""Descriptors that every child of this process keeps open, however it is started.

What is forked has them, and so has what libc (`os.system`) or uvloop starts, once they are inheritable. `subprocess`
and `multiprocessing` close in a child whatever they weren't told to pass on; both do so by
`_posixsubprocess.fork_exec`, which takes the descriptors to keep.
"""

import _posixsubprocess
import os
import subprocess
from collections.abc import Callable
from typing import Any

_KEPT: set[int] = set()
_PASSED = 3
"""Which of fork_exec's arguments says what to keep: a sorted tuple, in every Python from 3.11."""


def kept() -> list[int]:
    """The descriptors that children keep."""
    return sorted(_KEPT)


def kept_by_children(descriptor: int) -> None:
    """From now on every child of this process has it open until it ends, or closes it itself."""
    os.set_inheritable(descriptor, True)
    if not _KEPT:
        for module, name in ((_posixsubprocess, "fork_exec"), (subprocess, "_fork_exec")):
            setattr(module, name, _keeping(getattr(module, name)))
    _KEPT.add(descriptor)


def _keeping(fork_exec: Callable[..., int]) -> Callable[..., int]:
    def keeping(*arguments: Any) -> int:
        passed = tuple(sorted({*arguments[_PASSED], *_KEPT}))
        return fork_exec(*arguments[:_PASSED], passed, *arguments[_PASSED + 1 :])

    return keeping
