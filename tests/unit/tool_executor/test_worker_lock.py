"""Attacks on the lock: it is free only when nothing that its holder started can act any more."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.refusal import WorkerIdTaken
from aetheris.runtime.process.lock import Lock
from aetheris.tool_executor.lock import holders, taken

NAME = "worker-under-test"

HOLDER = """
import asyncio, os, signal, subprocess, sys, time
from pathlib import Path
import uvloop
from aetheris.runtime.base.clock import SystemClock
from aetheris.tool_executor.lock import taken

CHILD = "import os, pathlib, time; pathlib.Path(os.environ['UP']).write_text(str(os.getpid())); time.sleep(600)"
ARGV = [sys.executable, "-c", CHILD]

def body():
    exec(CHILD)

async def main():
    lock = await taken(Path(sys.argv[1]), sys.argv[2], clock=SystemClock(), stop=asyncio.Event(), report=print)
    lock.hold("i1")
    await start()
    print("held", flush=True)
    await asyncio.sleep(600)
"""

WAYS = {
    "subprocess": "async def start(): subprocess.Popen(ARGV)",
    "subprocess, a session of its own": "async def start(): subprocess.Popen(ARGV, start_new_session=True)",
    "subprocess, files passed": """
async def start():
    told, tell = os.pipe()
    subprocess.Popen(ARGV, pass_fds=(tell,))
""",
    "subprocess, nothing closed": "async def start(): subprocess.Popen(ARGV, close_fds=False)",
    "subprocess, nothing of the environment": "async def start(): subprocess.Popen(ARGV, env={'UP': os.environ['UP']})",
    "asyncio, nothing of the environment": """
async def start():
    await asyncio.create_subprocess_exec(*ARGV, env={'UP': os.environ['UP']})
""",
    "asyncio": "async def start(): await asyncio.create_subprocess_exec(*ARGV)",
    "asyncio, a shell": """
async def start():
    import shlex
    await asyncio.create_subprocess_shell(shlex.join(ARGV) + "; true")
""",
    "multiprocessing spawn": """
async def start():
    import multiprocessing
    multiprocessing.get_context("spawn").Process(target=body).start()
""",
    "multiprocessing forkserver": """
async def start():
    import multiprocessing
    multiprocessing.get_context("forkserver").Process(target=body).start()
""",
    "multiprocessing fork": """
async def start():
    import multiprocessing
    multiprocessing.get_context("fork").Process(target=body).start()
""",
    "os.fork": """
async def start():
    if os.fork() == 0:
        body()
""",
    "os.fork and exec": """
async def start():
    if os.fork() == 0:
        os.execv(sys.executable, ARGV)
""",
    "os.posix_spawn": "async def start(): os.posix_spawn(sys.executable, ARGV, os.environ)",
    "os.system": """
async def start():
    import shlex
    os.system(shlex.join(ARGV) + " &")
""",
    "a child's child, the child gone": """
async def start():
    leave = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True)"
    subprocess.run([sys.executable, "-c", leave, CHILD], check=True)
""",
}
"""How a tool may start what outlives its executor."""

RUN = 'if __name__ == "__main__":\n    {}\n'
LOOPS = {"uvloop": "uvloop.run(main())", "asyncio": "asyncio.run(main())"}


def until(seen: Callable[[], object], within_s: float = 20) -> None:
    ends = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < ends, "never came"
        time.sleep(0.01)


@contextmanager
def holder(folder: Path, start: str, loop: str) -> Generator[subprocess.Popen[str]]:
    script = folder / "holder.py"
    script.write_text(textwrap.dedent(HOLDER) + start + "\n\n" + RUN.format(LOOPS[loop]))
    environment = os.environ | {"UP": str(folder / "up")}
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder), NAME], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """The pid of the child that the holder has started, once it is up."""
    up = tmp_path / "up"

    def pid() -> int:
        until(lambda: up.exists() and up.read_text())
        return int(up.read_text())

    yield pid
    if up.exists():
        with_pid = pid()
        with suppress(ProcessLookupError):
            os.kill(with_pid, signal.SIGKILL)


async def lock_of(folder: Path, patience_s: float = 0.0, report: Callable[[str], None] = print) -> Lock:
    stop = asyncio.Event()
    return await taken(folder, NAME, clock=SystemClock(), stop=stop, report=report, patience_s=patience_s)


@pytest.mark.parametrize(
    ("way", "loop"), [*((way, "uvloop") for way in WAYS), ("asyncio", "asyncio"), ("subprocess", "asyncio")]
)
async def test_a_child_that_outlives_its_executor_keeps_the_lock(
    tmp_path: Path, children: Callable[[], int], way: str, loop: str
) -> None:
    with holder(tmp_path, WAYS[way], loop) as process:
        child = children()
        process.kill()
        process.wait()
        reported: list[str] = []
        taking = asyncio.create_task(lock_of(tmp_path, report=reported.append))
        while not reported and not taking.done():  # noqa: ASYNC110  what tells is no event
            await asyncio.sleep(0.01)
        assert not taking.done(), "the lock was free while the child could act"
        assert str(child) in reported[0]
        os.kill(child, signal.SIGKILL)
        lock = await asyncio.wait_for(taking, 20)
    assert lock.former == ["i1"]


async def test_a_live_executor_is_not_waited_for(tmp_path: Path) -> None:
    with holder(tmp_path, "async def start(): pass", "uvloop") as process:
        assert holders(tmp_path / "workers" / f"{NAME}.lock") == {process.pid}
        with pytest.raises(WorkerIdTaken, match="AETHERIS_WORKER_ID"):
            await lock_of(tmp_path)


async def test_a_copied_or_fresh_folder_proves_nothing(tmp_path: Path) -> None:
    with holder(tmp_path, "async def start(): pass", "uvloop"):
        pass
    here = tmp_path / "workers" / f"{NAME}.lock"
    copy = tmp_path / "copy" / "workers" / here.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(here.read_bytes())
    assert (await lock_of(tmp_path / "copy")).former == []
    assert (await lock_of(tmp_path / "fresh")).former == []
    assert (await lock_of(tmp_path)).former == ["i1"]


async def test_a_torn_line_and_a_long_file_lose_no_holder(tmp_path: Path) -> None:
    with holder(tmp_path, "async def start(): pass", "uvloop"):
        pass
    file = tmp_path / "workers" / f"{NAME}.lock"
    held = [f"held {number:036}" for number in range(3000)]
    file.write_bytes(file.read_bytes() + b"held 12" + "".join(f"\n{one}\n" for one in held).encode())
    lock = await lock_of(tmp_path)
    assert lock.former[-1] == held[-1].removeprefix("held ")
    assert file.stat().st_size < 20_000
    assert file.read_text().splitlines()[0].startswith("inode ")
