"""A call whose own code has raised can act no more, if nothing that it started lives: who says so must be sure."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aetheris.sdk import remains, tool
from aetheris.sdk.invoke import invoke
from aetheris.sdk.outcomes import InDoubt
from aetheris.sdk.remains import unsure
from tests.unit.sdk.test_sdk_invoke import context

PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of its own: threads and child processes of other tests are none of these calls'."""
    for thread in threading.enumerate():
        remains.know(thread)
    others = set(remains._children())
    children = remains._children
    monkeypatch.setattr(remains, "_children", lambda: [pid for pid in children() if pid not in others])


@pytest.fixture
def release() -> Generator[threading.Event]:
    """What lives on in a test ends with it."""
    event = threading.Event()
    yield event
    event.set()


async def returned(act: Callable[[], Any], **declared: Any) -> bool:
    """What is said of a call of a tool that is made of `act`."""
    outcome = await invoke(
        tool("act", **(dict[str, Any]({"effect_class": "opaque", "irreversible": False}) | declared))(act),
        {},
        context(),
    )
    assert isinstance(outcome, InDoubt)
    return outcome.returned


def failing() -> None:
    raise ConnectionResetError


async def failing_in_the_loop() -> None:
    await asyncio.sleep(0)
    raise ConnectionResetError


async def test_code_that_has_raised_can_act_no_more() -> None:
    assert await returned(failing)
    assert await returned(failing_in_the_loop)


async def test_nor_can_one_that_has_waited_for_all_that_it_started() -> None:
    async def act() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(0))
        await asyncio.to_thread(time.sleep, 0)
        thread = threading.Thread(target=time.sleep, args=(0,))
        thread.start()
        thread.join()
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", ""], check=True)
        raise ConnectionResetError

    assert await returned(act)


async def test_a_timeout_says_nothing(release: threading.Event) -> None:
    """Its thread acts on."""

    def hangs() -> None:
        release.wait(PATIENCE_S)

    async def sleeps() -> None:
        await asyncio.Event().wait()

    assert not await returned(hangs, timeout_s=0.05)
    assert not await returned(sleeps, timeout_s=0.05)
    assert await returned(failing), "whose thread lives on is another call"


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
async def test_what_may_be_a_cancellation_says_nothing(error: type[BaseException]) -> None:
    def act() -> None:
        raise error

    assert not await returned(act)


async def test_a_cancellation_in_the_loop_says_nothing() -> None:
    async def act() -> None:
        raise asyncio.CancelledError

    assert not await returned(act)


async def test_a_task_that_it_started_lives() -> None:
    kept: list[asyncio.Task[bool]] = []
    release = asyncio.Event()

    async def grandchild() -> None:
        kept.append(asyncio.create_task(release.wait()))

    async def act() -> None:
        await asyncio.create_task(grandchild())
        raise ConnectionResetError

    assert not await returned(act)
    assert not await returned(failing), "it may serve others: it was left by a call that is over"
    release.set()
    await asyncio.gather(*kept)
    assert await returned(failing)


async def test_work_that_it_gave_to_a_thread_lives(release: threading.Event) -> None:
    """As where a tool gives up waiting for a request that it sends from a thread."""

    async def act() -> None:
        await asyncio.wait_for(asyncio.to_thread(release.wait, PATIENCE_S), 0.05)

    assert not await returned(act)
    release.set()


async def test_a_thread_that_it_started_lives(release: threading.Event) -> None:
    def act() -> None:
        threading.Thread(target=release.wait, args=(PATIENCE_S,), daemon=True).start()
        raise ConnectionResetError

    assert not await returned(act)


async def test_a_thread_that_nobody_knows_may_serve_any_call(release: threading.Event) -> None:
    with ThreadPoolExecutor() as pool:
        pool.submit(release.wait, PATIENCE_S)
        assert not await returned(failing)
        release.set()
    assert await returned(failing)


async def test_a_process_that_it_started_lives() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def act() -> None:
        started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        raise ConnectionResetError

    assert not await returned(act)
    started[0].kill()
    started[0].communicate()
    assert await returned(failing)


async def test_who_is_not_sure_of_itself_says_nothing() -> None:
    """As where a program was run: what it has started itself may have left its session."""

    async def act() -> None:
        await asyncio.create_task(doubting())
        raise ConnectionResetError

    async def doubting() -> None:
        unsure()

    assert not await returned(act)
    assert await returned(failing)


async def test_another_ones_factory_of_tasks_hides_what_is_started() -> None:
    asyncio.get_running_loop().set_task_factory(lambda loop, coro, **more: asyncio.Task(coro, loop=loop, **more))
    assert not await returned(failing)
