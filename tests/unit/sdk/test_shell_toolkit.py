"""Programs as tools: refused unless they are named, given nothing that isn't declared, ended in time."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aetheris.sdk import Failed, Result, ToolContext, tool
from aetheris.sdk.invoke import invoke
from aetheris.sdk.outcomes import InDoubt, Permanent, Succeeded
from aetheris.sdk.toolkits import shell
from tests.testkit.external_server import until

CTX = ToolContext("aetheris:job-1:n.1:0", 0, "ab" * 32, "job-1", "n.1")
SH = "/bin/sh"
"""Only here: what a test lets a shell do, nobody should let a model do."""


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shell.SETTING, f"{SH}, {sys.executable}")


async def test_it_is_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = tmp_path / "made"
    for setting in (None, "", " , ", "sh", "*", "bin/sh"):
        if setting is None:
            monkeypatch.delenv(shell.SETTING)
        else:
            monkeypatch.setenv(shell.SETTING, setting)
        with pytest.raises(Failed, match="no program may be run here"):
            await shell.run(CTX, [SH, "-c", f"echo > {made}"])
    assert not made.exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "true"],
        ["/bin/sh ", "-c", "true"],
        ["/bin/../bin/sh", "-c", "true"],
        ["/usr/bin/env", "sh"],
        [""],
        [],
        "/bin/sh",
        "/bin/sh -c true",
        [SH, "-c", "true\0"],
    ],
)
async def test_what_is_not_named_exactly_is_refused(argv: Sequence[str]) -> None:
    with pytest.raises(Failed, match="refused"):
        await shell.run(CTX, argv)


async def test_it_is_given_what_is_declared_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_CANARY", "a secret of the executor's")
    reported = "import json, os, sys; print(json.dumps([dict(os.environ), os.getcwd(), sys.argv[1:]]))"
    argv = [sys.executable, "-I", "-c", reported, "$HOME; `id` | cat > x && *"]
    printed = await shell.run(CTX, argv, env={"LC_ALL": "C.UTF-8", "SAID": "ü"})
    environment, folder, arguments = json.loads(printed.out)
    assert environment == {"LC_ALL": "C.UTF-8", "SAID": "ü"}
    assert arguments == ["$HOME; `id` | cat > x && *"]
    assert folder != os.getcwd()
    assert await asyncio.to_thread(lambda: not Path(folder).exists())
    bare = await shell.run(CTX, [SH, "-c", "exec /usr/bin/env"])
    assert {line.partition(b"=")[0] for line in bare.out.splitlines()} <= {b"PWD", b"_", b"SHLVL", b"OLDPWD"}


async def test_it_reads_its_input_and_its_two_outputs_are_kept_apart(tmp_path: Path) -> None:
    printed = await shell.run(CTX, [SH, "-c", "pwd; cat >&2"], stdin=b"x" * 300_000, folder=tmp_path)
    assert printed == shell.Printed(f"{tmp_path}\n".encode(), b"x" * 300_000)
    assert await shell.run(CTX, [SH, "-c", "exit 0"], stdin=b"x" * 300_000) == shell.Printed(b"", b"")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo done", Succeeded("done\n")),
        ("exit 3", InDoubt("ProgramFailed")),
        ("exit 4", Permanent("refused: exit code 4")),
        ("kill -9 $$", InDoubt("ProgramFailed")),
        ("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done", InDoubt("OutputTooLarge")),
    ],
)
async def test_what_an_end_says(script: str, expected: object) -> None:
    @tool("run_script", effect_class="opaque", irreversible=False)
    async def run_script(ctx: ToolContext) -> Any:
        printed = await shell.run(ctx, [SH, "-c", script], refusals={4}, largest=10_000)
        return printed.out.decode()

    assert run_script.effect_class == "opaque"
    assert await invoke(run_script, {}, CTX) == expected


async def test_what_can_not_be_started_is_no_effect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("no program")
    monkeypatch.setenv(shell.SETTING, f"{tmp_path}/none,{script}")
    with pytest.raises(Failed, match="not started: FileNotFoundError"):
        await shell.run(CTX, [f"{tmp_path}/none"])
    with pytest.raises(Failed, match="not started: PermissionError"):
        await shell.run(CTX, [str(script)])


async def test_too_late_it_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    script = f"sleep 600 & echo $! $$ > {started}.new; mv {started}.new {started}; wait"

    @tool("sleeper", timeout_s=60, effect_class="opaque", irreversible=False)
    async def sleeper(ctx: ToolContext) -> Result:
        await shell.run(ctx, [SH, "-c", script], env={"PATH": os.defpath})
        return Result(None)

    soon = ToolContext("k", 0, "ab" * 32, "j", "n", deadline=time.monotonic() + 8)
    assert await invoke(sleeper, {}, soon) in (InDoubt("TimeoutError"), InDoubt("timeout"))
    pids = [int(pid) for pid in started.read_text().split()]
    await asyncio.to_thread(until, lambda: not any(alive(pid) for pid in pids), 20)


async def test_it_does_not_wait_for_what_is_left_behind() -> None:
    printed = await shell.run(CTX, [SH, "-c", "sleep 600 & echo $!"], env={"PATH": os.defpath})
    await asyncio.to_thread(until, lambda: not alive(int(printed.out)), 20)


def test_it_dies_with_its_executor(tmp_path: Path) -> None:
    """Else it could still act when its worker is known to have ended."""
    started = tmp_path / "pid"
    program = f"""
import asyncio
from aetheris.sdk import ToolContext
from aetheris.sdk.toolkits import shell
argv = ["{SH}", "-c", "echo $$ > {started}.new; mv {started}.new {started}; exec sleep 600"]
asyncio.run(shell.run(ToolContext("k", 0, "a", "j", "n"), argv, env={{"PATH": "{os.defpath}"}}))
"""
    with subprocess.Popen([sys.executable, "-c", program]) as executor:
        try:
            until(started.exists, 60)
        finally:
            executor.send_signal(signal.SIGKILL)
    until(lambda: not alive(int(started.read_text())), 20)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
