"""Files of a service's credentials, which processes of tools can't open though their user may (docs/tools.md)."""

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

import aetheris.sdk
from aetheris.sdk import ToolContext
from aetheris.sdk.invoke import invoke
from aetheris.sdk.isolation import kernel, programs
from aetheris.sdk.isolation.kept_process import HostSetup
from aetheris.sdk.isolation.programs import argv_of, close_to_programs
from aetheris.sdk.isolation.tools import isolated_tools
from aetheris.sdk.outcomes import Succeeded
from aetheris.sdk.toolkits import shell

NOBODY = "nobody"
OLDEST = (5, 19)

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="what is kept apart by Linux"),
    pytest.mark.skipif(sys.platform == "linux" and os.geteuid() != 0, reason="needs root, to be somebody else"),
    pytest.mark.skipif(
        tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) < OLDEST,
        reason="Linux 5.19 with Landlock",
    ),
]

READER = """
from pathlib import Path
from aetheris.sdk import tool

@tool("reads", effect_class="pure", timeout_s=60)
def reads(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        return type(error).__name__
"""


@pytest.fixture
def pod() -> Generator[Path]:
    """As a pod has it: folders that root alone changes, credentials that everybody may read, a folder for work."""
    folder = Path(tempfile.mkdtemp(prefix="aetheris-pod-", dir="/var/lib"))
    try:
        folder.chmod(0o755)
        mounted = folder / "secrets" / "kafka"
        (mounted / "..2026").mkdir(parents=True)
        (mounted / "..2026" / "user.key").write_text("the key")
        (mounted / "..data").symlink_to("..2026")
        (mounted / "user.key").symlink_to("..data/user.key")
        for name in ("secrets/plain.key", "secrets/beside", "work/login", "work/mine"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"in {name}")
        (folder / "work" / "deeper").mkdir()
        user = pwd.getpwnam(NOBODY)
        for path in (folder / "work", folder / "work" / "deeper", folder / "work" / "mine"):
            os.chown(path, user.pw_uid, user.pw_gid)
        (folder / "reader.py").write_text(READER)
        yield folder
    finally:
        shutil.rmtree(folder)


def as_nobody(act: Callable[[], Any]) -> Any:
    """What it gives in a process of another user, without capabilities."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            user = pwd.getpwnam(NOBODY)
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            kernel.without_capabilities()
            os.write(theirs, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as said:
        found = json.loads(said.read())
    os.waitpid(child, 0)
    return found


def read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        return type(error).__name__


def test_what_is_closed_can_not_be_opened_and_all_else_can(pod: Path) -> None:
    secrets, work = pod / "secrets", pod / "work"

    def act() -> Mapping[str, Any]:
        before = read(secrets / "kafka" / "user.key")
        closed = kernel.reads_nothing_of([str(secrets / "kafka" / "user.key"), str(secrets / "plain.key"), "/none"])
        (work / "new").write_text("new")
        (work / "mine").rename(work / "deeper" / "mine")
        return {
            "before": before,
            "closed": sorted(map(str, closed)),
            "denied": [
                read(secrets / "kafka" / "user.key"),
                read(secrets / "kafka" / "..2026" / "user.key"),
                read(secrets / "plain.key"),
                read(f"/proc/self/root{secrets}/plain.key"),
                subprocess.run(["cat", str(secrets / "plain.key")], capture_output=True, text=True, check=False).stdout,
            ],
            "open": [read(secrets / "beside"), read(work / "new"), read(work / "deeper" / "mine")],
            "system": read("/etc/passwd")[:5],
            "started": subprocess.run(["echo", "runs"], capture_output=True, text=True, check=False).stdout,
        }

    assert as_nobody(act) == {
        "before": "the key",
        "closed": [str(secrets / "kafka"), str(secrets / "plain.key")],
        "denied": [*["PermissionError"] * 4, ""],
        "open": ["in secrets/beside", "new", "in work/mine"],
        "system": "root:",
        "started": "runs\n",
    }


def test_what_lies_where_tools_may_write_stays_open_and_nothing_new_is_lost(pod: Path) -> None:
    work = pod / "work"

    def act() -> Any:
        named = [str(work / "login"), str(pod / "secrets" / "plain.key"), str(pod / "secrets" / "kafka" / "user.key")]
        told = list(kernel.stay_open(named))
        closed = kernel.reads_nothing_of(named[:1])
        (work / "new").write_text("new")
        return [told, sorted(map(str, closed)), read(work / "login"), read(work / "new")]

    assert as_nobody(act) == [[str(work / "login")], [], "in work/login", "new"]


async def test_a_tool_in_a_process_of_its_own_reads_no_key_of_its_executor(pod: Path) -> None:
    code = Path(aetheris.sdk.__file__)
    if as_nobody(lambda: os.access(code, os.R_OK)) is not True:
        pytest.skip("nobody else may read this folder")
    key = pod / "secrets" / "kafka" / "user.key"
    said = dict[bool, Any]()
    for closed in (True, False):
        given = HostSetup((), NOBODY, (key,) if closed else ())
        async with isolated_tools(None, "reader", pod, given, lambda *_: None) as tools:
            context = ToolContext("key-1", 1, "i", "job-1", "n")
            came = await invoke(tools.get("reads", "1"), {"path": str(key)}, context)
            assert isinstance(came, Succeeded)
            said[closed] = came.result
    assert said == {True: "PermissionError", False: "the key"}


def _python() -> str | None:
    """One that anybody may start."""
    named = (sys.executable, *(shutil.which(f"python{one}", path=os.defpath) for one in ("3.13", "3.12", "3.11", "3")))
    return next((one for one in named if one is not None and os.access(one, os.X_OK)), None)


def test_a_program_that_is_started_for_a_tool_reads_no_key_of_its_executor(pod: Path) -> None:
    key, beside = pod / "secrets" / "kafka" / "user.key", pod / "secrets" / "beside"
    cat, echo = (str(shutil.which(one)) for one in ("cat", "echo"))
    python = as_nobody(_python)
    places = {programs.__file__: os.R_OK, tempfile.gettempdir(): os.W_OK}
    if python is None or as_nobody(lambda: all(os.access(*one) for one in places.items())) is not True:
        pytest.skip("nobody else may run a Python here, read this folder, or write temporary files")
    env = {"PATH": os.environ["PATH"], "GIVEN": "1"}

    def printed(*argv: str) -> str:
        return subprocess.run(argv_of(argv, env), env=env, capture_output=True, text=True, check=False).stdout

    async def by_shell(*argv: str) -> str:
        try:
            return (await shell.run(ToolContext("key-1", 1, "i", "job-1", "n"), argv)).out.decode()
        except shell.ProgramFailed:
            return "failed"

    def act() -> Any:
        os.environ[shell.SETTING], sys.executable = f"{cat},{echo}", python
        before = printed("cat", str(key))
        close_to_programs([key])
        missing = argv_of(["no-such-program"], env)
        seen = [printed("cat", str(one)) for one in (key, beside)]
        told = [asyncio.run(by_shell(*argv)) for argv in ((cat, str(key)), (cat, str(beside)), (echo, "a b", "$c"))]
        return [before, seen, told, printed("env"), missing]

    found = as_nobody(act)
    assert found == [
        "the key",
        ["", "in secrets/beside"],
        ["failed", "in secrets/beside", "a b $c\n"],
        f"PATH={os.environ['PATH']}\nGIVEN=1\n",
        ["no-such-program"],
    ]
