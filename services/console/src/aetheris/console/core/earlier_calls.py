"""What was done before that bears on a request: the tool's last approved call, equal calls, others of the session."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.console.core.request_context import changed

_APPROVED = "approve by "
"""How the reasons of an effect begin that a person approved."""
MOST_SHOWN = 20
"""Of each list; the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCall:
    """A call that took effect."""

    job_id: str
    node_id: str
    tool: str
    external_id: str
    at: str
    arguments: Mapping[str, Any]
    approved_by: str
    """Empty where nobody was asked."""
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCalls:
    """Of the effects that were looked at, newest first."""

    approved: EarlierCall | None
    """The last call of the tool that a person approved."""
    changes: Sequence[tuple[str, Any, Any]]
    """(name, what it was there, what it is here) of each argument that differs from it."""
    equal: Sequence[EarlierCall]
    """Calls of the tool with the very same arguments."""
    in_session: Sequence[EarlierCall]
    """What else was done in the job's session, by other jobs."""


def earlier_calls(
    effects: Sequence[Mapping[str, Any]], *, job_id: str, tool: str, arguments: Mapping[str, Any], session: str
) -> EarlierCalls:
    """Of effects with their reasons, newest first, as the API has them, numbers as texts; `session` may be empty."""
    calls = [_call(tree) for tree in effects]
    of_tool = [one for one in calls if one.tool == tool]
    approved = next((one for one in of_tool if one.approved_by), None)
    together = [one for one in calls if session and one.session == session and one.job_id != job_id]
    return EarlierCalls(
        approved=approved,
        changes=changed(approved.arguments, arguments) if approved is not None else (),
        equal=[one for one in of_tool if one.arguments == arguments][:MOST_SHOWN],
        in_session=together[:MOST_SHOWN],
    )


def _call(tree: Mapping[str, Any]) -> EarlierCall:
    facts, reasons = _facts(tree), list(_reasons(tree))
    approvals = [str(one.get("title", "")) for one in reasons if one.get("what") == "approval"]
    approved = next((title for title in reversed(approvals) if title.startswith(_APPROVED)), "")
    args: Any = next((_facts(one).get("args") for one in reasons if one.get("what") == "step"), None)
    goal = next((_facts(one) for one in reasons if one.get("what") == "goal"), {})
    return EarlierCall(
        job_id=str(facts.get("job_id", "")),
        node_id=str(facts.get("command_id", "")),
        tool=str(facts.get("tool_name", "")),
        external_id=str(facts.get("external_id", "")),
        at=str(facts.get("created_at", "")),
        arguments=cast("Mapping[str, Any]", args) if isinstance(args, dict) else {},
        approved_by=approved.removeprefix(_APPROVED),
        session=str(goal.get("session", "")),
    )


def _facts(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = tree.get("facts")
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _reasons(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All of them, those nearest to the effect first."""
    level = [tree]
    while level:
        below = [one for above in level for one in cast("Sequence[Mapping[str, Any]]", above.get("because") or ())]
        yield from below
        level = below
