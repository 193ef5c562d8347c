"""What a module's process may do to its calls: helpers from its import, a changed file, no process left, floods."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aetheris.sdk import ToolContext
from aetheris.sdk.invoke import invoke
from aetheris.sdk.isolation.hosts import HostSetup
from aetheris.sdk.isolation.tools import isolated_tools
from aetheris.sdk.outcomes import InDoubt, Outcome, Retryable, Succeeded
from aetheris.sdk.tool_output import ToolOutput

PATIENCE_S = 30.0

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="what is kept apart by Linux"),
]

HEAD = """
import json, os, signal, subprocess, sys, threading, time
from pathlib import Path
from aetheris.sdk import Found, NotFound, ProbeContext, tool
FOLDER = Path(__file__).parent
"""

HANGS = """
@tool("hangs", effect_class="opaque", irreversible=False, timeout_s=0.3)
def hangs() -> None:
    time.sleep(600)
"""

HELPER = f"{HEAD}HELPER = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']){HANGS}"
BRIEF_HELPER = f"{HEAD}subprocess.Popen(['true']); time.sleep(0.2){HANGS}"
THREAD = f"{HEAD}threading.Thread(target=time.sleep, args=(600,), daemon=True, name='sends').start(){HANGS}"

DIES = """
@tool("dies", effect_class="{effect_class}", irreversible={irreversible})
def dies(how: str = "") -> str:
    if how == "with its host":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    (FOLDER / "ran").touch()
    return "ran"
"""

NO_FORK = """
fork = os.fork
def refuses():
    if (FOLDER / "full").exists():
        raise BlockingIOError(11, "no more processes")
    return fork()
os.fork = refuses
@tool("acts", effect_class="opaque", irreversible=False)
def acts() -> str:
    return "acted"
"""


class Rig:
    def __init__(self, tools: Any, lines: list[Mapping[str, Any]], output: ToolOutput) -> None:
        self.tools = tools
        self.lines = lines
        self.output = output

    async def call(self, name: str, **args: Any) -> Outcome:
        ctx = ToolContext("k", 1, "i", "job-1", "n")
        tool = self.tools.get(name, "1")
        with self.output.of(tool, ctx):
            return await invoke(tool, args, ctx, raised=self.output.raised)


@asynccontextmanager
async def running(folder: Path, text: str, name: str = "far_module") -> AsyncGenerator[Rig]:
    """The tools of a module with this text in a process of its own, and its log."""
    (folder / f"{name}.py").write_text(text)
    lines: list[Mapping[str, Any]] = []

    def say(level: int, event: str, fields: Mapping[str, Any]) -> None:
        lines.append({"level": level, "event": event, **fields})

    output = ToolOutput(say)
    async with isolated_tools(None, name, folder, HostSetup(), output.relay) as tools:
        yield Rig(tools, lines, output)


@pytest.mark.parametrize(("text", "acts_no_more"), [(HELPER, False), (THREAD, False), (BRIEF_HELPER, True)])
async def test_what_a_module_has_started_at_import_may_act_for_its_calls(
    text: str, acts_no_more: bool, tmp_path: Path
) -> None:
    async with running(tmp_path, text) as rig:
        assert await rig.call("hangs") == InDoubt("TimeoutError", returned=acts_no_more)


async def test_a_module_that_has_changed_on_disk_is_not_called_under_what_was_registered(tmp_path: Path) -> None:
    opaque = HEAD + DIES.format(effect_class="opaque", irreversible=False)
    async with running(tmp_path, opaque) as rig:
        module = tmp_path / "far_module.py"
        module.write_text(HEAD + DIES.format(effect_class="pure", irreversible=None))
        assert await rig.call("dies", how="with its host") == InDoubt("ToolProcessDied")
        refused = await rig.call("dies")
        assert isinstance(refused, Retryable)
        assert "restart" in refused.reason
        assert not (tmp_path / "ran").exists()
        module.write_text(opaque)
        assert isinstance(await rig.call("dies"), Succeeded)


async def test_a_call_for_which_no_process_can_be_made_has_had_no_effect(tmp_path: Path) -> None:
    async with running(tmp_path, HEAD + NO_FORK) as rig:
        (tmp_path / "full").touch()
        refused = await rig.call("acts")
        assert isinstance(refused, Retryable)
        assert "no process could be made" in refused.reason
        os.remove(tmp_path / "full")
        assert isinstance(await rig.call("acts"), Succeeded)
