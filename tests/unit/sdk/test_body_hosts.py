"""Attacks on processes of workflows: bodies that block, exit, flood, pry; each is named, and none disturbs others."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aetheris.sdk import Failed, NotExecuted, Result, inheritance
from aetheris.sdk.isolation.errors import RaisedElsewhere
from aetheris.sdk.isolation.kept_process import HostFailed, HostSetup
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, BodyStart, CallSettled, Idle, Lost, Returned
from aetheris.sdk.workflows.hosts import BodyHost

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="what is kept apart by Linux"),
]

PATIENCE_S = 30.0
SILENT_S = 1.0
CANARY = "a-credential-of-" + "this-test"
HEAD = """
import asyncio, os, signal, sys, threading, time
from aetheris.sdk import tool
from aetheris.sdk.workflows import WorkflowContext, workflow

@tool("note", effect_class="idempotent")
def note(text: str) -> str:
    return text

@workflow(tools=[note])
async def handle(ctx: WorkflowContext, text: str = "x") -> str:
    return await ctx.call(note, text=text)
"""


class HostOfBodies:
    """A host, and all that its bodies have said."""

    def __init__(self) -> None:
        self.said: list[BodySaid] = []
        self._news = asyncio.Event()
        self.host: BodyHost

    def hear(self, said: BodySaid) -> None:
        self.said.append(said)
        self._news.set()

    async def begin(self, body: str, workflow: str = "handle", *history: CallSettled, **args: Any) -> None:
        await self.host.begin(BodyStart(body, f"{workflow}@1", "job-1", "w", args), history)

    async def last(self, body: str, kind: type[BodySaid]) -> Any:
        """The next word of that kind of a body."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for one in self.said:
                    if one.body == body and isinstance(one, kind):
                        return one
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def hosting(folder: Path, text: str = "", silent_s: float = SILENT_S) -> AsyncGenerator[HostOfBodies]:
    (folder / "flows.py").write_text(HEAD + text)
    rig = HostOfBodies()
    rig.host = BodyHost("flows", folder, HostSetup(), rig.hear, silent_s=silent_s)
    await rig.host.start()
    try:
        yield rig
    finally:
        await rig.host.close()


def settled(node_id: str, result: Any = "noted") -> CallSettled:
    return CallSettled(node_id=node_id, outcome="success", result=result)


async def test_bodies_ask_are_told_and_return(tmp_path: Path) -> None:
    async with hosting(tmp_path) as rig:
        for number in range(50):
            await rig.begin(f"b{number}", text=str(number))
        for number in range(50):
            asked = await rig.last(f"b{number}", Asked)
            assert asked.node["args"] == {"text": str(number)}
            assert await rig.last(f"b{number}", Idle) == Idle(f"b{number}", (asked.node["id"],))
            rig.host.settled(f"b{number}", [settled(asked.node["id"], f"{number}!")])
            assert await rig.last(f"b{number}", Returned) == Returned(f"b{number}", f"{number}!")
            rig.host.settled(f"b{number}", [settled(asked.node["id"])])  # late, and nothing comes of it
        assert Counter(type(one) for one in rig.said) == {Asked: 50, Idle: 50, Returned: 50}


