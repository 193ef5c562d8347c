"""The registered tools that one run of an agent is given, whatever its framework: each call at most once.

Frameworks call tools from threads and event loops of their own, so the calls live in a loop of their own here. Some
tell their model of every exception and go on: so a run of which something isn't known makes no further call, and
says so where it ends.
"""

import asyncio
import json
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from aetheris.sdk.call_port import (
    CallableTool,
    CallOutcome,
    CallPort,
    CallRefused,
    StillRunning,
    by_shown_name,
    callable_tools,
    chosen,
    shown_result,
    without_repeat,
)
from aetheris.sdk.client import ApiError, AsyncClient

_NO_OBJECT = "refused, and nothing was called: the arguments are no JSON object"


class RunSuspended(Exception):
    """What a call came to isn't known yet: the same run, started again under its run id, goes on from here.

    `job_id`: of the call that has not ended; None where the gateway could not be asked.
    """

    def __init__(self, why: str, job_id: str | None = None) -> None:
        super().__init__(f"{why}; run it again under the same run id")
        self.job_id = job_id


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What a model is told of its call; `failed`: there is no result, and `text` says what is known."""

    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Living:
    """A run between its begin and its end: its calls are made in a loop and a thread of its own."""

    port: CallPort
    loop: asyncio.AbstractEventLoop
    over: asyncio.Event
    thread: threading.Thread


class RunTools:
    """The tools of one run; a context manager, also for programs that don't wait. Calls come from any thread.

    Args:
        tools: names, or patterns of names; no others are shown to the model.
        run_id: names the run: an order, a ticket, a message; the same for one that goes on after a crash.
        repeats: which of them a model may call twice with the same arguments, on purpose: names or patterns.
        agent: who calls, as freezes and lists name it.
        url, token: of the gateway; AETHERIS_URL and AETHERIS_TOKEN by default.
        patience_s: how long a call is waited for, a human's approval among it; then RunSuspended.

    Raises:
        ValueError: no run id, or no gateway.
    """

    def __init__(
        self,
        tools: Sequence[str],
        *,
        run_id: str,
        repeats: Sequence[str] = (),
        agent: str | None = None,
        url: str | None = None,
        token: str | None = None,
        patience_s: float = 3600.0,
    ) -> None:
        if not run_id:
            raise ValueError("run_id is empty: every run would be the same")
        self._patterns = tuple(tools)
        self._run_id = run_id
        self._repeats = tuple(repeats)
        self._agent = agent
        self._where = given(url, "AETHERIS_URL"), given(token, "AETHERIS_TOKEN")
        self._patience_s = patience_s
        self._shown: Mapping[str, CallableTool] = {}
        self._living: _Living | None = None
        self._suspended: RunSuspended | None = None

    @property
    def shown(self) -> Mapping[str, CallableTool]:
        """The tools, under names that providers take."""
        return self._shown

    def __enter__(self) -> "RunTools":
        """Ask the gateway for the tools.

        Raises:
            NoSuchTool: a name or pattern of `tools` or `repeats` that no tool fits.
            PersonalTool: one of them has personal arguments: no model calls it.
            ValueError: two of them would have one name, or one that may repeat has an argument `repeat_of` of its own.
            ApiError: the gateway doesn't say.
        """
        if self._living is not None:
            raise RuntimeError("one run at a time: make another RunTools")
        opened: Future[_Living] = Future()
        thread = threading.Thread(target=asyncio.run, args=(self._live(opened),), name="aetheris-calls", daemon=True)
        thread.start()
        self._living = opened.result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the connection; jobs go on. Raises RunSuspended: what a call came to isn't known."""
        self._close()
        suspended = self._suspended
        if suspended is not None and suspended is not error and (error is None or isinstance(error, Exception)):
            raise suspended from error

    async def __aenter__(self) -> "RunTools":
        """As `__enter__`, which see for what it raises."""
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """As `__exit__`."""
        self.__exit__(kind, error, at)

    def call(self, name: str, args: Mapping[str, Any] | str | None) -> CallAnswer:
        """Have the call made, or take what it came to before; waits for it.

        `args`: an object, or its JSON as a model wrote it.

        Raises:
            KeyError: no tool is shown under that name.
            RunSuspended: what this call, or one before it, came to isn't known; nothing further is called.
        """
        return self._calling(name, args).result()

    async def acall(self, name: str, args: Mapping[str, Any] | str | None) -> CallAnswer:
        """As `call`, for programs that don't wait; where it is cancelled, the job goes on."""
        return await asyncio.wrap_future(self._calling(name, args))

    async def _live(self, opened: "Future[_Living]") -> None:
        """Whatever a call needs, from the run's begin to its end."""
        try:
            async with AsyncClient(*self._where) as client:
                found = callable_tools(chosen(await client.tools(), self._patterns), self._repeats)
                self._shown = by_shown_name(found)
                port = CallPort(client, self._run_id, agent=self._agent)
                living = _Living(port, asyncio.get_running_loop(), asyncio.Event(), threading.current_thread())
                opened.set_result(living)
                await living.over.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    async def _called(self, port: CallPort, name: str, args: Mapping[str, Any] | str | None) -> CallAnswer:
        tool = self._shown[name]
        if self._suspended is not None:
            raise self._suspended
        try:
            own, repeat_of = without_repeat(tool, _object(args))
            made = await port.call(tool, own, repeat_of=repeat_of, within_s=self._patience_s)
        except CallRefused as refused:
            return CallAnswer(str(refused), failed=True)
        except StillRunning as running:
            self._suspended = RunSuspended(str(running), running.job_id)
        except ApiError as error:
            self._suspended = RunSuspended(f"the gateway says {error.code}")
        else:
            return _answer(made, repeats=tool.repeats)
        raise self._suspended

    def _calling(self, name: str, args: Mapping[str, Any] | str | None) -> "Future[CallAnswer]":
        living = self._living
        if living is None:
            raise RuntimeError("used outside of its run")
        return asyncio.run_coroutine_threadsafe(self._called(living.port, name, args), living.loop)

    def _close(self) -> None:
        living, self._living = self._living, None
        if living is not None:
            living.loop.call_soon_threadsafe(living.over.set)
            living.thread.join()


def given(value: str | None, variable: str) -> str:
    """What is given, else what the environment says.

    Raises:
        ValueError: neither.
    """
    found = value or os.environ.get(variable)
    if not found:
        raise ValueError(f"which gateway? Set {variable}")
    return found


def _object(args: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    try:
        found: Any = json.loads(args) if isinstance(args, str) and args.strip() else args or {}
    except (ValueError, RecursionError):
        raise CallRefused(_NO_OBJECT) from None
    if not isinstance(found, Mapping):
        raise CallRefused(_NO_OBJECT)
    return found


def _answer(made: CallOutcome, *, repeats: bool) -> CallAnswer:
    if not made.succeeded:
        return CallAnswer(made.failure, failed=True)
    result = shown_result(made, repeats=repeats)
    return CallAnswer(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False))
