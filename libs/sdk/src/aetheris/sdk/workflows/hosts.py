"""The process of one module's workflows as its executor sees it: started when needed, told how calls have settled."""

import asyncio
import json
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aetheris.protocol.base import recordable
from aetheris.sdk.isolation import frames, kept_process, said
from aetheris.sdk.isolation.errors import RaisedElsewhere
from aetheris.sdk.isolation.frames import BadFrame
from aetheris.sdk.isolation.kept_process import KILL_WITHIN_S, HostFailed, HostSetup, KeptProcess, Started
from aetheris.sdk.outcomes import NotExecuted, Partial, Result
from aetheris.sdk.workflows import body_process
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, BodyStart, CallSettled, Idle, Lost, Returned
from aetheris.sdk.workflows.body_process import BodyAnswer
from aetheris.sdk.workflows.errors import StopReason

SILENT_S = 30.0
"""How long a body may run without waiting; then its process is ended, and it is named."""
_LOOKS = 8
"""Within that time; they are counted, for this process may have been stopped for as long."""
_GRACE_LOOKS = 8
"""More, for its process to see that itself."""
_MOST_TOLD_BYTES = 4 * 1024 * 1024
"""Of settled calls in one frame, but for a larger one."""

_ENV = {"PYTHONHASHSEED": "0"}
"""What a set of texts is iterated by is the same in each run of a body."""

Heard = Callable[[BodySaid], None]


class BodyHost:
    """The process of one module's workflows, and the bodies in it.

    What bodies say is `heard` in the order in which they say it. `Idle` is heard only when a body has been told all
    that it was given: what it asked for before, it had not been told more for.
    """

    def __init__(
        self, source: str, folder: Path | None, given: HostSetup, heard: Heard, *, silent_s: float = SILENT_S
    ) -> None:
        self._source = source
        self._folder = folder
        self._given = given
        self._heard = heard
        self._silent_s = silent_s
        self._starting = asyncio.Lock()
        self._life: _Life | None = None
        self._lives: list[_Life] = []
        self._described: str | None = None

    async def start(self) -> Sequence[Mapping[str, Any]]:
        """The module's workflows: a registry entry of each, with `ref`, where its code is; none where it has none.

        Raises:
            HostFailed: also where it has loaded something else before.
        """
        started = kept_process.start(self._source, body_process.__name__, self._given, socket.SOCK_STREAM, _ENV)
        life = _Life(started, self._heard, self._silent_s)
        self._lives = [*(one for one in self._lives if not one.nothing_left), life]
        try:
            workflows = await kept_process.load_into(
                started.loading, self._source, self._folder, self._given, "workflows"
            )
            self._check_same(json.dumps(workflows, sort_keys=True))
            await life.open(started.orders)
        except BaseException:
            started.orders.close()
            life.end()
            raise
        self._life = life
        return workflows

    async def begin(self, start: BodyStart, history: Sequence[CallSettled] = ()) -> None:
        """Run a body from its beginning, over how its calls have settled so far, in the order of the log.

        Raises:
            HostFailed: its process has ended, and can't be had again.
        """
        async with self._starting:
            if self._life is None or self._life.is_over:
                await self.start()
        assert self._life is not None  # noqa: S101  start has set it
        begin = {"workflow": start.workflow, "job_id": start.job_id, "node_id": start.node_id, "args": dict(start.args)}
        parts = list(_parts(history)) or [[]]
        self._life.order(start.body, {"begin": begin, "settled": parts[0]})
        for part in parts[1:]:
            self._life.order(start.body, {"settled": part})

    def settled(self, body: str, settled: Sequence[CallSettled]) -> None:
        """Tell a body how calls have settled, in the order of the log; nothing to one that has ended."""
        if self._life is not None:
            for part in _parts(settled):
                self._life.order(body, {"settled": part})

    def stop(self, body: str, why: StopReason) -> None:
        """Let a body call nothing any more; how it ends is heard, as of any other."""
        if self._life is not None:
            self._life.order(body, {"stop": why})

    async def make(self, body: str, node_id: str) -> Result | Partial:
        """Make a call that a body has asked for and whose function is the workflow's own, in its process; the result.

        Raises:
            NotExecuted, Failed: as the function has; its process doesn't have that body, or that call of it.
            RaisedElsewhere: nobody knows of its effect: it has raised something else, or its process has ended.
        """
        if self._life is None or self._life.is_over:
            raise NotExecuted("the process of its body has ended")
        return await self._life.make(body, node_id)

    async def close(self) -> None:
        """End it, and every body in it; nothing of that is heard."""
        for life in self._lives:
            life.is_closed = True
            life.end()
        await asyncio.gather(*(life.over_within(KILL_WITHIN_S) for life in self._lives))

    def _check_same(self, described: str) -> None:
        if self._described not in (None, described):
            raise HostFailed(f"{self._source}: has changed on disk since it was registered: restart its executor")
        self._described = described


