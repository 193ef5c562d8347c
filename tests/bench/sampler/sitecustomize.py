"""In the processes of a bench, by PYTHONPATH: samples each of their threads by the CPU that it has had.

A thread that waits, for work or for a core, has none. SIGUSR1 begins, SIGUSR2 ends and writes
`$CPU_SAMPLES/<pid>`: a line a stack, outermost frame first, and its ns of CPU, as flame graphs are made of.
"""

import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

_INTERVAL_S = 0.001
"""Of the process' CPU; the kernel makes it one of its ticks."""
_CALM_NS = 20_000
"""A thread that has had less since it was last seen was not what the sample is of."""

_spent_ns: Counter[tuple[CodeType, ...]] = Counter()
_seen_ns: dict[int, int] = {}


def _begin(_number: int, _frame: FrameType | None) -> None:
    _spent_ns.clear()
    _seen_ns.update({thread: _cpu_ns(thread) for thread in sys._current_frames()})
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL_S, _INTERVAL_S)


def _sample(_number: int, frame: FrameType | None) -> None:
    own = threading.get_ident()
    for thread, innermost in sys._current_frames().items():
        now_ns = _cpu_ns(thread)
        had_ns = now_ns - _seen_ns.setdefault(thread, 0)
        if had_ns > _CALM_NS:
            _spent_ns[_stack(frame if thread == own else innermost)] += had_ns
            _seen_ns[thread] = now_ns
    _seen_ns[own] = _cpu_ns(own)  # without what this took


def _end(_number: int, _frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    lines = (f"{';'.join(map(_name, stack))} {spent}\n" for stack, spent in _spent_ns.items())
    out = Path(os.environ["CPU_SAMPLES"]) / str(os.getpid())
    part = out.with_suffix(".part")
    part.write_text("".join(lines))
    part.rename(out)


def _cpu_ns(thread: int) -> int:
    return time.clock_gettime_ns(time.pthread_getcpuclockid(thread))


def _stack(frame: FrameType | None) -> tuple[CodeType, ...]:
    found: list[CodeType] = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return tuple(reversed(found))


def _name(code: CodeType) -> str:
    return f"{code.co_qualname} ({'/'.join(Path(code.co_filename).parts[-3:])})"


if "CPU_SAMPLES" in os.environ:
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _end)
    signal.signal(signal.SIGPROF, _sample)
