"""The process of one module's tools as its executor or prober sees it: started when needed, asked for calls."""

import asyncio
import json
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.isolation import frames, host, kept_process
from aetheris.sdk.isolation.call_process import LAST_LINE, MOST_OUTPUT, Request, Role, room_of
from aetheris.sdk.isolation.errors import RaisedElsewhere
from aetheris.sdk.isolation.frames import BadFrame
from aetheris.sdk.isolation.host import LARGEST_ORDER
from aetheris.sdk.isolation.kept_process import KILL_WITHIN_S, HostFailed, HostSetup, KeptProcess, Started
from aetheris.sdk.outcomes import NotExecuted

_FULL_PAUSE_S = 0.002

Relay = Callable[[int, str, Mapping[str, Any]], None]
"""Hears what a call prints and logs, in the call's own context."""


@dataclass(frozen=True, slots=True)
class Came:
    """What a call's process said last, and whether all of it has ended, as far as that was awaited."""

    said: Any
    traceback: str
    ended: bool


class Host:
    """The process of one module's tools."""

    def __init__(self, source: str, folder: Path | None, given: HostSetup, relay: Relay) -> None:
        self._source = source
        self._folder = folder
        self._given = given
        self._relay = relay
        self._starting = asyncio.Lock()
        self._numbers = count(1)
        self._life: _Life | None = None
        self._lives: list[_Life] = []
        """Those of which something may live, however long ago their process died: a later call may hand it work."""
        self._described: str | None = None
        """What it has loaded first, and is called by for as long as this process lives."""

    async def start(self) -> Sequence[Mapping[str, Any]]:
        """What it has loaded: a registry entry and a kind of each tool, in the module's own words.

        Raises:
            HostFailed: also where it has loaded something else before.
        """
        started = kept_process.start(self._source, host.__name__, self._given, socket.SOCK_SEQPACKET)
        life = _Life(started)
        self._lives = [*(one for one in self._lives if not one.nothing_left), life]
        try:
            tools = await kept_process.load_into(started.loading, self._source, self._folder, self._given, "tools")
        except BaseException:
            life.end()
            raise
        described = json.dumps(tools, sort_keys=True)
        if self._described not in (None, described):
            life.end()
            raise HostFailed(
                f"{self._source}: has changed on disk since it was registered: restart its executor or prober"
            )
        self._described = described
        self._life = life
        return tools

    async def ask(
        self,
        role: Role,
        tool: str,
        ctx: ToolContext | ProbeContext,
        within_s: float,
        *,
        args: Mapping[str, Any] | None = None,
        change: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Came:
        """One call, in a process of its own, which is killed after `within_s`, and where whoever waits is cancelled.

        Raises:
            NotExecuted: no process could be had, it tells of other tools than before, or the arguments are too large.
            RaisedElsewhere: it has ended without a word, or was killed.
        """
        fields = {name: value for name, value in _fields(ctx).items() if name != "deadline"}
        remaining_s = None if math.isinf(within_s) else within_s
        request = Request(role, tool, fields, remaining_s, dict(args or {}), dict(change or {}), dict(secrets or {}))
        try:
            asked = frames.packed(asdict(request))
        except BadFrame:
            raise NotExecuted("the arguments are too large for a process of their own") from None
        life = await self._living()
        number = next(self._numbers)
        connection = await life.begin(number)
        try:
            async with asyncio.timeout(remaining_s):
                reader, writer = await asyncio.open_unix_connection(sock=connection)
                try:
                    return await self._heard(life, number, reader, writer, asked)
                finally:
                    writer.close()
        except TimeoutError:
            error_class, why = "TimeoutError", ""
        except BadFrame as error:
            error_class, why = "ToolProcessUnreadable", f"what its process says is refused: {error}"
        finally:
            life.kill(number)  # also of one that has said all: no call outlives its answer
        raise RaisedElsewhere(error_class, traceback=why, acts_no_more=await self._all_ended(life, number))

    async def close(self) -> None:
        """End it, and every call of it; what can't be killed is awaited for a while, and by its keeper for ever."""
        for life in self._lives:
            life.end()
        await asyncio.gather(*(life.over_within(KILL_WITHIN_S) for life in self._lives))

    async def _all_ended(self, life: "_Life", number: int) -> bool:
        return await life.all_ended(number) and all(one.nothing_left for one in self._lives if one is not life)

    async def _heard(
        self, life: "_Life", number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes
    ) -> Came:
        with suppress(OSError):
            writer.write(asked)
            await writer.drain()
        left = MOST_OUTPUT + LAST_LINE
        while (heard := await frames.next_of_call(reader)) is not None:
            frame, size = heard
            if "said" in frame:
                life.kill(number)
                is_sure = isinstance(frame["said"], dict) and cast("Any", frame["said"]).get("kind") != "InDoubt"
                ended = False if is_sure else await self._all_ended(life, number)
                return Came(frame["said"], str(frame.get("traceback", "")), ended)
            left -= room_of(size)
            if left < 0:
                raise BadFrame("more lines than there is room for")
            self._relayed(frame.get("output"))
        life.kill(number)
        ended = await self._all_ended(life, number)
        if life.was_not_begun(number):
            raise NotExecuted("no process could be made for the call: the system has too many, or too little memory")
        raise RaisedElsewhere("ToolProcessDied", traceback=life.how(number), acts_no_more=ended)

    def _relayed(self, output: Any) -> None:
        """Pass on a line of what the call says."""
        if not isinstance(output, dict):
            return
        said = cast("dict[str, Any]", output)
        level, fields = said.get("level"), said.get("fields")
        if isinstance(level, int) and isinstance(fields, dict):
            texts = {str(name): str(value) for name, value in cast("dict[Any, Any]", fields).items()}
            self._relay(level, str(said.get("what")), texts)

    async def _living(self) -> "_Life":
        async with self._starting:
            if self._life is None or self._life.is_over:
                try:
                    await self.start()
                except HostFailed as error:
                    raise NotExecuted(f"no process for the tool: {error}") from None
            return cast("_Life", self._life)


class _Life(KeptProcess):
    def __init__(self, started: Started) -> None:
        super().__init__(started.keeper, started.lifeline)
        self._orders = started.orders
        self._ends: dict[int, asyncio.Future[tuple[bool, str]]] = {}
        self._killed: set[int] = set()
        self._not_begun: set[int] = set()
        self._orders.setblocking(False)
        self._loop.add_reader(self._orders.fileno(), self._read)

    async def begin(self, number: int) -> socket.socket:
        """Have a process made for a call; the connection to it.

        Raises:
            NotExecuted: the host has ended.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._ends[number] = self._loop.create_future()
        try:
            while not self.is_over:
                try:
                    socket.send_fds(self._orders, [json.dumps({"call": number}).encode()], [theirs.fileno()])
                except BlockingIOError:
                    await asyncio.sleep(_FULL_PAUSE_S)
                except OSError:
                    break
                else:
                    return ours
        except BaseException:
            ours.close()
            self._ends.pop(number, None)
            raise
        finally:
            theirs.close()
        ours.close()
        self._ends.pop(number, None)
        self.end()
        raise NotExecuted("the tool's process has ended before the call was begun")

    def kill(self, number: int) -> None:
        """Have a call's process killed; where that isn't confirmed, its host is ended."""
        if number not in self._killed:
            self._killed.add(number)
            self._order_kill(number)
            self._loop.call_later(KILL_WITHIN_S, self._insist, number)

    async def all_ended(self, number: int) -> bool:
        """Whether a call's process, and all that it had started, is known to have ended."""
        ending = self._ends.get(number)
        if ending is None:
            return False
        await asyncio.wait({ending}, timeout=KILL_WITHIN_S)
        return ending.done() and ending.result()[0]

    def was_not_begun(self, number: int) -> bool:
        """Whether its host says that it could make no process for a call."""
        return number in self._not_begun

    def how(self, number: int) -> str:
        """How a call's process has ended, for the tool's author."""
        ending = self._ends.get(number)
        return ending.result()[1] if ending is not None and ending.done() else "its end is not known"

    def end(self) -> None:
        """Have it killed, and all that it has started."""
        if not self.is_over:
            self._loop.remove_reader(self._orders.fileno())
            self._orders.close()
        super().end()

    def _keeper_ended(self) -> None:
        super()._keeper_ended()
        for ending in self._ends.values():
            if not ending.done():
                ending.set_result((self.nothing_left, "its module's process has ended"))

    def _order_kill(self, number: int) -> None:
        try:
            self._orders.send(json.dumps({"kill": number}).encode())
        except BlockingIOError:
            self._loop.call_later(_FULL_PAUSE_S, self._order_kill, number)
        except OSError:  # the host has ended, and its keeper ends its calls
            pass

    def _insist(self, number: int) -> None:
        self._killed.discard(number)
        self._not_begun.discard(number)
        ending = self._ends.pop(number, None)
        if ending is not None and not ending.done():
            self.end()

    def _read(self) -> None:
        try:
            data = self._orders.recv(LARGEST_ORDER)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            said = json.loads(data)
            not_begun = "not_begun" in said
            number = said["not_begun"] if not_begun else said["ended"]
            ending = self._ends.get(number)
            if ending is None or ending.done():
                return
            if not_begun:
                self._not_begun.add(number)
                ending.set_result((True, "it was not begun"))
            else:
                ending.set_result((said["all"] is True, f"its process ended by {said['status']}"))


def _fields(ctx: ToolContext | ProbeContext) -> dict[str, Any]:
    return {name: getattr(ctx, name) for name in type(ctx).__slots__}
