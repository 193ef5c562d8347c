"""`aetheris worker`: reloads a changed file, lets what runs finish, stops at breakpoints, and says what is wrong."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

WITHIN_S = 60
TOOL = """
import os, time
from pathlib import Path
from aetheris.sdk import tool

@tool(effect_class="pure")
def look(tag: str, hold: str = "") -> str:
    Path(tag).touch()
    while hold and Path(hold).exists():
        time.sleep(0.01)
    {stop}
    return "{says}"
"""


@dataclass(frozen=True)
class Desk:
    """A folder with a module of tools, and a worker in the foreground there."""

    folder: Path
    system: System
    worker: subprocess.Popen[str]
    said: Path

    def write(self, says: str, stop: str = "pass") -> None:
        (self.folder / "desk.py").write_text(TOOL.format(says=says, stop=stop))

    def registered(self) -> bool:
        return any(one["name"] == "look" for one in self.system.api.get("/tools").json()["tools"])

    def run(self, hold: str = "") -> str:
        tag = str(self.folder / fresh("seen"))
        return self.system.submit({"id": "a", "tool": "look", "args": {"tag": tag, "hold": hold}})

    def result(self, job: str) -> str:
        self.system.wait_ended([job], WITHIN_S)
        return self.system.job(job)["result"]["a"]

    def until_said(self, text: str, times: int = 1) -> None:
        until(lambda: self.said.read_text().count(text) >= times, WITHIN_S)


@pytest.fixture
def desk(tmp_path: Path) -> Generator[Desk]:
    with running_system(tmp_path / "data", {}, executor=0) as system, _worker(tmp_path, system) as desk:
        until(desk.registered, WITHIN_S)
        yield desk


@contextmanager
def _worker(folder: Path, system: System) -> Generator[Desk]:
    reported = folder / "said.log"
    (folder / "desk.py").write_text(TOOL.format(says="one", stop="pass"))
    argv = [sys.executable, "-m", "aetheris.cli", "worker", "--tools", "desk", "--reload", "--data", str(system.data)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("AETHERIS_")}
    with reported.open("w") as out:
        worker = subprocess.Popen(argv, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True)
        try:
            yield Desk(folder, system, worker, reported)
        finally:
            worker.send_signal(signal.SIGINT)
            worker.communicate(timeout=WITHIN_S)


def test_the_loop_of_writing_a_tool(desk: Desk) -> None:
    assert desk.result(desk.run()) == "one"

    held = desk.folder / "held"
    held.touch()
    job = desk.run(str(held))
    until(lambda: len(list(desk.folder.glob("*seen*"))) == 2, WITHIN_S)
    desk.write("two")
    desk.until_said("desk.py changed")
    held.unlink()
    assert desk.result(job) == "one"  # it finished first
    assert "worker_ended" not in desk.system.types(job)
    assert desk.result(desk.run()) == "two"

    (desk.folder / "desk.py").write_text("def broken(:\n")
    desk.until_said("waits for a change")
    assert "desk" in desk.said.read_text()
    desk.write("three", stop="breakpoint()")
    job = desk.run()
    desk.until_said("(Pdb)")
    assert desk.worker.stdin is not None
    desk.worker.stdin.write("p 'at', hold == ''\nc\n")
    desk.worker.stdin.flush()
    assert desk.result(job) == "three"
    assert "('at', True)" in desk.said.read_text()
