"""One run of a workflow's code, from its beginning: what it asks for, and what it is told, one by one.

It knows no clock and no log. Whoever drives it tells it how calls have settled, in the order of the log; each is told
when the code does nothing any more, so that the same history always makes the same run.
"""

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import InvalidArgs, canonical
from aetheris.protocol.base.child_ids import child_id
from aetheris.protocol.plan.graph import InvalidPlan, Kind, Node, Wait, check_graph
from aetheris.sdk.isolation.frames import has_more
from aetheris.sdk.outcomes import ToolError
from aetheris.sdk.places import raised_at
from aetheris.sdk.results import recorded
from aetheris.sdk.workflows.bodies import BodyStart, CallSettled
from aetheris.sdk.workflows.body_loop import BodyLoop
from aetheris.sdk.workflows.errors import (
    CallEnded,
    Misuse,
    OutcomeUnknown,
    StopReason,
    ToolFailed,
    WorkflowContinues,
    WorkflowControl,
    stopped,
)
from aetheris.sdk.workflows.local_calls import LocalFunction
from aetheris.sdk.workflows.strict_bodies import StrictBody

MOST_CALLS = 10_000
"""Calls of one body, as the fold has it."""
LARGEST_ARGUMENTS = 64 * 1024
"""JCS bytes."""
LARGEST_RESULT = 16 * 1024 * 1024
MOST_VALUES = 500_000
"""JCS bytes, and values, of what a workflow returns."""
MOST_OPEN = 1_000
"""Calls that a body waits for at a time."""
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DIGITS = 16

