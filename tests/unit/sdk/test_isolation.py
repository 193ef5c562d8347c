"""Attacks on processes of their own: tools that pry, outlive, flood, lie, die; and all outcomes as those made here."""

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aetheris.runtime.process.lock import locked, opened
from aetheris.sdk import ProbeContext, StateChange, ToolContext
from aetheris.sdk.invoke import ask_probe, invoke, verify
from aetheris.sdk.isolation import call_process, kernel
from aetheris.sdk.isolation.kept_process import HostSetup
from aetheris.sdk.isolation.tools import GivenSecrets, isolated_tools
from aetheris.sdk.loader import Toolbox, ToolboxError, load
from aetheris.sdk.outcomes import Confirmed, Drifted, Found, InDoubt, NotFound, Outcome, Succeeded, Unknown
from aetheris.sdk.redaction import NOTHING, Redactor
from aetheris.sdk.tool_output import ToolOutput
from aetheris.tool_executor.lock import holders
from tests.testkit.external_server import until
from tests.testkit.system import REPOSITORY

MODULE = "tests.testkit.isolated_tools"
CANARY = "a-credential-of-" + "this-test"
HIDDEN = "hunter2hunter2"
PATIENCE_S = 30.0

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="what is kept apart by Linux"),
]


@pytest.fixture(autouse=True)
def _unreadable() -> Generator[None]:
    kernel.unreadable()
    yield
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)


class IsolatedTools:
    """The module's tools in processes of their own, and what they have said."""

    def __init__(self, toolbox: Toolbox, lines: list[Mapping[str, Any]], output: ToolOutput) -> None:
        self.toolbox = toolbox
        self.lines = lines
        self._output = output

    async def call(self, name: str, redactor: Redactor = NOTHING, **args: Any) -> Outcome:
        tool = self.toolbox.get(name, "1")
        with self._output.of(tool, context()):
            return await invoke(tool, args, context(), redactor, self._output.raised)


@asynccontextmanager
async def running(given: HostSetup | None = None, redactor: Redactor = NOTHING) -> AsyncGenerator[IsolatedTools]:
    lines: list[Mapping[str, Any]] = []
    output = ToolOutput(
        lambda level, event, fields: lines.append({"level": level, "event": event, **fields}), lambda: redactor
    )
    async with isolated_tools(None, MODULE, REPOSITORY, given or HostSetup(), output.relay) as toolbox:
        yield IsolatedTools(toolbox, lines, output)


def context() -> ToolContext:
    return ToolContext("key-1", 1, "i", "job-1", "n")


def asking(external_key: str) -> ProbeContext:
    return ProbeContext(external_key, "i", "job-1", "n")


async def begun(where: Path) -> int:
    """The process that writes its number there."""
    written: list[str] = []

    def has_begun() -> bool:
        written[:] = [where.read_text()] if where.exists() else [""]
        return written[0] != ""

    await asyncio.to_thread(until, has_begun, PATIENCE_S)
    return int(written[0])


async def gone(where: Path) -> None:
    """The process that wrote its number there, once it has ended."""
    pid = await begun(where)
    await asyncio.to_thread(until, lambda: not lives(pid), PATIENCE_S)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def taken(loot: Path) -> bytes:
    return b"\0".join(one.read_bytes() for one in loot.iterdir())


