"""A strict workflow that draws on what is another in each run is refused, with the line; one that doesn't goes on."""

# ruff: noqa: PLW0108  a line of this file is what is named

import asyncio
import datetime as dt
import gc
import logging
import os
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from aetheris.sdk import tool
from aetheris.sdk.workflows import WorkflowContext, workflow
from aetheris.testing import NODE, JobUnderTest, run_workflow

HERE = Path(__file__)


@tool(effect_class="idempotent")
def put(text: str) -> str:
    """A tool may read clocks and draw."""
    Path(os.devnull).read_bytes()
    return f"{text} {len(str(time.time())) > 0} {len(uuid.uuid4().hex)}"


Body = Callable[[WorkflowContext], Awaitable[Any]]

USES: dict[str, tuple[str, Callable[[], Any]]] = {
    "time": ("time.time", lambda: time.time()),
    "a function of time imported by its name": ("time.monotonic", lambda: monotonic()),
    "local time": ("time.localtime", lambda: time.localtime()),
    "sleep": ("time.sleep", lambda: time.sleep(0)),
    "now": ("datetime.now", lambda: dt.datetime.now(dt.UTC)),
    "today": ("date.today", lambda: dt.date.today()),  # noqa: DTZ011  what is refused
    "random": ("random.random", lambda: random.random()),  # noqa: S311
    "randint": ("random.getrandbits", lambda: random.randint(1, 6)),  # noqa: S311
    "shuffle": ("random.getrandbits", lambda: random.shuffle([1, 2, 3])),
    "an unseeded generator": ("random.Random() without a seed", lambda: random.Random()),  # noqa: S311
    "uuid4": ("os.urandom", lambda: uuid.uuid4()),
    "urandom": ("os.urandom", lambda: os.urandom(8)),
    "secrets": ("os.urandom", lambda: secrets.token_hex(8)),
    "a file": ("open", lambda: HERE.read_text()),
    "a folder": ("os.listdir", lambda: os.listdir(".")),
    "a socket": ("socket.__new__", lambda: socket.socket().close()),
    "a name": ("socket.getaddrinfo", lambda: socket.getaddrinfo("localhost", 80)),
    "a process": ("subprocess.Popen", lambda: subprocess.run(["true"], check=False)),
    "a thread": ("_thread.start", lambda: threading.Thread(target=print).start()),
}


def ran(body: Body, **options: Any) -> JobUnderTest:
    flow = workflow(name="flow", tools=[put])(body)  # pyright: ignore[reportArgumentType]
    return run_workflow(flow, {}, **options)


@pytest.mark.parametrize("name", USES)
def test_what_is_another_in_each_run_is_refused_with_its_line(name: str) -> None:
    what, use = USES[name]

    async def body(ctx: WorkflowContext) -> str:
        await ctx.call(put, text="before")
        use()
        return await ctx.call(put, text="behind")

    job = ran(body, strict=True)
    assert (job.status, job.calls("put")) == ("failed", 1)
    line = use.__code__.co_firstlineno
    assert f"Misuse: {what}" in (job.why or "")
    assert f"{HERE.name}:{line}: a strict workflow has no " in (job.why or "")
    if name != "a process":  # what none of them has is no fault of code that is not strict
        assert ran(body).status == "completed"


def test_code_that_catches_everything_gets_no_further() -> None:
    async def body(ctx: WorkflowContext) -> str:
        with suppress(Exception):  # as careless code does
            time.time()
        return await ctx.call(put, text="behind")

    job = ran(body, strict=True)
    assert (job.status, job.calls("put")) == ("failed", 0)
    assert "time.time" in (job.why or "")


def test_what_is_the_same_in_each_run_goes_on_and_so_do_log_lines_and_imports() -> None:
    async def body(ctx: WorkflowContext) -> list[Any]:
        chance = random.Random(await ctx.random())  # noqa: S311  seeded by what is recorded
        logging.getLogger("flow").warning("drawn: %s", chance.random())
        import colorsys

        async with asyncio.timeout(60):
            await asyncio.sleep(1)
        texts = await asyncio.gather(*(ctx.call(put, text=str(one)) for one in sorted({3, 1, 2})))
        moment = await ctx.now()
        return [
            chance.randint(1, 6) > 0,
            len(texts),
            moment.isoformat()[:4],
            colorsys.ONE_THIRD > 0,
            len(str(await ctx.uuid())),
        ]

    job = ran(body, strict=True, crash="everywhere")
    assert job.status == "completed", job.why
    assert job.result(NODE)[:4] == [True, 3, "2026", True]


def test_what_others_have_python_do_when_it_collects_is_not_the_bodys() -> None:
    def timed(_phase: str, _info: dict[str, int]) -> None:
        time.perf_counter()

    class Timer:
        def __call__(self, _phase: str, _info: dict[str, int]) -> None:
            time.perf_counter()

    async def body(ctx: WorkflowContext) -> str:
        gc.collect()
        return await ctx.call(put, text="behind")

    others = [timed, Timer(), Timer().__call__]
    gc.callbacks.extend(others)
    try:
        job = ran(body, strict=True)
    finally:
        for one in others:
            gc.callbacks.remove(one)
    assert (job.status, job.calls("put")) == ("completed", 1), job.why


def test_only_the_strict_body_is_watched() -> None:
    async def lax(ctx: WorkflowContext) -> bool:
        await ctx.sleep(1)
        return time.time() > 0

    async def strict(ctx: WorkflowContext) -> bool:
        return await ctx.child("lax")

    flow = workflow(name="lax", tools=[])(lax)
    outer = workflow(name="outer", tools=[], starts=["lax"], strict=True)(strict)
    assert run_workflow(outer, {}, workflows=[flow]).result(NODE) is True
    assert time.time() > 0
