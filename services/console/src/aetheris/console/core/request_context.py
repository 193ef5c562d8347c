"""What bears on a request, of its job's events: what the agent said, what was asked and decided before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

BEARING = ("decision_snapshot", "text", "approval_requested", "approval_decided")
"""The events that are looked at, as the API names them; `text` is what a model said."""
LONGEST_SAID = 20_000
"""Characters of what an agent said that are shown; the job's page has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Beside the call itself."""

    said: str
    """What the agent said last before the request; empty where the job has nothing of that."""
    earlier: Sequence[Mapping[str, Any]]
    """What was asked about the step before, and answered: {request_id, by, decision, comment, changes}.

    `changes`: (name, what it was, what it is now) of each argument that is other than this request's.
    """
    decided: Sequence[Mapping[str, Any]]
    """What was decided about other steps of the job: {node_id, by, decision, comment}."""


def request_context(
    request_id: str, node_id: str, arguments: Mapping[str, Any], events: Sequence[Mapping[str, Any]]
) -> RequestContext:
    """Of events as the API has them, numbers as texts; void ones say nothing."""
    said, earlier, decided = "", list[dict[str, Any]](), list[dict[str, Any]]()
    asked: dict[Any, Mapping[str, Any]] = {}
    before = True
    for event in events:
        data: Any = event.get("data")
        if event.get("void") or not isinstance(data, dict):
            continue
        match event.get("type"):
            case "decision_snapshot":
                said = str(data.get("reasoning_summary") or said) if before else said
            case "tool_invocation_finished":
                said = (_said_in(data) or said) if before else said
            case "approval_requested":
                asked[(data.get("idempotency_key"), data.get("token"))] = data
                before = before and data.get("form", {}).get("id") != request_id
            case "approval_decided":
                _decided(data, asked, node_id, request_id, arguments, earlier, decided)
            case _:
                pass
    return RequestContext(said=said[:LONGEST_SAID], earlier=earlier, decided=decided)


def _decided(  # noqa: PLR0917  where it belongs depends on all of these
    data: Mapping[str, Any],
    asked: Mapping[Any, Mapping[str, Any]],
    node_id: str,
    request_id: str,
    arguments: Mapping[str, Any],
    earlier: list[dict[str, Any]],
    decided: list[dict[str, Any]],
) -> None:
    line = {"by": data.get("approver"), "decision": data.get("decision"), "comment": data.get("comment")}
    if data.get("node_id") != node_id:
        decided.append({"node_id": data.get("node_id"), **line})
        return
    form: Mapping[str, Any] = asked.get((data.get("idempotency_key"), data.get("token")), {}).get("form", {})
    if form.get("id") != request_id:
        was: Mapping[str, Any] = form.get("context", {}).get("arguments", {})
        earlier.append({"request_id": form.get("id"), **line, "changes": changed(was, arguments)})


def changed(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, what it was, what it is) of every argument that differs; None stands for one that is not there."""
    names = [*was, *(name for name in now if name not in was)]
    return [
        (name, was.get(name), now.get(name))
        for name in names
        if (name in was) != (name in now) or was.get(name) != now.get(name)
    ]


def _said_in(finished: Mapping[str, Any]) -> str:
    """The text of a model's answer, which alone has a usage; empty for any other result."""
    result: Any = finished.get("result") if finished.get("usage") is not None else None
    text: Any = cast("Mapping[str, Any]", result).get("text") if isinstance(result, dict) else None
    return text if isinstance(text, str) else ""
