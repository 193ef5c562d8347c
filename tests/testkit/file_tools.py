"""Tools over a folder, with a verifier; load as `tests.testkit.file_tools`. FILES_ROOT is the folder."""

import os
import time
from pathlib import Path

from aetheris.sdk import ProbeContext, Result, StateChange, ToolContext, tool
from aetheris.sdk.outcomes import Verdict
from aetheris.sdk.toolkits import files


def _root() -> Path:
    return Path(os.environ["FILES_ROOT"])


@tool("write_file", effect_class="idempotent")
def write_file(ctx: ToolContext, name: str, text: str, was: str = "") -> Result:
    """Write a file."""
    change = files.put(ctx, _root(), name, text.encode(), if_match=was or None)
    return Result({"name": name, "etag": change.etag}, name, [change])


@tool("remove_file", effect_class="idempotent")
def remove_file(ctx: ToolContext, name: str, was: str) -> Result:
    """Delete a file."""
    return Result({"name": name}, name, [files.delete(ctx, _root(), name, if_match=was)])


@tool("await_file", effect_class="pure")
def await_file(name: str) -> str:
    """Return once there is a file of this name."""
    while not (_root() / name).exists():
        time.sleep(0.05)
    return name


@write_file.verifier
@remove_file.verifier
def unchanged(change: StateChange, _ctx: ProbeContext) -> Verdict:
    """Whether it is as it was left."""
    return files.confirm(_root(), change)
