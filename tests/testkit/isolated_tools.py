"""Tools that do their worst to whoever runs them, in a process of its own or not; `tests.testkit.isolated_tools`."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aetheris.sdk import (
    Confirmed,
    Drifted,
    Failed,
    Found,
    NotExecuted,
    NotFound,
    Partial,
    ProbeContext,
    Result,
    StateChange,
    ToolContext,
    Unknown,
    tool,
)
from aetheris.sdk.outcomes import Verdict

CHANGE = StateChange("thing", "t-1", "create")


@tool("pries", effect_class="pure", timeout_s=60)
def pries(loot: str) -> list[str]:
    """Copies all that it can read of itself and of what runs it; says which processes it could read."""
    folder, opened = Path(loot), list[str]()
    pids = [str(os.getpid()), *_forebears()]
    for pid in pids:
        for number, piece in enumerate(_pieces(Path("/proc") / pid)):
            (folder / f"{pid}.{number}").write_bytes(piece)
            if piece and pid != pids[0]:
                opened.append(pid)
    return sorted(set(opened))


@tool("returns", effect_class="opaque", irreversible=False)
async def returns(ctx: ToolContext, what: str) -> Any:
    """One of many kinds of value."""
    return {
        "json": {"a": [1, 2.5, None, True, "é"], "key": ctx.external_key, "node": ctx.node_id},
        "result": Result({"a": 1}, "ext-1", [CHANGE]),
        "partial": Partial(Result([1], None, (CHANGE,))),
        "strange": {"b": b"\0\xff", "t": datetime(2020, 1, 1, tzinfo=UTC), "n": float("nan"), "i": 2**70, 1: {3, 2, 1}},
        "surrogate": "\ud800",
        "deep": _deep(200),
        "large": "x" * 300_000,
        "object": object(),
        "long id": Result(None, "i" * 5000),
        "none": None,
    }[what]


@tool("raises", effect_class="opaque", irreversible=False)
async def raises(how: str, word: str = "") -> None:
    """One of many errors."""
    print(f"said before: {word}")  # noqa: T201  prints are what is looked for
    logging.getLogger(__name__).warning("logged %s", word)
    if how == "failed":
        raise Failed(f"no {'x' * 490}{word}")
    if how == "not_executed":
        raise NotExecuted("busy")
    if how == "exits":
        sys.exit(3)
    raise {"key": KeyError, "connection": ConnectionResetError}[how](word)


@tool("ends", effect_class="opaque", irreversible=False, timeout_s=120)
def ends(how: str, where: str) -> None:
    """Its process ends, or goes on when it should not."""
    Path(where).write_text(str(os.getpid()))
    if how == "exits":
        os._exit(0)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs up":
        os.closerange(3, 100)
        time.sleep(600)
    if how == "talks":
        for descriptor in range(3, 100):
            with suppress(OSError):
                os.write(descriptor, b"\x7f\xff\xff\xff{}")
        time.sleep(600)
    time.sleep(600)


@tool("hangs", effect_class="opaque", irreversible=False, timeout_s=0.5)
def hangs(where: str) -> None:
    """Longer than it may."""
    Path(where).write_text(str(os.getpid()))
    time.sleep(600)


@tool("leaves", effect_class="opaque", irreversible=False)
def leaves(where: str) -> str:
    """Leaves a process behind that hides: a session of its own, no environment, no descriptors, an orphan at once."""
    sleeper = f"import os, pathlib, time; pathlib.Path({where!r}).write_text(str(os.getpid())); time.sleep(600)"
    argv = f"[sys.executable, '-c', {sleeper!r}]"
    between = f"import subprocess, sys; subprocess.Popen({argv}, start_new_session=True, env={{}})"
    subprocess.run([sys.executable, "-c", between], start_new_session=True, env={}, check=True)
    while not Path(where).exists() or not Path(where).read_text():
        time.sleep(0.01)
    return "left"


@tool("floods", effect_class="pure", timeout_s=60)
def floods() -> str:
    """Says far more than anybody reads."""
    for _ in range(2000):
        print("f" * 10_000)  # noqa: T201
    for _ in range(2000):
        os.write(1, b"r" * 10_000)
        os.write(2, b"r" * 10_000)
    return "said"


@tool("finds", effect_class="probeable", settles_within_s=0)
async def finds(ctx: ToolContext) -> None:
    """Has a probe and a verifier."""


@finds.probe
async def found(external_key: str, ctx: ProbeContext) -> Found | NotFound | Unknown:
    """By the key."""
    print("asked")  # noqa: T201
    if external_key == "gone":
        return NotFound(("looked",))
    if external_key == "breaks":
        raise KeyError(external_key)
    return Found({"key": external_key, "node": ctx.node_id}, "ext", ("seen",), (CHANGE,))


@finds.verifier
async def compares(change: StateChange) -> Verdict:
    """By the resource's id."""
    return Confirmed(("there",)) if change.resource_id == "t-1" else Drifted({"id": change.resource_id})


@tool("asks_alone", effect_class="pure", isolation="process")
def asks_alone() -> int:
    """By its own wish in a process of its own."""
    return os.getpid()


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _forebears() -> Iterator[str]:
    """The three processes above this one: the module's, its keeper, and who has started that."""
    pid = os.getppid()
    for _ in range(3):
        yield str(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _pieces(process: Path) -> Iterator[bytes]:
    for name in ("environ", "cmdline" if process.name == str(os.getpid()) else "environ"):
        yield _read(process / name)
    with suppress(OSError):
        for one in list((process / "fd").iterdir()):
            yield _read(one)
    with suppress(OSError):
        yield from _memory(process)


def _read(path: Path) -> bytes:
    with suppress(OSError):
        if path.is_file() and path.stat().st_size < 1 << 24:
            return path.read_bytes()
    return b""


def _memory(process: Path) -> Iterator[bytes]:
    """What it has written itself: private pages that no file is behind."""
    with (process / "mem").open("rb", buffering=0) as memory:
        for line in (process / "maps").read_text().splitlines():
            span, rights, _, _, inode, *_ = line.split()
            if rights.startswith("rw") and inode == "0":
                begin, end = (int(at, 16) for at in span.split("-"))
                with suppress(OSError, ValueError, OverflowError):
                    memory.seek(begin)
                    yield memory.read(end - begin)
