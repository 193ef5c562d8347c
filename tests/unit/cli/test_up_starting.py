"""A supervisor that has just been started: when it is waited for, and when it has ended."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.errors import NotReadyError
from aetheris.cli.embedded.plan import Plan, ProcessSpec
from aetheris.cli.embedded.supervisor import lock_path

LOCKS = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Generator[subprocess.Popen[str]]:
    """Holds a supervisor's lock, and does not come to writing its pid."""
    argv = (sys.executable, "-c", LOCKS, str(lock_path(tmp_path)))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def up(data: Path, monkeypatch: pytest.MonkeyPatch, ready: list[bool]) -> str:
    """`aetheris up`, whose supervisor is started already, and whose one part answers so; where its gateway is."""
    plan = Plan((ProcessSpec("planner-0", "service", ("planner",), "http", "1"),), "k", "r", "g")
    monkeypatch.setattr(lifecycle, "_prepare", lambda *_, **__: plan)
    monkeypatch.setattr(lifecycle, "_supervisor", lambda _: (sys.executable, "-c", "", os.devnull))
    monkeypatch.setattr(ProcessSpec, "is_ready", lambda _: ready.pop(0))
    return lifecycle.up(data, progress=lambda *_: None).gateway


@pytest.mark.usefixtures("holder")
def test_one_that_has_its_lock_and_not_yet_said_its_pid_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lifecycle.supervisor_pid(tmp_path) is None
    assert up(tmp_path, monkeypatch, [False, False, True]) == "g"


def test_one_that_holds_no_lock_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait()
    with pytest.raises(NotReadyError, match="has ended"):
        up(tmp_path, monkeypatch, [False, False, True])
