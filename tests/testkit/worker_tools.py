"""Tools whose calls outlive what made them: a thread, a child, a child's child. Load as `tests.testkit.worker_tools`.

Each says that it has begun (`<tag>.begun` in OUTLIVING), waits until it is let go (`<tag>.go`), and then
takes effect outside.
"""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx

from aetheris.sdk import Found, NotFound, ProbeContext, ToolContext, tool
from aetheris.sdk.toolkits import http

SETTLES_WITHIN_S = 0.5
TIMEOUT_S = 120.0

ACTS = "import sys; from tests.testkit.worker_tools import act; act(sys.argv[1], sys.argv[2])"


@tool("outlives_in_a_thread", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S, timeout_s=TIMEOUT_S)
async def outlives_in_a_thread(ctx: ToolContext, tag: str) -> str:
    """A thread can't be cancelled."""
    await asyncio.to_thread(act, tag, ctx.external_key)
    return tag


@tool("outlives_in_a_child", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S, timeout_s=TIMEOUT_S)
async def outlives_in_a_child(ctx: ToolContext, tag: str) -> str:
    """A child in a session of its own outlives kill -9 of its parent."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ACTS, tag, ctx.external_key), start_new_session=True
    )
    await child.wait()
    return tag


@tool("outlives_in_a_childs_child", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S, timeout_s=TIMEOUT_S)
def outlives_in_a_childs_child(ctx: ToolContext, tag: str) -> str:
    """What its child starts has closed whatever it didn't know."""
    between = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]], start_new_session=True)"
    argv = [sys.executable, "-c", between, ACTS, tag, ctx.external_key]
    subprocess.run(argv, start_new_session=True, check=True)
    return tag


@outlives_in_a_thread.probe
@outlives_in_a_child.probe
@outlives_in_a_childs_child.probe
async def found(external_key: str, ctx: ProbeContext) -> Found | NotFound:
    """Whether the external system has an effect of that key."""
    effects = await http.read(
        ctx, f"{os.environ['OUTSIDE_URL']}/effects", params={"key": external_key}, transport=http.direct()
    )
    return Found(effects[0]["tag"], effects[0]["id"]) if effects else NotFound()


def act(tag: str, key: str) -> None:
    """Say that it has begun, wait, take effect."""
    folder = Path(os.environ["OUTLIVING"])
    (folder / f"{tag}.begun").write_text(str(os.getpid()))
    while not (folder / f"{tag}.go").exists():
        time.sleep(0.02)
    httpx.post(f"{os.environ['OUTSIDE_URL']}/effect", json={"key": key, "tag": tag}, trust_env=False)
