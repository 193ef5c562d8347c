"""Programs of this machine, for tools: none, unless a setting of the executor names them (docs/toolkits.md).

    not named by the setting, or it can't be started     Failed: nothing was run
    exit code 0                                          what it printed
    an exit code by which it says that nothing happened  Failed
    any other end, too late, too much output             ProgramFailed, TimeoutError, OutputTooLarge: in doubt

An argument vector and never a line for a shell; an environment that is empty but for what the tool gives.
"""

import asyncio
import math
import os
import signal
import sys
import tempfile
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from aetheris.sdk import remains
from aetheris.sdk.context import ToolContext
from aetheris.sdk.isolation.programs import argv_of
from aetheris.sdk.outcomes import Failed

SETTING = "AETHERIS_SHELL_PROGRAMS"
LARGEST = 1024 * 1024  # bytes, of each of the two outputs
LONGEST_WAIT_S = 300.0
_CHUNK = 65536
_LOOK_EVERY_S = 0.01

# The program takes the place of this process, and is killed where its executor dies: what outlives its worker could
# act when the worker is known to have ended. LC_CTYPE is what Python itself may have added. See prctl(2).
_START = """
import ctypes, os, sys
parent, told, locale = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != parent:
    os._exit(1)
os.set_inheritable(told, False)
given = {name: value for name, value in os.environb.items() if locale == "given" or name != b"LC_CTYPE"}
try:
    os.execve(sys.argv[4], sys.argv[4:], given)
except (OSError, ValueError) as error:
    os.write(told, type(error).__name__.encode())
    os._exit(1)
"""


class ProgramFailed(Exception):
    """It ended with a code that says nothing of its effect; negative: by a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class OutputTooLarge(Exception):
    """It printed more than is read, and was killed."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a program that ended with 0 has printed."""

    out: bytes
    err: bytes


async def run(
    ctx: ToolContext,
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    refusals: Collection[int] = (),
    largest: int = LARGEST,
) -> Printed:
    """Run one program to its end, once; whatever it leaves of its process group is killed.

    Args:
        argv: the program, by the absolute path that the setting names, and its arguments as they are.
        env: its whole environment.
        folder: where it runs; an empty one of its own, deleted afterwards, by default.
        refusals: exit codes by which it says that nothing happened.
        largest: bytes, of each of the two outputs.

    Raises:
        Failed: it was not started, or ended with one of the `refusals`.
        ProgramFailed, OutputTooLarge, TimeoutError: it ran.
    """
    _check(argv, env or {})
    if folder is not None:
        return await _run(ctx, argv, stdin, env or {}, folder, refusals, largest)
    with tempfile.TemporaryDirectory(prefix="aetheris-shell-") as own:
        return await _run(ctx, argv, stdin, env or {}, Path(own), refusals, largest)


def allowed() -> frozenset[str]:
    """The programs that the setting names, by their absolute paths."""
    named = (one.strip() for one in os.environ.get(SETTING, "").split(","))
    return frozenset(one for one in named if one.startswith("/"))


def _check(argv: Sequence[str], env: Mapping[str, str]) -> None:
    if isinstance(argv, str) or not argv:
        raise Failed("refused: an argument vector is needed, not a line")
    if not allowed():
        raise Failed(f"refused: no program may be run here; {SETTING} names those that may")
    if argv[0] not in allowed():
        raise Failed(f"refused: {SETTING} does not name this program")
    if any("\0" in one for one in (*argv, *env, *env.values())) or any("=" in name for name in env):
        raise Failed("refused: no program can be given this")


async def _run(  # noqa: PLR0917  what `run` was given, whole
    ctx: ToolContext,
    argv: Sequence[str],
    stdin: bytes,
    env: Mapping[str, str],
    folder: Path,
    refusals: Collection[int],
    largest: int,
) -> Printed:
    remains.unsure()  # what a program starts may leave its session
    remaining_s = ctx.remaining()
    reported, tell = os.pipe()
    locale = "given" if "LC_CTYPE" in env else "own"
    start = (sys.executable, "-I", "-S", "-c", _START, str(os.getpid()), str(tell), locale, *argv)
    try:
        async with asyncio.timeout(LONGEST_WAIT_S if math.isinf(remaining_s) else remaining_s):
            process = await asyncio.create_subprocess_exec(
                *argv_of(start, env),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=dict(env),
                cwd=folder,
                pass_fds=(tell,),
                start_new_session=True,
            )
            os.close(tell)
            tell = -1
            printed = await _ended(process, stdin, largest)
        unstarted = os.read(reported, 100)
    finally:
        os.close(reported)
        if tell >= 0:
            os.close(tell)
    if unstarted:
        raise Failed(f"not started: {unstarted.decode()}")
    code = process.returncode
    if code in refusals:
        raise Failed(f"refused: exit code {code}")
    if code != 0:
        raise ProgramFailed(code if code is not None else -1)
    return printed


async def _ended(process: Process, stdin: bytes, largest: int) -> Printed:
    """What it printed; it has ended when this returns or raises, and its process group with it."""
    pipes = process.stdin, process.stdout, process.stderr
    stdin_pipe, out_pipe, err_pipe = cast("tuple[StreamWriter, StreamReader, StreamReader]", pipes)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_feed(stdin_pipe, stdin))
            out = tasks.create_task(_read(out_pipe, largest))
            err = tasks.create_task(_read(err_pipe, largest))
            await _exit(process)
            _kill_group(process.pid)  # its children may hold the outputs open
        return Printed(out.result(), err.result())
    except* OutputTooLarge:
        pass  # raised in here, the first Pythons 3.11 would make a group of it
    finally:
        if process.returncode is None:
            _kill_group(process.pid)
        await asyncio.shield(_exit(process))
    raise OutputTooLarge(f"more than {largest} bytes")


async def _exit(process: Process) -> None:
    """Return once it has ended; `wait` returns only when nobody holds its outputs any more."""
    while process.returncode is None:  # noqa: ASYNC110 - nothing else tells it
        await asyncio.sleep(_LOOK_EVERY_S)


async def _feed(to: StreamWriter, stdin: bytes) -> None:
    with suppress(ConnectionError):  # it reads no more
        to.write(stdin)
        await to.drain()
    to.close()


async def _read(output: StreamReader, largest: int) -> bytes:
    found = bytearray()
    while chunk := await output.read(_CHUNK):
        found += chunk
        if len(found) > largest:
            raise OutputTooLarge
    return bytes(found)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