async def test_a_tool_that_takes_all_it_can_read_finds_no_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AETHERIS_REDIS", f"redis://u:{CANARY}@localhost")
    monkeypatch.setenv("CANARY", CANARY)
    kept = tmp_path / "login"
    kept.write_text(CANARY)
    descriptor = os.open(kept, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    loot, here = tmp_path / "loot", tmp_path / "here"
    loot.mkdir()
    here.mkdir()
    try:
        async with running() as rig:
            came = await rig.call("pries", loot=str(loot))
        control = await invoke(load(MODULE, REPOSITORY).get("pries", "1"), {"loot": str(here)}, context())
    finally:
        os.close(descriptor)
    assert isinstance(control, Succeeded)
    assert CANARY.encode() in taken(here), "in the process itself the same tool finds it"
    assert isinstance(came, Succeeded)
    assert came.result == [], "neither its module's process nor who has started that lets itself be read"
    assert str(loot).encode() in taken(loot), "its own memory is in it"
    assert CANARY.encode() not in taken(loot)


async def test_only_variables_that_are_named_are_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHOP_URL", "http://shop")
    monkeypatch.setenv("OTHER", "o-value-of-this-test")
    async with running(HostSetup(("SHOP_URL", "UNSET"))) as rig:
        await rig.call("pries", loot=str(tmp_path))
    assert b"http://shop" in taken(tmp_path)
    assert b"o-value-of-this-test" not in taken(tmp_path)


@pytest.mark.parametrize(
    "what", ["json", "result", "partial", "strange", "surrogate", "deep", "large", "object", "long id", "none", "no"]
)
async def test_what_a_tool_returns_is_recorded_as_if_it_were_called_here(what: str) -> None:
    async with running() as rig:
        there = await rig.call("returns", what=what)
    here = await invoke(load(MODULE, REPOSITORY).get("returns", "1"), {"what": what}, context())
    assert _comparable(there) == _comparable(here)
    if isinstance(here, Succeeded) and isinstance(there, Succeeded):
        assert there.canonical == here.canonical


@pytest.mark.parametrize("how", ["failed", "not_executed", "key", "connection", "exits", 7])
async def test_what_a_tool_raises_is_the_same_too(how: Any) -> None:
    async with running() as rig:
        there = await rig.call("raises", how=how)
    here = await invoke(load(MODULE, REPOSITORY).get("raises", "1"), {"how": how}, context())
    assert _comparable(there) == _comparable(here)


async def test_an_error_shows_its_line_to_the_author_and_its_process_acts_no_more() -> None:
    async with running() as rig:
        came = await rig.call("raises", how="key", word="w-1")
    assert came == InDoubt("KeyError", returned=True)
    said = {line["event"]: line for line in rig.lines}
    assert "isolated_tools.py" in said["tool raised"]["traceback"]
    assert said["tool printed"]["line"] == "said before: w-1"
    assert said["tool logged"]["line"] == "logged w-1"
    assert {line["job_id"] for line in rig.lines} == {"job-1"}


async def test_secrets_of_a_call_are_in_nothing_that_it_says_not_even_where_it_is_cut() -> None:
    redactor = Redactor({"p@1": HIDDEN})
    async with running(redactor=redactor) as rig:
        with GivenSecrets({"p@1": HIDDEN}):
            failed = await rig.call("raises", redactor, how="failed", word=HIDDEN)
            await rig.call("raises", redactor, how="key", word=HIDDEN)
    assert "hunter2" not in f"{failed} {rig.lines}"
    assert "[secret p@1]" in str(rig.lines)


@pytest.mark.parametrize("how", ["exits", "killed", "hangs up", "talks"])
async def test_a_process_that_ends_in_mid_call_is_a_doubt_and_others_go_on(how: str, tmp_path: Path) -> None:
    where = tmp_path / "pid"
    async with running() as rig:
        came = await rig.call("ends", how=how, where=str(where))
        await gone(where)
        after = await rig.call("returns", what="none")
    error_class = "ToolProcessUnreadable" if how == "talks" else "ToolProcessDied"
    assert came == InDoubt(error_class, returned=True)
    assert isinstance(after, Succeeded)


async def test_a_call_that_takes_too_long_is_killed_and_acts_no_more(tmp_path: Path) -> None:
    async with running() as rig:
        came = await rig.call("hangs", where=str(tmp_path / "pid"))
        assert came == InDoubt("TimeoutError", returned=True)
        assert not lives(int((tmp_path / "pid").read_text()))


async def test_a_call_whose_caller_is_cancelled_is_killed(tmp_path: Path) -> None:
    async with running() as rig:
        calling = asyncio.create_task(rig.call("ends", how="sleeps", where=str(tmp_path / "pid")))
        await begun(tmp_path / "pid")
        calling.cancel()
        await gone(tmp_path / "pid")


async def test_what_hides_from_its_call_ends_with_it(tmp_path: Path) -> None:
    async with running() as rig:
        assert isinstance(await rig.call("leaves", where=str(tmp_path / "pid")), Succeeded)
        await gone(tmp_path / "pid")


async def test_a_flood_is_bounded_and_others_are_answered_meanwhile() -> None:
    async with running() as rig:
        flooding = asyncio.create_task(rig.call("floods"))
        assert isinstance(await rig.call("returns", what="none"), Succeeded)
        assert isinstance(await flooding, Succeeded)
    assert sum(len(str(line.get("line", ""))) for line in rig.lines) <= call_process.MOST_OUTPUT
    assert any("left out" in line["event"] for line in rig.lines)


async def test_probes_and_verifiers_run_there_too() -> None:
    async with running() as rig:
        tool = rig.toolbox.get("finds", "1")
        found = await ask_probe(tool, asking("k"), PATIENCE_S)
        assert found == Found({"key": "k", "node": "n"}, "ext", ("seen",), (StateChange("thing", "t-1", "create"),))
        assert await ask_probe(tool, asking("gone"), PATIENCE_S) == NotFound(("looked",))
        assert await ask_probe(tool, asking("breaks"), PATIENCE_S) == Unknown("KeyError")
        there = await verify(tool, StateChange("thing", "t-1", "create"), asking("k"), PATIENCE_S)
        assert there == Confirmed(("there",))
        assert await verify(tool, StateChange("thing", "t-2", "create"), asking("k"), PATIENCE_S) == Drifted(
            {"id": "t-2"}
        )


async def test_the_module_is_imported_there_alone_and_registered_as_if_it_were_here(tmp_path: Path) -> None:
    text = (REPOSITORY / "tests/testkit/isolated_tools.py").read_text()
    (tmp_path / "far_tools.py").write_text(text)
    async with isolated_tools(None, "far_tools", tmp_path, HostSetup(), _silent) as toolbox:
        assert "far_tools" not in sys.modules
        there = toolbox.entries()
    assert there == load(MODULE, REPOSITORY).entries()


async def test_a_tool_can_ask_for_it_alone() -> None:
    here = load(MODULE, REPOSITORY)
    async with isolated_tools(here, MODULE, REPOSITORY, HostSetup(), _silent) as toolbox:
        assert len(toolbox) == len(here)
        came = await invoke(toolbox.get("asks_alone", "1"), {}, context())
        assert isinstance(came, Succeeded)
        assert came.result != os.getpid()
        assert toolbox.get("returns", "1") is here.get("returns", "1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_module", "no_such_module"),
        ("import os; os._exit(3)", "ended while it was loaded"),
        ("x = 1", "has no tools"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
async def test_a_module_that_cannot_be_loaded_is_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "broken_tools.py").write_text(text)
    with pytest.raises(ToolboxError, match=f"broken_tools.*{says}"):
        async with isolated_tools(None, "broken_tools", tmp_path, HostSetup(), _silent):
            pass


EXECUTOR = """
import asyncio, sys
from pathlib import Path
from aetheris.sdk.context import ToolContext
from aetheris.sdk.inheritance import kept_by_children
from aetheris.sdk.invoke import invoke
from aetheris.sdk.isolation.kept_process import HostSetup
from aetheris.sdk.isolation.tools import isolated_tools
from aetheris.runtime.process.lock import locked, opened

async def main():
    lock = opened(Path(sys.argv[1]))
    assert locked(lock)
    kept_by_children(lock)
    async with isolated_tools(None, "tests.testkit.isolated_tools", Path(sys.argv[2]), HostSetup(), print) as tools:
        ctx = ToolContext("k", 1, "i", "j", "n")
        await invoke(tools.get("ends", "1"), {"how": "sleeps", "where": sys.argv[3]}, ctx)

asyncio.run(main())
"""


async def test_killed_with_its_executor_and_the_lock_is_held_until_then(tmp_path: Path) -> None:
    where, lock = tmp_path / "pid", tmp_path / "lock"
    argv = [sys.executable, "-c", EXECUTOR, str(lock), str(REPOSITORY), str(where)]
    executor = await asyncio.to_thread(subprocess.Popen, argv)
    pid = await begun(where)
    assert pid in holders(lock)
    executor.kill()
    executor.wait()
    await gone(where)
    descriptor = opened(lock)
    await asyncio.to_thread(until, lambda: locked(descriptor), PATIENCE_S)
    os.close(descriptor)


def _silent(_level: int, _what: str, _fields: Mapping[str, Any]) -> None:
    pass


def _comparable(outcome: Outcome) -> Outcome:
    """Whether anything lives on is known only of a process of its own."""
    return replace(outcome, returned=False) if isinstance(outcome, InDoubt) else outcome
