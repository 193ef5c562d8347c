"""The services' log files as lines in the order of their times: JSON as the services write it, and whatever else."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

SERVERS = frozenset({"kafka", "valkey"})
"""Logs of others; read only where they are named."""
_SHOWN_FIRST = ("timestamp", "service", "level", "event")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the part that wrote it; `fields` are empty where it is no JSON."""

    part: str
    time: str
    text: str
    fields: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        if not self.fields:
            return f"{self.time:<27} {self.part:<12} {self.text}"
        rest = " ".join(f"{name}={_brief(value)}" for name, value in self.fields.items() if name not in _SHOWN_FIRST)
        text = f"{self.fields.get('level', ''):<7} {self.fields.get('event', '')}"
        return f"{self.time:<27} {self.part:<12} {text}  {rest}".rstrip()

    def names(self, job_id: str) -> bool:
        """Whether it is about a job whose id begins so."""
        return any(one.startswith(job_id) for one in self.jobs) or (not self.fields and job_id in self.text)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that it says it is about."""
        named = self.fields.get("job_id")
        return (named,) if isinstance(named, str) else ()

    def to_json(self) -> dict[str, Any]:
        """Its fields, or its text, and the part."""
        return {"part": self.part, **(self.fields or {"timestamp": self.time, "text": self.text})}


class LogFile:
    """One part's log, read from its beginning, and on from there as it grows."""

    def __init__(self, path: Path) -> None:
        self.part = path.stem
        self._path = path
        self._position = 0
        self._inode = 0
        self._time = ""

    def earlier(self) -> Iterator[LogLine]:
        """What was rotated away last."""
        rotated = self._path.with_suffix(".log.1")
        if rotated.exists():
            yield from self._lines(rotated.read_bytes())

    def more(self) -> Iterator[LogLine]:
        """The whole lines that have come since; of a file that was rotated, the new one's."""
        try:
            with self._path.open("rb") as file:
                inode = self._path.stat().st_ino
                self._position = self._position if inode == self._inode else 0
                self._inode = inode
                file.seek(self._position)
                content = file.read()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._position += len(whole)
        yield from self._lines(whole)

    def _lines(self, content: bytes) -> Iterator[LogLine]:
        for raw in content.decode(errors="replace").splitlines():
            line = log_line(self.part, raw, self._time)
            self._time = line.time
            yield line


def log_files(folder: Path, part: str | None) -> list[LogFile]:
    """The logs of a data folder's services; of those whose name begins with `part`, where it is given."""
    found = sorted(path for path in folder.glob("*.log"))
    if part is not None:
        return [LogFile(path) for path in found if path.stem.startswith(part)]
    return [LogFile(path) for path in found if path.stem not in SERVERS]


def in_order(lines: Iterable[LogLine]) -> list[LogLine]:
    """By time; lines of one part stay as they lie."""
    return sorted(lines, key=lambda line: line.time.removesuffix("Z"))


def log_line(part: str, raw: str, time: str) -> LogLine:
    """A line without a time of its own has that of the one before it."""
    try:
        value = json.loads(raw) if raw.startswith("{") else None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        stamped = raw.partition(" ")[0]
        return LogLine(part, stamped if stamped[:2] == "20" and stamped.endswith("Z") else time, raw)
    fields = cast("dict[str, Any]", value)
    return LogLine(part, str(fields.get("timestamp", time)), raw, fields)


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
