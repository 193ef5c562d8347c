"""A data folder without room, or that may not be written: what runs goes on, and what can't start says why."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from aetheris.cli.embedded import lifecycle
from tests.testkit.external_server import until
from tests.testkit.system import running_system

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root may mount a small disk"),
]

DISK = "900m"


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    """A folder on a small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not _run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)):
        pytest.skip("mount is not allowed here")
    try:
        yield folder
    finally:
        _run("umount", "-l", str(folder))


def test_a_full_folder_ends_nothing_for_good(disk: Path) -> None:
    data = disk / "data"
    with running_system(data, {"AETHERIS_TOOLS": "tests.testkit.wide_tools"}) as system:
        supervisor = lifecycle.supervisor_pid(data)
        planner = system.pid("planner-0")
        filler = _filled(disk)
        executor = system.pid("executor-0")
        os.kill(executor, signal.SIGKILL)  # what it is now can't be written down
        until(lambda: _gone(executor), 20)
        _wait_children(supervisor or 0, 6)
        assert lifecycle.supervisor_pid(data) == supervisor
        filler.unlink()
        until(lambda: system.state().parts["executor-0"].pid not in (None, executor), 60)
        system.wait_ready()
        assert lifecycle.supervisor_pid(data) == supervisor
        job = system.submit({"id": "a", "tool": "wide", "args": {"size": 3}})
        system.wait_ended([job])
        assert system.job(job)["status"] == "completed"
        assert _lives(planner)


def test_a_folder_that_may_not_be_written_gets_a_sentence(disk: Path) -> None:
    (disk / "data").mkdir()
    assert _run("mount", "-o", "remount,ro", str(disk))
    argv = [sys.executable, "-m", "aetheris.cli", "up", "--data", str(disk / "data")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (2, 5)
    assert "can't be written" in done.stderr
    assert "Traceback" not in done.stderr


def _filled(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1024 * 1024, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


def _wait_children(pid: int, count: int) -> None:
    """It has started again what it can: at least so many processes are its children, for a while."""
    since_s = time.monotonic()
    while time.monotonic() < since_s + 60:
        if len(_children(pid)) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{pid} has only {_children(pid)}")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _gone(pid: int) -> bool:
    return not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _run(command: str, *arguments: str) -> bool:
    path = shutil.which(command)
    return path is not None and subprocess.run([path, *arguments], capture_output=True, check=False).returncode == 0