async def test_what_a_module_has_is_told_as_it_is_registered(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(HEAD)
    host = BodyHost("flows", tmp_path, HostSetup(), lambda _: None)
    (entry,) = await host.start()
    built_in = ["jobs.continue", "jobs.start", "local.act", "local.read"]
    assert (entry["name"], entry["kind"], entry["calls"]) == ("handle", "workflow", [*built_in, "note"])
    assert entry["ref"] == "flows:handle"
    await host.close()


async def test_a_module_that_can_t_be_loaded_is_told_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(HEAD + "import no_such_module_at_all\n")
    host = BodyHost("flows", tmp_path, HostSetup(), lambda _: None)
    with pytest.raises(HostFailed, match="no_such_module_at_all"):
        await host.start()
    await host.close()


async def test_idle_is_heard_only_of_a_body_that_has_been_told_all(tmp_path: Path) -> None:
    text = """
@workflow(tools=[note])
async def many(ctx: WorkflowContext) -> int:
    for n in range(300):
        await ctx.call(note, text=str(n))
    return 300
"""
    async with hosting(tmp_path, text, silent_s=30) as rig:
        await rig.begin("b", "many")
        history = list[CallSettled]()
        while not isinstance(last := rig.said[-1] if rig.said else None, Returned):
            if isinstance(last, Idle):
                rig.said.clear()
                history.append(settled(last.waits_for[0]))
                rig.host.settled("b", [history[-1]])
            await asyncio.sleep(0)
        rig.said.clear()
        large = [one.model_copy(update={"result": "x" * 60_000}) for one in history]
        await rig.begin("again", "many", *large)  # 18 MB: several frames
        assert await rig.last("again", Returned) == Returned("again", 300)
        assert [type(one) for one in rig.said] == [Asked] * 300 + [Returned]


LOOPS = """
@workflow(tools=[note])
async def loops(ctx: WorkflowContext) -> None:
    while True:
        pass

@workflow(tools=[note])
async def exits(ctx: WorkflowContext) -> None:
    os._exit(7)

@workflow(tools=[note])
async def crashes(ctx: WorkflowContext) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)

@workflow(tools=[note])
async def stops(ctx: WorkflowContext) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)

@workflow(tools=[note])
async def holds(ctx: WorkflowContext) -> None:
    import re
    re.match("(a*)*b", "a" * 40)
"""


@pytest.mark.parametrize("body", ["loops", "exits", "crashes", "stops", "holds"])
async def test_a_body_that_ends_its_process_or_never_waits_is_named_and_others_go_on(body: str, tmp_path: Path) -> None:
    async with hosting(tmp_path, LOOPS) as rig:
        await rig.begin("asleep")
        await rig.last("asleep", Idle)
        await rig.begin("bad", body)
        await rig.begin("behind")
        bad = await rig.last("bad", Lost)
        assert bad.at_fault
        if body == "loops":
            assert f"{tmp_path}/flows.py:" in bad.why
        for one in ("asleep", "behind"):
            assert not (await rig.last(one, Lost)).at_fault
        rig.said.clear()
        await rig.begin("asleep")
        assert isinstance(await rig.last("asleep", Idle), Idle)


PRIES = """
SECRET = "hunter2"

@workflow(tools=[note])
async def raises(ctx: WorkflowContext) -> None:
    raise RuntimeError(SECRET)

@workflow(tools=[note])
async def recurses(ctx: WorkflowContext) -> None:
    async def again(n):
        await again(n + 1)
    await again(1)

@workflow(tools=[note])
async def leaves(ctx: WorkflowContext) -> None:
    sys.exit(3)

@workflow(tools=[note])
async def huge(ctx: WorkflowContext) -> str:
    return "x" * (17 * 1024 * 1024)

@workflow(tools=[note])
async def values(ctx: WorkflowContext) -> list[int]:
    return [1] * 600_000

@workflow(tools=[note])
async def threads(ctx: WorkflowContext) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    threading.Thread(target=time.sleep, args=(600,)).start()
    def meddles():
        try:
            loop.call_soon_threadsafe(task.cancel)
        except TypeError:
            pass
    meddling = threading.Thread(target=meddles)
    meddling.start()
    meddling.join()
    await ctx.call(note, text="after")

@workflow(tools=[note])
async def pries(ctx: WorkflowContext) -> dict:
    return {"env": sorted(os.environ), "fds": len(os.listdir("/proc/self/fd")), "seed": os.environ["PYTHONHASHSEED"]}
"""


@pytest.mark.parametrize(
    ("body", "error_class"),
    [
        ("raises", "RuntimeError"),
        ("recurses", "RecursionError"),
        ("leaves", "SystemExit"),
        ("huge", "ResultTooLarge"),
        ("values", "ResultTooLarge"),
    ],
)
async def test_a_body_that_raises_ends_alone_and_its_words_are_not_told(
    body: str, error_class: str, tmp_path: Path
) -> None:
    async with hosting(tmp_path, PRIES, silent_s=30) as rig:
        await rig.begin("asleep")
        await rig.last("asleep", Idle)
        await rig.begin("bad", body)
        raised = await rig.last("bad", BodyRaised)
        assert raised.error_class == error_class
        assert "hunter2" not in raised.text
        rig.host.settled("asleep", [settled((await rig.last("asleep", Asked)).node["id"])])
        assert await rig.last("asleep", Returned) == Returned("asleep", "noted")


async def test_threads_change_nothing_of_a_body(tmp_path: Path) -> None:
    async with hosting(tmp_path, PRIES, silent_s=30) as rig:
        await rig.begin("b", "threads")
        idle = await rig.last("b", Idle)
        rig.host.settled("b", [settled(idle.waits_for[0])])
        assert await rig.last("b", Returned) == Returned("b", None)


async def test_a_body_sees_no_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_SOME_PASSWORD", CANARY)
    async with hosting(tmp_path, PRIES, silent_s=30) as rig:
        await rig.begin("b", "pries")
        seen = (await rig.last("b", Returned)).result
        assert "AETHERIS_SOME_PASSWORD" not in seen["env"]
        assert CANARY not in json.dumps(seen)
        assert seen["seed"] == "0"
        assert seen["fds"] < 12 + len(inheritance.kept())  # a worker's locks


async def test_a_stopped_body_ends_and_says_so(tmp_path: Path) -> None:
    async with hosting(tmp_path) as rig:
        await rig.begin("b")
        await rig.last("b", Idle)
        rig.host.stop("b", "cancelled")
        assert (await rig.last("b", BodyRaised)).error_class == "WorkflowCancelled"
        rig.host.stop("b", "cancelled")


async def test_what_a_process_says_otherwise_than_it_may_ends_it(tmp_path: Path) -> None:
    text = """
@workflow(tools=[note])
async def lies(ctx: WorkflowContext) -> None:
    import socket
    from aetheris.sdk.isolation.frames import packed
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            one = socket.socket(fileno=os.dup(number))
            one.sendall(packed({"body": "other", "returned": True}))
        except OSError:
            pass
"""
    async with hosting(tmp_path, text, silent_s=30) as rig:
        await rig.begin("other")
        await rig.last("other", Idle)
        await rig.begin("liar", "lies")
        assert (await rig.last("other", Lost)).why == "its process says what can't be read"
        assert not any(isinstance(one, Returned) for one in rig.said)


async def test_nothing_is_left_when_it_is_closed(tmp_path: Path) -> None:
    others = _below(os.getpid())
    async with hosting(tmp_path) as rig:
        await rig.begin("b")
        await rig.last("b", Idle)
        hosts = _below(os.getpid()) - others
        assert hosts
    assert not hosts & _below(os.getpid())
    assert not any(isinstance(one, Lost) for one in rig.said)


def _below(pid: int) -> set[int]:
    found = set[int]()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (thread / "children").read_text().split()):
            found |= {child} | _below(child)
    return found


