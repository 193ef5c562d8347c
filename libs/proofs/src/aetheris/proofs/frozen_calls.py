"""Whether a freeze keeps a call from starting, at a position of a job's history."""

from collections.abc import Mapping
from typing import Any, cast

from aetheris.proofs.history import History
from aetheris.proofs.records import Body, Fact

Scope = tuple[str | None, str | None, str | None]
"""The tenant, the agent and the tool that a freeze names; None: anybody's, or any."""

NAME_LIMIT = 256


def is_frozen(history: History, at: int, tool: object) -> bool:
    """Each freeze of a scope has a higher number than those before it, and ends by its own or with the job.

    The end of one that nobody had ordered says up to which number they were: the next one has a higher.
    """
    in_force: dict[Scope, int] = {}
    last: dict[Scope, int] = {}
    created: Body = history.created.body if history.created is not None else {}
    for fact in history.freezes:
        if fact.at >= at:
            break
        scope, number = _scope(fact), fact.body.get("number")
        if fact.type not in ("job_frozen", "job_unfrozen"):
            return False
        if scope is None or isinstance(number, bool) or not isinstance(number, int):
            continue
        if fact.type == "job_unfrozen":
            ordered = fact.body.get("ordered")
            if in_force.get(scope) == number and (ordered is None or _is_below(ordered, number)):
                del in_force[scope]
                last[scope] = number if ordered is None else ordered
        elif number > last.get(scope, 0) and _concerns(scope, created):
            in_force[scope] = last[scope] = number
    return any(scope[2] in (None, tool) for scope in in_force)


def _is_below(ordered: object, number: int) -> bool:
    return isinstance(ordered, int) and not isinstance(ordered, bool) and 0 <= ordered < number


def _scope(fact: Fact) -> Scope | None:
    """Whom it names; None where it names nobody."""
    named = fact.body.get("scope")
    if not isinstance(named, Mapping):
        return None
    said = cast("Mapping[str, Any]", named)
    names = [said.get(name) for name in ("tenant", "agent", "tool")]
    if not all(name is None or (isinstance(name, str) and 1 <= len(name) <= NAME_LIMIT) for name in names):
        return None
    tenant, agent, tool = names
    if (tenant is None and tool is None) or (agent is not None and (tenant is None or tool is not None)):
        return None
    return tenant, agent, tool


def _concerns(scope: Scope, created: Body) -> bool:
    return scope[0] in (None, created.get("tenant")) and scope[1] in (None, created.get("submitted_by"))
