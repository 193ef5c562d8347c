"""Tools that kill what is above them, and hide what they have started from it: it ends, or nothing says that it has."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aetheris.runtime.process.lock import locked, opened
from aetheris.sdk.isolation import kernel
from aetheris.sdk.outcomes import InDoubt, Succeeded
from tests.testkit.external_server import until
from tests.testkit.module_host import HEAD, OLD_LINUX, running

PATIENCE_S = 30.0
BEFORE_LINUX_6_12 = sys.platform == "linux" and ctypes.CDLL(None).syscall(444, None, 0, 1) < 6

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="what is kept apart by Linux"),
]

ESCAPES = """
import ctypes
SLEEPER = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
BETWEEN = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True, env={})"

def hide():
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # this thread isn't killed with its parent
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # what it leaves is not its own
    sleeper = [sys.executable, "-c", SLEEPER, str(FOLDER / "hidden")]
    subprocess.run([sys.executable, "-c", BETWEEN, *sleeper], start_new_session=True, env={}, check=True)
    while not (FOLDER / "hidden").exists() or not (FOLDER / "hidden").read_text():
        time.sleep(0.01)
    (FOLDER / "call").write_text(str(os.getpid()))

@tool("hides", effect_class="opaque", irreversible=False, timeout_s=60)
def hides() -> None:
    hide()
    time.sleep(600)

@tool("escapes", effect_class="opaque", irreversible=False, timeout_s=60)
async def escapes(kills: bool) -> None:
    hide()  # in the main thread: it survives its parent
    if kills:
        os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)

@tool("hangs", effect_class="opaque", irreversible=False, timeout_s=0.3)
def hangs() -> None:
    time.sleep(600)

@tool("works", effect_class="pure")
def works() -> int:
    return os.getppid()

@tool("signals", effect_class="pure", timeout_s=60)
def signals(above: list[int], folder: str) -> list[str]:
    found = []
    for pid in above:
        try:
            os.kill(pid, 0)
            found.append(f"signals {pid}")
        except PermissionError:
            pass
    own = subprocess.Popen(["sleep", "600"], start_new_session=True)
    own.kill()
    own.wait()
    (Path(folder) / "a").mkdir()
    (Path(folder) / "b").mkdir()
    (Path(folder) / "a" / "file").touch()
    os.rename(Path(folder) / "a" / "file", Path(folder) / "b" / "file")
    return found
"""


def keepers() -> set[int]:
    """Of this process."""
    return {pid for pid in kernel.children() if b"isolation.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from below(child)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def written(folder: Path, name: str) -> int:
    """The process that a tool names there."""
    at = folder / name
    await asyncio.to_thread(until, lambda: at.exists() and at.read_text() != "", PATIENCE_S)
    return int(at.read_text())


async def test_what_hides_and_whose_call_kills_its_modules_process_has_ended_when_that_is_said(tmp_path: Path) -> None:
    async with running(tmp_path, HEAD + OLD_LINUX + ESCAPES) as rig:
        before = await rig.call("works")
        assert await rig.call("escapes", kills=True) == InDoubt("ToolProcessDied", returned=True)
        assert not lives(await written(tmp_path, "hidden"))
        assert not lives(await written(tmp_path, "call"))
        after = await rig.call("works")
        assert isinstance(before, Succeeded)
        assert isinstance(after, Succeeded)
        assert before.result != after.result, "the module's process was killed"
        assert await rig.call("hangs") == InDoubt("TimeoutError", returned=True)


async def test_where_the_keeper_is_killed_nothing_says_any_more_that_a_call_cannot_act(tmp_path: Path) -> None:
    async with running(tmp_path, HEAD + ESCAPES) as rig:
        (keeper,) = keepers()
        calling = asyncio.create_task(rig.call("hides"))
        await written(tmp_path, "call")
        hidden = await written(tmp_path, "hidden")
        try:
            os.kill(keeper, signal.SIGKILL)
            assert await calling == InDoubt("ToolProcessDied", returned=False)
            assert lives(hidden), "so it would have been wrong"
            assert isinstance(await rig.call("works"), Succeeded)
            assert await rig.call("hangs") == InDoubt("TimeoutError", returned=False), (
                "that may have been given its work"
            )
        finally:
            os.kill(hidden, signal.SIGKILL)


async def test_a_keeper_that_is_stopped_goes_on_at_the_end(tmp_path: Path) -> None:
    async with running(tmp_path, HEAD + ESCAPES) as rig:
        (keeper,) = keepers()
        calling = asyncio.create_task(rig.call("escapes", kills=False))
        hidden = await written(tmp_path, "hidden")
        os.kill(keeper, signal.SIGSTOP)
    assert not lives(hidden)
    calling.cancel()


@pytest.mark.skipif(BEFORE_LINUX_6_12, reason="kept apart by Linux 6.12 with Landlock")
async def test_a_call_signals_nothing_but_what_it_has_started_and_its_files_are_as_ever(tmp_path: Path) -> None:
    async with running(tmp_path, HEAD + ESCAPES) as rig:
        (keeper,) = keepers()
        above = [os.getpid(), keeper, *below(keeper)]
        assert len(above) == 3
        came = await rig.call("signals", above=above, folder=str(tmp_path))
    assert isinstance(came, Succeeded)
    assert came.result == []


@pytest.mark.skipif(BEFORE_LINUX_6_12, reason="kept apart by Linux 6.12 with Landlock")
async def test_a_module_does_not_signal_its_keeper_as_it_is_imported(tmp_path: Path) -> None:
    tries = f"""{HEAD}{ESCAPES}
above = [os.getppid(), {os.getpid()}]
for pid in above:
    try:
        os.kill(pid, 0)
    except PermissionError:
        with (FOLDER / "refused").open("a") as file:
            file.write("refused ")
"""
    async with running(tmp_path, tries):
        assert (tmp_path / "refused").read_text() == "refused refused "


EXECUTOR = """
import asyncio, sys
from pathlib import Path
from aetheris.runtime.process.lock import locked, opened
from aetheris.sdk.inheritance import kept_by_children
from tests.testkit.module_host import running

async def main():
    lock = opened(Path(sys.argv[1]) / "lock")
    assert locked(lock)
    kept_by_children(lock)
    async with running(Path(sys.argv[1]), Path(sys.argv[1], "text").read_text()) as rig:
        await rig.call("escapes", kills=False)

asyncio.run(main())
"""


async def test_what_hides_ends_with_a_killed_executor_before_anybody_has_its_lock(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(HEAD + ESCAPES)
    executor = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", EXECUTOR, str(tmp_path)])
    hidden, call = await written(tmp_path, "hidden"), await written(tmp_path, "call")
    executor.kill()
    executor.wait()
    descriptor = opened(tmp_path / "lock")
    await asyncio.to_thread(until, lambda: locked(descriptor), PATIENCE_S)
    assert not lives(hidden)
    assert not lives(call)
    os.close(descriptor)
