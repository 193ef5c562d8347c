"""Threads of calls that timed out live on: so many of them, and no more."""

import asyncio
import threading
from collections.abc import Generator, Mapping
from typing import Any

import pytest

from aetheris.sdk import tool
from aetheris.sdk.invoke import invoke
from aetheris.sdk.outcomes import InDoubt, Retryable, Succeeded
from aetheris.sdk.threads import THREADS, Threads
from tests.unit.sdk.test_sdk_invoke import context

MOST = 3
PATIENCE_S = 20.0


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    """A test's own."""
    own = Threads(MOST)
    monkeypatch.setattr("aetheris.sdk.invoke.THREADS", own)
    return own


@pytest.fixture
def release(threads: Threads) -> Generator[threading.Event]:
    """What is stuck ends with the test."""
    event = threading.Event()
    yield event
    event.set()
    assert threads.left <= MOST


def stuck(release: threading.Event) -> Any:
    @tool("stuck", timeout_s=0.05, effect_class="opaque", irreversible=False)
    def act() -> None:
        release.wait(PATIENCE_S)

    return act


@tool("quick", effect_class="opaque", irreversible=False)
def quick() -> str:
    return "done"


@tool("in_the_loop", effect_class="opaque", irreversible=False)
async def in_the_loop() -> str:
    return "done"


async def test_beyond_the_bound_nothing_is_begun_until_one_ends(threads: Threads, release: threading.Event) -> None:
    reported: list[tuple[str, Mapping[str, int]]] = []
    threads.refused = lambda name, left: reported.append((name, dict(left)))
    before = set(threading.enumerate())
    for _ in range(MOST):
        assert await invoke(stuck(release), {}, context()) == InDoubt("TimeoutError")
    for _ in range(20):
        refused = await invoke(quick, {}, context())
        assert isinstance(refused, Retryable)
        assert "stuck@1 (3)" in refused.reason
    assert len(set(threading.enumerate()) - before) == MOST
    assert reported[0] == ("quick@1", {"stuck@1": MOST})
    assert await invoke(in_the_loop, {}, context()) == Succeeded("done")
    release.set()
    async with asyncio.timeout(PATIENCE_S):
        while threads.left:  # noqa: ASYNC110 - a thread tells nobody that it ends
            await asyncio.sleep(0.01)
    assert await invoke(quick, {}, context()) == Succeeded("done")


async def test_those_that_somebody_waits_for_do_not_count(threads: Threads, release: threading.Event) -> None:
    @tool("slow", timeout_s=PATIENCE_S, effect_class="opaque", irreversible=False)
    def slow() -> None:
        release.wait(PATIENCE_S)

    waiting = [asyncio.create_task(invoke(slow, {}, context())) for _ in range(3 * MOST)]
    await asyncio.sleep(0)
    assert await invoke(quick, {}, context()) == Succeeded("done")
    assert threads.left == 0
    release.set()
    assert await asyncio.gather(*waiting) == [Succeeded(None)] * (3 * MOST)
    assert threads.left == 0


def test_a_process_has_a_bound() -> None:
    assert 0 < THREADS.most_left < 1000
