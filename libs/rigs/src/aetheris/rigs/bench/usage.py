"""CPU time and memory of processes, from /proc (proc(5))."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class MemoryUse:
    """MiB: `rss` counts a page that processes share once for each of them, `pss` its part."""

    rss: float
    pss: float


def cpu_s(pids: Mapping[str, int]) -> dict[str, float]:
    """User and system time of each process, its threads and its descendants, in seconds; of one that has ended, 0.

    A descendant that has a name of its own counts there alone.
    """
    children = _children()
    return {name: sum(map(_time_of, _family(pid, children, set(pids.values())))) for name, pid in pids.items()}


def children(pid: int) -> list[int]:
    """The processes that it has started, and that live."""
    return _children().get(pid, [])


def memory(pids: Mapping[str, int]) -> dict[str, MemoryUse]:
    """What each process holds now, without its descendants; nothing of one that has ended."""
    return {name: parse_rollup(_read(pid, "smaps_rollup")) for name, pid in pids.items()}


def parse_stat(stat: str) -> tuple[int, float]:
    """The parent's pid (field 4), and fields 14 to 17 in seconds: its own time and that of children it waited for.

    The command's name may hold spaces and parentheses.
    """
    fields = stat.rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / _TICKS_PER_S


def parse_rollup(rollup: str) -> MemoryUse:
    """The lines Rss and Pss, in kB there."""
    sizes = {words[0]: int(words[1]) for words in map(str.split, rollup.splitlines()) if words[0] in ("Rss:", "Pss:")}
    return MemoryUse(sizes.get("Rss:", 0) / 1024, sizes.get("Pss:", 0) / 1024)


def _family(pid: int, children: Mapping[int, list[int]], named: set[int]) -> Iterator[int]:
    yield pid
    for child in children.get(pid, []):
        if child not in named:
            yield from _family(child, children, named)


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        if stat := _read(pid, "stat"):
            found.setdefault(parse_stat(stat)[0], []).append(pid)
    return found


def _time_of(pid: int) -> float:
    stat = _read(pid, "stat")
    return parse_stat(stat)[1] if stat else 0.0


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
