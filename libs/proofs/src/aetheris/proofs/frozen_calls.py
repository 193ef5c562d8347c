"""Whether a freeze keeps a call from starting, at a position of a job's history."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

from aetheris.proofs.history import History
from aetheris.proofs.records import Body, Fact

Scope = tuple[str | None, str | None, str | None]
"""The tenant, the agent and the tool that a freeze names; None: anybody's, or any."""

NAME_LIMIT = 256


class FrozenCalls:
    """The freezes in force, asked about from place to place through a job's history, never back.

    Each freeze of a scope has a higher number than those before it, and ends by its own or with the job. The end of
    one that nobody had ordered says up to which number they were: the next one has a higher.
    """

    def __init__(self, history: History) -> None:
        self._created: Body = history.created.body if history.created is not None else {}
        self._ahead = iter(history.freezes)
        self._next = next(self._ahead, None)
        self._in_force: dict[Scope, int] = {}
        self._last: dict[Scope, int] = {}
        self._tools: Counter[str | None] = Counter()
        """How many of those in force name a tool; None: any."""
        self._ended = False

    def hold(self, tools: Iterable[object], at: int) -> bool:
        """Whether one keeps a call from starting at a place, which is no lower than at the last question.

        Args:
            tools: its own, and the workflow whose body has planned it.
        """
        while self._next is not None and self._next.at < at:
            self._take(self._next)
            self._next = next(self._ahead, None)
        named = any(isinstance(tool, str) and self._tools[tool] > 0 for tool in tools)
        return not self._ended and (self._tools[None] > 0 or named)

    def _take(self, fact: Fact) -> None:
        if fact.type not in ("job_frozen", "job_unfrozen"):
            self._ended = True
            return
        scope, number = _scope(fact), fact.body.get("number")
        if scope is None or isinstance(number, bool) or not isinstance(number, int):
            return
        if fact.type == "job_unfrozen":
            ordered = fact.body.get("ordered")
            if self._in_force.get(scope) == number and (ordered is None or _is_below(ordered, number)):
                del self._in_force[scope]
                self._tools[scope[2]] -= 1
                self._last[scope] = number if ordered is None else ordered
        elif number > self._last.get(scope, 0) and _concerns(scope, self._created):
            self._tools[scope[2]] += scope not in self._in_force
            self._in_force[scope] = self._last[scope] = number


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