class _Life(KeptProcess):
    def __init__(self, started: Started, heard: Heard, silent_s: float) -> None:
        super().__init__(started.keeper, started.lifeline)
        self._heard = heard
        self._silent_s = silent_s
        self._writer: asyncio.Transport | None = None
        self._bodies: dict[str, int] = {}
        """Those that run → their orders that are not answered."""
        self._orders: deque[str] = deque()
        """The bodies of all orders that are not answered: its process takes them in turn."""
        self._looks = 0
        """How often it was looked while the first of them stood there."""
        self._why = "its process has ended"
        self._stuck: str | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._made: dict[tuple[str, str], asyncio.Future[Mapping[str, Any]]] = {}
        """By body and node: calls that are made there."""
        self.is_closed = False

    async def open(self, orders: socket.socket) -> None:
        orders.setblocking(False)
        listener = frames.FrameProtocol(self._take, self._hung_up)
        self._writer, _ = await self._loop.create_unix_connection(lambda: listener, sock=orders)
        self._writer.write(frames.packed({"silent_s": self._silent_s}))
        self._watch()

    def order(self, body: str, order: Mapping[str, Any]) -> None:
        """Have a body do something; nothing where it has ended."""
        if self.is_over or self._writer is None or (body not in self._bodies and "begin" not in order):
            return
        try:
            frame = frames.packed({"body": body, **order})
        except BadFrame:
            self._bodies.pop(body, None)
            self._heard(BodyRaised(body, "TooLarge", "a call's result is too large for its process"))
            return
        self._bodies[body] = self._bodies.get(body, 0) + 1
        self._orders.append(body)
        self._writer.write(frame)

    async def make(self, body: str, node_id: str) -> Result | Partial:
        if self._writer is None or (body, node_id) in self._made:
            raise NotExecuted("it is made already")
        came = self._made[body, node_id] = self._loop.create_future()
        self._writer.write(frames.packed({"body": body, "local": node_id}))
        try:
            return said.outcome(await came, traceback="", acts_no_more=False)
        except BadFrame:
            raise RaisedElsewhere("BodyProcessUnreadable") from None
        finally:
            del self._made[body, node_id]

    def end(self) -> None:
        """Have it killed, and all that it has started."""
        if self.is_over:
            return
        super().end()
        if self._watching is not None:
            self._watching.cancel()
        if self._writer is not None:
            self._writer.close()
        at_fault = self._stuck or (self._orders[0] if self._orders else None)
        for came in self._made.values():
            if not came.done():
                came.set_exception(RaisedElsewhere("BodyProcessEnded"))
        bodies, self._bodies = self._bodies, {}
        for body in () if self.is_closed else bodies:
            self._heard(Lost(body, self._why, body == at_fault))

    def _hung_up(self, refused: BadFrame | None) -> None:
        if refused is not None:
            self._why = "its process says what can't be read"
        self.end()

    def _take(self, frame: dict[str, Any]) -> None:
        try:
            answer = BodyAnswer.model_validate(frame)
        except ValidationError:
            raise BadFrame("no answer") from None
        if answer.stuck is not None:
            self._stuck = answer.body
            self._why = f"{self._silent()}, at {answer.stuck}"[:_LONGEST_WHY]
            return
        if answer.local is not None:
            came = self._made.get((answer.body, answer.local))
            if came is not None and not came.done():  # else it took too long, and nobody waits for it
                came.set_result(answer.said or {})
            return
        if not self._orders or self._orders[0] != answer.body:
            raise BadFrame("nothing was asked of that body")
        for node in answer.asked:
            self._say(Asked(answer.body, node, node.get("id") in answer.by_reference))
        if not answer.is_last:
            return
        self._orders.popleft()
        self._looks = 0
        if answer.body not in self._bodies:
            return
        self._bodies[answer.body] -= 1
        if answer.waits_for is None:
            del self._bodies[answer.body]
            self._heard(_end_of(answer))
        elif self._bodies[answer.body] == 0:
            self._heard(Idle(answer.body, tuple(answer.waits_for)))

    def _say(self, said: Asked) -> None:
        if said.body in self._bodies:
            self._heard(said)

    def _watch(self) -> None:
        """End a process that doesn't see itself that a body has its turn for too long."""
        self._looks += bool(self._orders)
        if self._looks > _LOOKS + _GRACE_LOOKS:
            self._why = self._silent()
            self.end()
        else:
            self._watching = self._loop.call_later(self._silent_s / _LOOKS, self._watch)

    def _silent(self) -> str:
        return f"a body ran for {self._silent_s:g} s without waiting for a call"


_LONGEST_WHY = 500


def _end_of(answer: BodyAnswer) -> BodySaid:
    if answer.raised is None:
        return Returned(answer.body, answer.result)
    error_class, text = (*answer.raised, "", "")[:2]
    return BodyRaised(answer.body, error_class[:_LONGEST_WHY], recordable.text(text))


def _parts(settled: Sequence[CallSettled]) -> Iterator[list[Any]]:
    """As JSON, so many at a time as there is room for in a frame."""
    part, size = list[Any](), 0
    for one in settled:
        said = one.model_dump(mode="json", exclude_defaults=True)
        size += len(json.dumps(said)) if len(settled) > 1 else 0
        if part and size > _MOST_TOLD_BYTES:
            yield part
            part, size = [], 0
        part.append(said)
    if part:
        yield part