OWN = """
ACTED = []

def works(n: int) -> int:
    time.sleep(3 * n)  # longer than a body may hold up the others
    return n

def fails() -> None:
    raise Failed("no")

def breaks() -> None:
    raise KeyError("secret")

def leaves() -> None:
    os._exit(3)

@workflow(tools=[note])
async def records(ctx: WorkflowContext, what: str) -> object:
    return await ctx.record(what, {"works": works, "fails": fails, "breaks": breaks, "leaves": leaves}[what],
                            *([1] if what == "works" else []), reads_only=False)
"""


async def test_its_own_functions_run_beside_it_and_hold_nobody_up(tmp_path: Path) -> None:
    async with hosting(tmp_path, "from aetheris.sdk import Failed\n" + OWN) as rig:
        await rig.begin("b1", "records", what="works")
        node = (await rig.last("b1", Asked)).node
        assert (node["tool"], node["args"]) == ("local.act", {"name": "works", "args": [1]})
        made = asyncio.create_task(rig.host.make("b1", node["id"]))
        await asyncio.sleep(0)
        with pytest.raises(NotExecuted):  # once
            await rig.host.make("b1", node["id"])
        await rig.begin("b2")
        await rig.last("b2", Idle)
        assert not made.done()
        assert (await made) == Result(1, None, ())
        rig.host.settled("b1", [settled(node["id"], 1)])
        assert await rig.last("b1", Returned) == Returned("b1", 1)


@pytest.mark.parametrize(
    ("what", "raised", "says"),
    [("fails", Failed, "no"), ("breaks", RaisedElsewhere, "KeyError"), ("leaves", RaisedElsewhere, "BodyProcessEnded")],
)
async def test_what_its_own_function_raises_is_told_as_of_a_tool(
    tmp_path: Path, what: str, raised: type[Exception], says: str
) -> None:
    async with hosting(tmp_path, "from aetheris.sdk import Failed\n" + OWN) as rig:
        await rig.begin("b1", "records", what=what)
        node = (await rig.last("b1", Asked)).node
        with pytest.raises(raised, match=f"^{says}$"):
            await rig.host.make("b1", node["id"])


async def test_a_function_that_no_body_has_asked_for_is_not_made(tmp_path: Path) -> None:
    async with hosting(tmp_path) as rig:
        await rig.begin("b1")
        node = (await rig.last("b1", Asked)).node
        for body, node_id in (("b1", node["id"]), ("b1", "w.other"), ("b2", node["id"])):
            with pytest.raises(NotExecuted):
                await rig.host.make(body, node_id)
