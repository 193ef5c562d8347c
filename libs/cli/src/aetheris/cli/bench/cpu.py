"""CPU time of processes, from /proc."""

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Mapping[str, int]) -> dict[str, float]:
    """User and system time of each process and all its threads, in seconds; of one that has ended, 0."""
    return {name: _of(pid) for name, pid in pids.items()}


def parse_stat(stat: str) -> float:
    """Fields 14 and 15 of /proc/PID/stat, in seconds; the command's name may hold spaces and parentheses (proc(5))."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _of(pid: int) -> float:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except FileNotFoundError:
        return 0.0
