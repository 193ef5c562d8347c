"""What a run asks of its session, and what the answers say: the same for both clients. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic_core import PydanticSerializationError, to_jsonable_python

from aetheris.protocol.api_sessions import SessionCallAnswer, SessionCompleted, SessionStanding
from aetheris.protocol.base.canonical import digest
from aetheris.sdk.client.calls import ApiCall
from aetheris.sdk.client.errors import Conflict
from aetheris.sdk.workflows.errors import (
    CallEnded,
    Misuse,
    OutcomeUnknown,
    ToolFailed,
    WorkflowCancelled,
    WorkflowControl,
    WorkflowDiverged,
    WorkflowSuperseded,
)

WAIT_S = 30
"""So long the gateway holds a request; then it is asked again."""


class NamesTool(Protocol):
    """A declared tool."""

    @property
    def name(self) -> str:
        """As it is registered."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is the same each time that a run is attached to."""

    run_id: str
    tools: Sequence[str]
    idle_timeout_s: float | None = None
    agent: str | None = None
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RunCall:
    """One call, as it is asked for, again and again until it has ended."""

    key: str
    number: int
    body: Mapping[str, Any]


@dataclass(slots=True)
class RunAsks:
    """One process that has attached to a run, or is about to."""

    given: RunOptions
    body: str
    beside: bool = False
    standing: SessionStanding | None = None
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    """How often the code has asked for a call that says the same."""
    _given_back: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Of them, those that it never heard the end of: whoever asks again means these."""
    _asked: set[str] = field(default_factory=set[str])

    @property
    def job_id(self) -> str:
        """The run's job; raises RuntimeError before it is attached to."""
        if self.standing is None:
            raise RuntimeError("use a run as a context manager")
        return self.standing.job_id

    def attach(self) -> ApiCall:
        """POST /sessions."""
        given = self.given
        body: dict[str, Any] = {"run_id": given.run_id, "tools": list(given.tools), "body": self.body}
        more = {"idle_timeout_s": given.idle_timeout_s, "agent": given.agent, "options": given.options}
        more["beside"] = self.beside or None
        body |= {name: one for name, one in more.items() if one is not None}
        return ApiCall("POST", "/sessions", body, wait_s=WAIT_S)

    def attached(self, answer: Any) -> bool:
        """Whether it is the body of the run now, or the run has ended."""
        self.standing = SessionStanding.model_validate(answer)
        return self.standing.status != "pending"

    def call(self, tool: NamesTool | str, args: Mapping[str, Any], name: str | None) -> RunCall:
        """A call of the code; an equal one is another call, unless its end was never told. Raises Misuse."""
        called = tool if isinstance(tool, str) else tool.name
        given = _as_json(called, args)
        body: dict[str, Any] = {"body": self.body, "tool": called, "args": given}
        if name is not None:
            return RunCall("", 0, body | {"id": name})
        key = digest([called, given])
        waiting = self._given_back.get(key)
        if waiting:
            number = min(waiting)
            waiting.remove(number)
        else:
            number = self._counts[key] = self._counts.get(key, 0) + 1
        return RunCall(key, number, body | {"occurrence": number})

    def model_call(self, tool: str, args: Mapping[str, Any], repeat_of: str | None) -> RunCall:
        """A call that a model wants: an equal one is the same. Raises Misuse."""
        body: dict[str, Any] = {"body": self.body, "tool": tool, "args": _as_json(tool, args), "by_model": True}
        return RunCall("", 0, body | ({"repeat_of": repeat_of} if repeat_of is not None else {}))

    def asked(self, call: RunCall, node_id: str | None) -> ApiCall:
        """POST /sessions/{job_id}/calls; `node_id` as the answer before said."""
        body = {**call.body, **self._said()} | ({"node_id": node_id} if node_id is not None else {})
        return ApiCall("POST", f"/sessions/{self.job_id}/calls", body, wait_s=WAIT_S)

    def heard(self, answer: Any) -> SessionCallAnswer:
        """What a call came to so far."""
        found = SessionCallAnswer.model_validate(answer)
        if found.node_id is not None:
            self._asked.add(found.node_id)
        return found

    def give_back(self, call: RunCall) -> None:
        """The code never heard what became of it."""
        if call.key:
            self._given_back.setdefault(call.key, []).append(call.number)

    def complete(self, result: Any) -> ApiCall:
        """POST /sessions/{job_id}/complete. Raises Misuse."""
        body = {"body": self.body, "result": _as_json("the result", {"": result})[""], **self._said()}
        return ApiCall("POST", f"/sessions/{self.job_id}/complete", body, wait_s=WAIT_S)

    def completed(self, answer: Any) -> bool:
        """Whether the run has ended; raises WorkflowCancelled: otherwise than by being completed."""
        status = SessionCompleted.model_validate(answer).status
        if status not in ("pending", "completed"):
            raise WorkflowCancelled(f"the run has {status}")
        return status == "completed"

    def refusal(self, refused: Conflict) -> WorkflowControl | Conflict:
        """What the code is told of a refusal."""
        match refused.code:
            case "superseded":
                return WorkflowSuperseded("another process has attached to this run")
            case "unasked":
                names = ", ".join(map(str, refused.details.get("unasked", ())))
                return WorkflowDiverged(f"calls were made before that this code has not asked for: {names}")
            case "changed":
                return WorkflowDiverged(refused.message)
            case "session_over":
                return WorkflowCancelled(refused.message)
            case _:
                return refused

    def _said(self) -> dict[str, Any]:
        """Of what must be asked for, what it has asked for: a gateway that was restarted doesn't know."""
        recorded = self.standing.recorded if self.standing is not None else []
        said = [one for one in recorded if one in self._asked]
        return {"asked": said} if said else {}


def returned(answer: SessionCallAnswer) -> Any:
    """What a call returned.

    Raises:
        ToolFailed: there is no effect of it, and there never will be.
        OutcomeUnknown: it may have taken effect.
    """
    if answer.status == "success":
        return answer.result
    raise ended(answer)


def ended(answer: SessionCallAnswer) -> CallEnded:
    """The exception for a call that did not succeed."""
    kind = ToolFailed if answer.sure else OutcomeUnknown
    return kind(
        answer.node_id or "",
        answer.reason or answer.status,
        rejected_by=answer.rejected_by,
        duplicate_of=answer.duplicate_of,
    )


def _as_json(called: str, args: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return to_jsonable_python(dict(args))
    except (PydanticSerializationError, ValueError, RecursionError):
        raise Misuse(f"{called}: it holds what JSON can't say") from None
