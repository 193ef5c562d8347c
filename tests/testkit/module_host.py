"""The tools of a module that a test has written, in a process of their own, and what they have said."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aetheris.sdk import ToolContext
from aetheris.sdk.invoke import invoke
from aetheris.sdk.isolation.kept_process import HostSetup
from aetheris.sdk.isolation.tools import isolated_tools
from aetheris.sdk.outcomes import Outcome
from aetheris.sdk.tool_output import ToolOutput

HEAD = """
import json, os, signal, subprocess, sys, threading, time
from pathlib import Path
from aetheris.sdk import Found, NotFound, ProbeContext, tool
FOLDER = Path(__file__).parent
"""

OLD_LINUX = """
from aetheris.sdk.isolation import kernel
kernel.signals_stay_within = lambda: None
"""
"""In a module: its calls may signal its process, as before Linux 6.12."""


class HostRig:
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
async def running(folder: Path, text: str, name: str = "far_module") -> AsyncGenerator[HostRig]:
    """The tools of a module with this text in a process of its own, and its log."""
    (folder / f"{name}.py").write_text(text)
    lines: list[Mapping[str, Any]] = []

    def say(level: int, event: str, fields: Mapping[str, Any]) -> None:
        lines.append({"level": level, "event": event, **fields})

    output = ToolOutput(say)
    async with isolated_tools(None, name, folder, HostSetup(), output.relay) as tools:
        yield HostRig(tools, lines, output)
