"""The client for programs that wait; generated from `asynchronous_runs.py` by `make docs`."""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from aetheris.protocol.api_sessions import SessionCallAnswer
from aetheris.sdk.client.calls import ApiCall
from aetheris.sdk.client.errors import BadRequest, Conflict, TooManyRequests, Unreachable
from aetheris.sdk.client.run_asks import NamesTool, RunAsks, RunCall, returned
from aetheris.sdk.workflows.errors import Misuse

Asks = Callable[[ApiCall], Any]
"""Sends a request, and gives the answer's JSON; raises ApiError."""
_PAUSE_S = 1


class SessionRun:
    """A run of code in this process; leaving the block does not end it (docs/sessions.md)."""

    def __init__(self, send: Asks, asks: RunAsks, patience_s: float, name: str | None = None) -> None:
        self._send = send
        self._asks = asks
        self._patience_s = patience_s
        self._name = name

    def __enter__(self) -> "SessionRun":
        """Take charge of the run: from here on no other process has calls made in it.

        Raises:
            Conflict: it was begun with other tools or options.
            ApiError.
        """
        while not self._asks.attached(self._ask(self._asks.attach())):
            pass
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """It goes on."""

    @property
    def job_id(self) -> str:
        """The run's job."""
        return self._asks.job_id

    @property
    def status(self) -> str:
        """How it stood when this process came: attached, or how its job had ended."""
        return "pending" if self._asks.standing is None else self._asks.standing.status

    @property
    def result(self) -> Any:
        """Of a run that was completed before this process came: with what."""
        return None if self._asks.standing is None else self._asks.standing.result

    def using(self, *, id: str) -> "SessionRun":  # noqa: A002  what it is called in a plan
        """The same run with a name for the one call: whatever changes around it, there is one."""
        return SessionRun(self._send, self._asks, self._patience_s, id)

    def call(self, tool: NamesTool | str, /, **args: Any) -> Any:
        """Have a tool called; what it returned.

        An equal call is another call, as the code says it again, unless this process never heard what became of it.

        Raises:
            ToolFailed: there is no effect of it, and there never will be.
            OutcomeUnknown: it may have taken effect.
            Misuse: the run doesn't name the tool, or its schema refuses the arguments.
            WorkflowSuperseded: another process is the body of this run.
            WorkflowDiverged: calls were made before that this code has not asked for, or this one with other arguments.
            WorkflowCancelled: the run has ended, or is about to.
            ApiError: nothing is known; the same call again goes on from here.
        """
        call = self._asks.call(tool, args, self._name)
        try:
            answer = self._answer(call)
        except BaseException:
            self._asks.give_back(call)
            raise
        return returned(answer)

    def model_call(self, tool: str, args: Mapping[str, Any], *, repeat_of: str | None = None) -> SessionCallAnswer:
        """Have a call made that a model wants; what it came to, when it has ended, whichever way.

        An equal call is the same one: while it is open, when it succeeded, and when nobody knows if it took effect.

        Args:
            repeat_of: the node_id of an equal call that succeeded, to make it once more.

        Raises:
            Misuse, WorkflowSuperseded, WorkflowCancelled, ApiError: as `call`.
        """
        return self._answer(self._asks.model_call(tool, args, repeat_of))

    def _answer(self, call: RunCall) -> SessionCallAnswer:
        node_id: str | None = None
        while True:
            try:
                found = self._asks.heard(self._ask(self._asks.asked(call, node_id)))
            except Conflict as refused:
                raise self._asks.refusal(refused) from None
            except BadRequest as refused:
                raise Misuse(f"{call.body['tool']}: {refused.field}: {refused.message}") from None
            if found.status != "open":
                return found
            node_id = found.node_id

    def complete(self, result: Any = None) -> None:
        """End the run with a result, when its open calls have ended. Said again it is the same.

        Raises:
            WorkflowSuperseded, WorkflowDiverged, WorkflowCancelled, ApiError: as `call`.
        """
        request = self._asks.complete(result)
        try:
            while not self._asks.completed(self._ask(request)):
                pass
        except Conflict as refused:
            raise self._asks.refusal(refused) from None

    def _ask(self, request: ApiCall) -> Any:
        """Every request may be sent again: it is the same one."""
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self._send(request)
            except (Unreachable, TooManyRequests) as error:
                if time.monotonic() > until:
                    raise
                time.sleep(error.retry_after_s or _PAUSE_S)