Main = Callable[["BodyRun"], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class BodyEnd:
    """How a body has ended: by a result, or by an exception of this class, with words that can be recorded."""

    result: Any = None
    error_class: str | None = None
    text: str = ""


class CallStanding(Enum):
    """How a call of a body stands, as its code has been told."""

    NEW = "not asked for"
    OPEN = "asked for"
    SETTLED = "settled"


@dataclass(slots=True)
class _Call:
    node: Node
    is_named: bool
    """By the code itself, which can ask for it again."""
    settled: CallSettled | None = None
    local: LocalFunction | None = None
    """What makes it, where that is the workflow's own function."""
    by_reference: bool = False
    """Its result is handed on, and not told."""
    waiters: list[asyncio.Future[Any]] = field(default_factory=list[asyncio.Future[Any]])
    timer: asyncio.TimerHandle | None = None

    @property
    def is_awaited(self) -> bool:
        if self.settled is not None:
            return False
        if self.timer is not None:
            return not self.timer.cancelled()
        return self.is_named or any(not one.done() for one in self.waiters)


class BodyRun:
    """A body; `begin`, `tell` and `stop` run its code until it does nothing any more."""

    def __init__(self, start: BodyStart, main: Main, *, strict: bool = False) -> None:
        """`strict`: its code may draw on nothing that is another in each run."""
        self.start = start
        self.end: BodyEnd | None = None
        self._main = main
        self._loop = BodyLoop()
        self._task: asyncio.Task[Any] | None = None
        self._open: dict[str, _Call] = {}
        self._named: dict[str, _Call] = {}
        """Those that can be asked for again, also when they have settled."""
        self._asked_for: set[str] = set()
        self._timers: dict[int, str] = {}
        """Of the loop's timers, by identity, those that are calls, and which."""
        self._early: dict[str, CallSettled] = {}
        """Told before it was asked for: by code that has changed."""
        self._asked: list[tuple[Node, bool]] = []
        self._occurrences: Counter[tuple[str, bytes]] = Counter()
        self._stopped: WorkflowControl | None = None
        self._watch = StrictBody() if strict else None

    def begin(self) -> None:
        """Run its code until it waits."""
        self._task = self._loop.create_task(self._main(self))
        self._go_on()

    def tell(self, settled: CallSettled) -> None:
        """Say how one call has settled. The next in the log's order, when the one before has been told."""
        if self.end is not None:
            return
        call = self._open.pop(settled.node_id, None)
        if call is None:
            if settled.node_id not in self._asked_for:
                self._early[settled.node_id] = settled
            return
        self._settle(call, settled)
        self._go_on()

    def stop(self, why: StopReason) -> None:
        """Let it call nothing any more, and come to its end."""
        if self.end is not None:
            return
        self._stopped = stopped(why)
        for call in self._open.values():
            for waiter in call.waiters:
                if not waiter.done():
                    waiter.set_exception(self._stopped)
        for timer in self._loop.timers():
            timer.cancel()
        self._go_on()
        if self.end is None:
            self._end(BodyEnd(None, type(self._stopped).__name__, str(self._stopped)))

    def drop(self) -> None:
        """Let go of it, as if it had died; its code may still tidy up in its own memory."""
        if self.end is None:
            self._end(BodyEnd(None, "Dropped"))

    def take_asked(self) -> Sequence[tuple[Node, bool]]:
        """The calls that it has made since this was asked last, in their order; and whether by reference."""
        asked, self._asked = self._asked, []
        return asked

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The calls whose end could make it go on: those that are awaited, or that it could ask for again."""
        return tuple(node_id for node_id, call in self._open.items() if call.is_awaited)

    def standing(self, node_id: str) -> CallStanding:
        """How the call of this id stands."""
        if node_id not in self._asked_for:
            return CallStanding.NEW
        return CallStanding.OPEN if node_id in self._open else CallStanding.SETTLED

    def local(self, node_id: str) -> LocalFunction | None:
        """What makes a call that waits for it; None where the code has not asked for it, or waits no longer."""
        call = self._open.get(node_id)
        return call.local if call is not None else None

    async def call(
        self,
        node: Node,
        *,
        is_named: bool,
        local: LocalFunction | None = None,
        handed: Container[str] = frozenset(),
        by_reference: bool = False,
    ) -> CallSettled:
        """What a call has come to, when it is a success.

        Args:
            local: what makes it.
            handed: what its arguments refer to: NODE#/pointer. Whatever else looks like a reference is refused, as it
                may be anybody's words.
            by_reference: what came of it is not told.

        Raises:
            ToolFailed, OutcomeUnknown: it is none.
            Misuse: it can't be planned, or another call has this id.
            WorkflowControl: the body is stopped.
        """
        if any(one.target not in handed for one in node.references):
            raise Misuse(f'{node.id}: "$ref" in arguments: what `reference` gave stands for a result, and nothing else')
        call = self._ask(node, is_named=is_named, by_reference=by_reference)
        call.local = local
        settled = call.settled
        if settled is None:
            waiter = self._loop.create_future()
            call.waiters.append(waiter)
            settled = await waiter
        if settled.outcome == "success":
            return settled
        kind = ToolFailed if settled.sure else OutcomeUnknown
        raise kind(
            node.id,
            settled.reason or settled.outcome,
            rejected_by=settled.rejected_by,
            duplicate_of=settled.duplicate_of,
        )

    def continues(self, job_id: str) -> WorkflowContinues:
        """It calls nothing any more: another job goes on in its place."""
        self._stopped = WorkflowContinues(job_id)
        return self._stopped

    def content_id(self, tool: str, args: Mapping[str, Any]) -> tuple[str, int]:
        """The id of the next equal call of a tool, and its number.

        Raises:
            Misuse: its arguments have no canonical form, or are too large.
        """
        number = self._next(tool, _canonical(args))
        return child_id(self.start.node_id, tool, args, number), number

    def own_id(self, kind: Kind, asked: Mapping[str, Any]) -> str:
        """The id of the next equal one of what no tool does, by all that is asked.

        Raises:
            Misuse: that has no canonical form, or is too large.
        """
        meant = _canonical(asked)
        number = self._next(kind.value, meant)
        digest = hashlib.sha256(meant).hexdigest()[:_DIGITS]
        return self.named_id(f"{kind.value}.{digest}.{number}")

    def named_id(self, name: str) -> str:
        """The id of a call that the code names itself.

        Raises:
            Misuse: it can't be one.
        """
        node_id = f"{self.start.node_id}.{name}"
        if not _ID.fullmatch(node_id):
            raise Misuse("an id is of [A-Za-z0-9_.-], and has at most 64 characters, the workflow's own among them")
        return node_id

    def _ask(
        self, node: Node, *, is_named: bool, timer: asyncio.TimerHandle | None = None, by_reference: bool = False
    ) -> _Call:
        if self._stopped is not None:
            raise self._stopped
        known = self._named.get(node.id) or self._open.get(node.id)
        if known is not None:
            if (known.node, known.by_reference) != (node, by_reference):
                raise Misuse(f"{node.id}: another call of this workflow has this id")
            return known
        if len(self._asked_for) >= MOST_CALLS or len(self._open) >= MOST_OPEN:
            raise Misuse(f"a workflow makes at most {MOST_CALLS} calls, and waits for at most {MOST_OPEN} at a time")
        try:
            check_graph((node,), done={one.node_id for one in node.refs})
        except InvalidPlan as refused:
            raise Misuse(f"{node.id}: {refused}") from None
        call = _Call(node, is_named, timer=timer, by_reference=by_reference)
        self._asked_for.add(node.id)
        self._asked.append((node, by_reference))
        if is_named:
            self._named[node.id] = call
        early = self._early.pop(node.id, None)
        if early is None:
            self._open[node.id] = call
        else:
            self._settle(call, early)
        return call

    def _settle(self, call: _Call, settled: CallSettled) -> None:
        call.settled = settled
        if call.timer is not None:
            self._timers.pop(id(call.timer), None)
            self._loop.fire(call.timer)
        for waiter in call.waiters:
            if not waiter.done():
                waiter.set_result(settled)
        call.waiters.clear()

    def _go_on(self) -> None:
        """Until nothing happens any more; timers that were set by then are asked for."""
        task = self._task
        if task is None or self.end is not None:
            return
        while True:
            try:
                with self._watch.watching() if self._watch is not None else nullcontext():
                    self._loop.run_ready()
            except (SystemExit, KeyboardInterrupt) as error:
                self._end(BodyEnd(None, type(error).__name__, raised_at(error)))
                return
            if self._watch is not None and self._watch.refused is not None:
                self._end(BodyEnd(None, Misuse.__name__, str(self._watch.refused)))
                return
            if task.done():
                self._end(_end_of(task))
                return
            self._forget_cancelled()
            new = [one for one in self._loop.timers() if id(one) not in self._timers]
            if not new or self._stopped is not None:
                break
            try:
                for timer in new:
                    self._set(timer)
            except Misuse as refused:
                self._end(BodyEnd(None, Misuse.__name__, str(refused)))
                return
        if self._stopped is None and not any(call.is_awaited for call in self._open.values()):
            self._end(BodyEnd(None, "Deadlock", "the workflow waits for nothing that a call could bring"))

    def _set(self, timer: asyncio.TimerHandle) -> None:
        for_s = max(0.0, timer.when() - self._loop.time())
        wait = {"for_s": for_s}
        node = Node(id=self.own_id(Kind.TIMER, wait), kind=Kind.TIMER, wait=Wait(for_s=for_s))
        self._timers[id(timer)] = node.id
        self._ask(node, is_named=False, timer=timer)

    def _forget_cancelled(self) -> None:
        """Timers that nobody waits for any more: their end changes nothing."""
        over = [(known, node_id) for known, node_id in self._timers.items() if self._is_over(node_id)]
        for known, node_id in over:
            del self._timers[known]
            self._open.pop(node_id, None)

    def _is_over(self, node_id: str) -> bool:
        call = self._open.get(node_id)
        return call is None or not call.is_awaited

    def _end(self, end: BodyEnd) -> None:
        self.end = end
        self._stopped = self._stopped or stopped("superseded")
        self._loop.cancel_all()
        for held in (self._open, self._named, self._early):
            held.clear()

    def _next(self, of: str, meant: bytes) -> int:
        self._occurrences[of, meant] += 1
        return self._occurrences[of, meant]


def _canonical(value: Mapping[str, Any]) -> bytes:
    try:
        data = canonical(dict(value)) if value else b""
    except (InvalidArgs, RecursionError) as refused:
        raise Misuse(f"what is asked for has no canonical form: {refused}") from None
    if len(data) > LARGEST_ARGUMENTS:
        raise Misuse(f"what is asked for has more than {LARGEST_ARGUMENTS} bytes")
    return data


def _end_of(task: "asyncio.Task[Any]") -> BodyEnd:
    if task.cancelled():
        return BodyEnd(None, "CancelledError", "the workflow has cancelled itself")
    error = task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, WorkflowContinues):
        return BodyEnd({"continued_as": error.job_id})
    if error is not None:
        told = isinstance(error, CallEnded | ToolError | Misuse | WorkflowControl)
        return BodyEnd(None, type(error).__name__, recordable.text(str(error)) if told else raised_at(error))
    result, data = recorded(task.result())
    if len(data) > LARGEST_RESULT or has_more(data, MOST_VALUES):
        text = f"a workflow returns at most {LARGEST_RESULT} bytes, and {MOST_VALUES} values"
        return BodyEnd(None, "ResultTooLarge", text)
    return BodyEnd(result)
