"""What is a process of its own always, programs of the shell toolkit and MCP servers; and users who are not root."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

import aetheris.sdk
from tests.testkit.system import REPOSITORY

CANARY = "a-credential-of-this-test-alone"
NOBODY = 65534
PRYING = "tests.testkit.isolated_tools"

linux = pytest.mark.skipif(sys.platform != "linux", reason="kept apart by Linux")
pytestmark = [pytest.mark.timeout(120), linux]

LOOTS = """
import os, pathlib, sys
found = [pathlib.Path("/proc/self/environ").read_bytes()]
for name in os.listdir("/proc/self/fd"):
    path = pathlib.Path("/proc/self/fd", name)
    if path.is_file():
        found.append(str(path.resolve()).encode() + b" " + path.read_bytes())
pathlib.Path(sys.argv[1]).write_bytes(b"\\0".join(found))
"""

EXECUTOR = """
import asyncio, os, sys
from pathlib import Path
import uvloop
from aetheris.runtime.process.lock import locked, opened
from aetheris.sdk.context import ToolContext
from aetheris.sdk.inheritance import kept_by_children
from aetheris.sdk.toolkits import mcp, shell
from aetheris.sdk.toolkits.mcp.connection import McpConnection, McpUnreachable
from aetheris.sdk.toolkits.mcp.servers import McpServer

folder, loots = Path(sys.argv[1]), sys.argv[2]

async def main():
    login = open(folder / "login")
    lock = opened(folder / "lock")
    assert locked(lock)
    kept_by_children(lock)
    await shell.run(ToolContext("k", 1, "i", "j", "n"), [sys.executable, "-c", loots, str(folder / "shell")])
    server = McpServer(command=sys.executable, args=("-c", loots, str(folder / "mcp")), start_within_s=30)
    connection = McpConnection(server, {})
    try:
        await connection.tools()
    except McpUnreachable:
        pass
    await connection.close()

uvloop.run(main())
"""


def test_programs_and_servers_are_given_no_credential_and_keep_the_lock(tmp_path: Path) -> None:
    (tmp_path / "login").write_text(CANARY)
    env = os.environ | {"AETHERIS_REDIS": CANARY, "CREDENTIAL": CANARY, "AETHERIS_SHELL_PROGRAMS": sys.executable}
    subprocess.run([sys.executable, "-c", EXECUTOR, str(tmp_path), LOOTS], env=env, check=True, timeout=100)
    for child in ("shell", "mcp"):
        taken = (tmp_path / child).read_bytes()
        assert CANARY.encode() not in taken, child
        assert str(tmp_path / "lock").encode() in taken, f"{child} keeps its executor from being known to have ended"


AS_SOMEBODY = """
import asyncio, os, subprocess, sys
from pathlib import Path
from aetheris.sdk.context import ToolContext
from aetheris.sdk.invoke import invoke
from aetheris.sdk.isolation import kernel
from aetheris.sdk.isolation.kept_process import HostSetup
from aetheris.sdk.isolation.tools import isolated_tools

async def main():
    loot, module, folder, user, how = sys.argv[1:]
    if how.startswith("unreadable"):
        kernel.unreadable()
    if how.endswith("child"):
        pries = f"from {module} import pries; print(len(pries({loot!r})))"
        subprocess.run([sys.executable, "-c", pries], env={"PYTHONPATH": os.environ["PYTHONPATH"]}, check=True)
        return
    given = HostSetup((), user or None)
    async with isolated_tools(None, module, Path(folder), given, print) as tools:
        came = await invoke(tools.get("pries", "1"), {"loot": loot}, ToolContext("k", 1, "i", "j", "n"))
        print(len(came.result))

asyncio.run(main())
"""


@pytest.fixture
def shared() -> Generator[Path]:
    """A folder with a Python that everybody can run, and a folder that everybody can write to."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    folder = Path(tempfile.mkdtemp(prefix="aetheris-users-"))
    try:
        folder.chmod(0o755)
        (folder / "loot").mkdir()
        (folder / "loot").chmod(0o777)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        base = Path(sys.base_prefix)
        without = shutil.ignore_patterns("site-packages", "test", "__pycache__", "idlelib", "ensurepip")
        shutil.copytree(base / "lib" / version, folder / "lib" / version, ignore=without)
        for library in (base / "lib").glob("libpython*"):
            shutil.copy(library, folder / "lib")
        (folder / "bin").mkdir()
        shutil.copy(Path(sys.executable).resolve(), folder / "bin" / version)
        subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
        if subprocess.run([*_as_nobody(), "test", "-r", str(Path(aetheris.sdk.__file__))], check=False).returncode:
            pytest.skip("nobody else may read this folder")
        yield folder
    finally:
        shutil.rmtree(folder)


def _as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]


def _loot(shared: Path, *, as_nobody: bool, user: str = "", how: str = "unreadable") -> tuple[int, bytes, set[int]]:
    """How many processes above it a tool could read, what it took, and as whom."""
    ran = _ran(shared, _as_nobody() if as_nobody else [], user, how)
    assert ran.returncode == 0, ran.stdout
    pieces = list((shared / "loot").iterdir())
    taken = b"\0".join(one.read_bytes() for one in pieces)
    return int(ran.stdout.split()[-1]), taken, {one.stat().st_uid for one in pieces}


def _ran(shared: Path, by: list[str], user: str, how: str = "unreadable") -> "subprocess.CompletedProcess[str]":
    (python,) = (shared / "bin").iterdir()
    env = {"PATH": os.environ["PATH"], "CREDENTIAL": CANARY, "PYTHONDONTWRITEBYTECODE": "1"}
    env["PYTHONPATH"] = os.pathsep.join([*filter(None, sys.path), str(REPOSITORY)])
    return subprocess.run(
        [*by, str(python), "-c", AS_SOMEBODY, str(shared / "loot"), PRYING, str(REPOSITORY), user, how],
        env=env,
        cwd="/",
        check=False,
        timeout=100,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_an_executor_that_is_not_root_keeps_to_itself_what_its_user_could_read(shared: Path) -> None:
    opened, taken, uids = _loot(shared, as_nobody=True)
    assert (opened, uids) == (0, {NOBODY})
    assert CANARY.encode() not in taken


@pytest.mark.parametrize(("how", "could"), [("unreadable child", 0), ("readable child", 1)])
def test_that_alone_keeps_it_from_a_child_of_its_user(shared: Path, how: str, could: int) -> None:
    opened, taken, _ = _loot(shared, as_nobody=True, how=how)
    assert opened == could
    assert (CANARY.encode() in taken) == bool(could)


def test_tools_run_as_the_user_that_is_named(shared: Path) -> None:
    opened, taken, uids = _loot(shared, as_nobody=False, user="nobody", how="readable")
    assert (opened, uids) == (0, {NOBODY})
    assert CANARY.encode() not in taken


@pytest.mark.parametrize("capability", ["kill", "setuid", "setgid"])
def test_another_user_for_tools_is_refused_where_what_it_runs_could_not_be_ended(shared: Path, capability: str) -> None:
    ran = _ran(shared, ["setpriv", f"--bounding-set=-{capability}"], "nobody")
    assert ran.returncode != 0
    said = ran.stdout.splitlines()[-1]
    assert said.startswith("aetheris.sdk.loader.ToolboxError")
    assert "AETHERIS_TOOL_USER" in said
    assert f"CAP_{capability.upper()}" in said


def test_a_user_that_the_system_does_not_know_is_refused(shared: Path) -> None:
    assert "AETHERIS_TOOL_USER names no user" in _ran(shared, [], "nobody-of-that-name").stdout.splitlines()[-1]
