"""The process that holds the workflows of one module, and runs the bodies of them: it imports the module once.

It is started as that of a module's tools is: an environment of its own, never a credential. Its bodies take turns in
one thread, each until it waits. A body that doesn't come to that holds up all of them, and ends the process by name.
"""

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from aetheris.sdk.invoke import outcome_of
from aetheris.sdk.isolation.frames import packed, receive
from aetheris.sdk.isolation.host import asked_to_load
from aetheris.sdk.isolation.said import as_json
from aetheris.sdk.loader import ToolboxError, workflows_in
from aetheris.sdk.outcomes import Outcome, Retryable
from aetheris.sdk.places import at_place, is_an_authors
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, BodyStart, CallSettled, Idle, Lost, Returned
from aetheris.sdk.workflows.declaration import AnyWorkflow
from aetheris.sdk.workflows.errors import StopReason
from aetheris.sdk.workflows.local_bodies import LocalBodies
from aetheris.sdk.workflows.local_calls import LocalFunction, called

_MOST_ASKED = 16
"""Calls in one frame: the arguments of each may be large."""
_MOST_THREADS = 100
_LOOKS = 8
"""Times that it is looked whether a body comes to wait, within what it has."""


class BodyOrder(BaseModel):
    """What a body is to do: begin, go on with what has settled, or stop. Each is answered once.

    `local`: a call that it has asked for, to be made here beside all that; what it comes to is said when it has ended.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    body: str
    begin: dict[str, Any] | None = None
    settled: tuple[CallSettled, ...] = ()
    stop: StopReason | None = None
    local: str | None = None


class BodyAnswer(BaseModel):
    """What a body has done: what it asks for, and what it waits for, or how it has ended; without either there is more.

    `stuck`: where it runs and doesn't come to wait; the last word of its process. `local`: a call that was made here,
    and what it `said`; that answers no other order.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    body: str
    asked: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    by_reference: list[str] = Field(default_factory=list[str])
    """Of the asked, those whose results it hands on unread."""
    waits_for: list[str] | None = None
    returned: bool = False
    result: Any = None
    raised: list[str] | None = None
    stuck: str | None = None
    local: str | None = None
    said: dict[str, Any] | None = None

    @property
    def is_last(self) -> bool:
        """Whether nothing comes behind it that answers the same order."""
        return self.waits_for is not None or self.returned or self.raised is not None


def main(keeper: int, orders: int, loading: int) -> NoReturn:
    """Load what the executor names, then run bodies until it hangs up.

    Args:
        keeper: the process above.
        orders, loading: descriptors of the two sockets to the executor.
    """
    with socket.socket(fileno=loading) as asking:
        wanted = asked_to_load(keeper, asking)
        workflows, faults = list[AnyWorkflow](), list[str]()
        try:
            workflows = workflows_in(wanted.source, wanted.folder)
        except ToolboxError as fault:
            faults.append(str(fault))
        described = [one.registry_entry() | {"ref": one.ref} for one in workflows]
        asking.sendall(packed({"workflows": described, "faults": faults}))
    _Turns(socket.socket(fileno=orders), workflows).run()


class _Turns:
    def __init__(self, orders: socket.socket, workflows: Sequence[AnyWorkflow]) -> None:
        self._orders = orders
        self._bodies = LocalBodies(workflows, self._heard)
        self._sending = threading.Lock()
        self._asked: list[dict[str, Any]] = []
        self._by_reference: list[str] = []
        self._turn: BodyOrder | None = None
        self._is_answered = False

    def run(self) -> NoReturn:
        first = receive(self._orders)
        if first is None:
            os._exit(0)
        watch = threading.Thread(target=self._watch, args=(float(first["silent_s"]), threading.get_ident()))
        watch.daemon = True
        watch.start()
        while True:
            frame = receive(self._orders)
            if frame is None:
                os._exit(0)  # the executor has ended
            order = BodyOrder.model_validate(frame)
            if order.local is not None:
                self._make(order.body, order.local)
                continue
            self._turn, self._is_answered = order, False
            self._do(order)
            if not self._is_answered:  # of a body that has ended
                self._answer({"body": order.body, "waits_for": []})
            self._turn = None

    def _do(self, order: BodyOrder) -> None:
        if order.begin is not None:
            try:
                self._bodies.begin(BodyStart(order.body, **order.begin), order.settled)
            except LookupError:
                self._answer({"body": order.body, "raised": ["UnknownWorkflow", "it is not in this module"]})
        elif order.stop is not None:
            self._bodies.stop(order.body, order.stop)
        else:
            self._bodies.settled(order.body, order.settled)

    def _make(self, body: str, node_id: str) -> None:
        """In a thread: what it waits for is none of the bodies' time."""
        function = self._bodies.local(body, node_id)
        if function is None or threading.active_count() > _MOST_THREADS:
            why = "its body has not asked for it" if function is None else "too many functions run"
            self._tell_local(body, node_id, Retryable(why))
            return
        threading.Thread(target=self._run_local, args=(body, node_id, function), daemon=True).start()

    def _run_local(self, body: str, node_id: str, function: LocalFunction) -> None:
        came = asyncio.run(outcome_of(partial(called, function), pure=False))
        self._tell_local(body, node_id, came)

    def _tell_local(self, body: str, node_id: str, came: Outcome) -> None:
        frame = packed({"body": body, "local": node_id, "said": as_json(came)})
        with self._sending:
            self._orders.sendall(frame)

    def _heard(self, said: BodySaid) -> None:
        match said:
            case Asked():
                self._asked.append(said.node)
                if said.by_reference:
                    self._by_reference.append(said.node["id"])
                if len(self._asked) >= _MOST_ASKED:
                    self._answer({"body": said.body})
            case Idle():
                self._answer({"body": said.body, "waits_for": list(said.waits_for)})
            case Returned():
                self._answer({"body": said.body, "returned": True, "result": said.result})
            case BodyRaised():
                self._answer({"body": said.body, "raised": [said.error_class, said.text]})
            case Lost():
                pass

    def _answer(self, answer: dict[str, Any]) -> None:
        self._is_answered = len(answer) > 1
        asked = {"asked": self._asked, "by_reference": self._by_reference} if self._asked else {}
        frame = packed(answer | asked)
        self._asked, self._by_reference = [], []
        with self._sending:
            self._orders.sendall(frame)

    def _watch(self, silent_s: float, running: int) -> None:
        """End the process where a body has its turn for too long, and say which, and where it runs."""
        seen: BodyOrder | None = None
        looks = 0
        while looks < _LOOKS:  # that of which no time is taken: this process may have been stopped
            time.sleep(silent_s / _LOOKS)
            turn = self._turn
            looks = looks + 1 if turn is not None and turn is seen else 0
            seen = turn
        where = _place(sys._current_frames().get(running))  # pyright: ignore[reportPrivateUsage]
        if seen is not None and self._sending.acquire(timeout=silent_s):
            self._orders.sendall(packed({"body": seen.body, "stuck": where}))
        os._exit(1)


def _place(frame: FrameType | None) -> str:
    """The innermost line of a workflow's author."""
    innermost = frame
    while frame is not None and not is_an_authors(frame.f_code.co_filename):
        frame = frame.f_back
    shown = frame or innermost
    return at_place((shown.f_code.co_filename, shown.f_lineno), "") if shown is not None else "an unknown place"
