"""Tools that fail whoever calls them: their calls wait, ever longer, and one is tried in between (docs/quarantine.md).

Pure. Nothing of it is in the log: a ledger that starts anew knows of none, and no more than a wait rests on one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.doubt import LEASE_EXPIRED, WORKER_ENDED
from aetheris.ledger.core.limits import QuarantineLimits
from aetheris.ledger.core.timer_queue import Item
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome, Via

Call = tuple[str, str]
"""job_id, idempotency_key"""


NOT_OF_THE_TOOL = frozenset({LEASE_EXPIRED, WORKER_ENDED, "BlobsUnreachable", "ReportRefused"})
"""Doubts about a worker, or about what it could record of an answer."""

NOT_CALLED = "NotExecuted: "
"""How an executor begins that says why it made no call."""


class TenantTool(NamedTuple):
    """A tool, as the jobs of one tenant call it: what fails for him need not fail for others."""

    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class QuarantineChange:
    """What has become of a quarantine, for people to hear of."""

    what: Literal["begun", "prolonged", "trying", "ended", "released"]
    tool: TenantTool
    failures: int
    until: datetime
    """When the next call is let through."""


@dataclass(slots=True)
class _ToolHistory:
    """How a tool has done since its last success."""

    failures: int = 0
    jobs: set[str] = field(default_factory=set)
    pause_s: float = 0.0
    """0: its calls are not held."""
    due_s: float = 0.0
    window_s: float = 0.0
    """How far off `due_s` was when it was set: a clock that goes back makes nobody wait longer."""
    trial: Call | None = None
    held: dict[Item, None] = field(default_factory=dict)

    def let_wait(self, window_s: float, now: Now) -> None:
        """Until the window is over, no call is let through."""
        self.window_s, self.due_s = window_s, now.mono_s + window_s


class Quarantine:
    """The states of one partition's tools; `words` is what was not reported yet."""

    def __init__(self, limits: QuarantineLimits) -> None:
        self._limits = limits
        self._histories: dict[TenantTool, _ToolHistory] = {}
        self._quarantined: set[TenantTool] = set()
        self._counts_from: dict[TenantTool, int] = {}
        """Where in the log a person has said that what a tool failed before says nothing any more."""
        self.changes: list[QuarantineChange] = []

    def __bool__(self) -> bool:
        """Whether any tool's calls are held."""
        return bool(self._quarantined)

    def __contains__(self, tool: TenantTool | None) -> bool:
        return tool in self._quarantined

    def counts(self, tool: TenantTool, offset: int) -> bool:
        """Whether what happened there still says anything of the tool."""
        return offset >= self._counts_from.get(tool, 0)

    def failed(self, tool: TenantTool, call: Call, now: Now) -> Iterable[Item]:
        """A try has failed in a way that tells about its tool; what was held for another time, to be looked at now."""
        if not self._limits.after:
            return ()
        history = self._histories.setdefault(tool, _ToolHistory())
        history.failures += 1
        if len(history.jobs) < self._limits.jobs:
            history.jobs.add(call[0])
        if tool not in self._quarantined:
            if history.failures >= self._limits.after and len(history.jobs) >= self._limits.jobs:
                self._hold(tool, history, min(self._limits.first_s, self._limits.longest_s), now)
        elif history.trial == call:  # those that began before it say nothing new
            self._hold(tool, history, min(2 * history.pause_s, self._limits.longest_s), now)
            held, history.held = history.held, {}
            return held
        return ()

    def succeeded(self, tool: TenantTool, now: Now) -> Iterable[Item]:
        """Its count begins anew; what was held, to be looked at now."""
        return self._end("ended", tool, now)

    def released(self, tool: TenantTool, below: int, now: Now) -> Iterable[Item]:
        """A person says so of all that lies below; what was held, to be looked at now."""
        self._counts_from[tool] = max(below, self._counts_from.get(tool, 0))
        return self._end("released", tool, now)

    def wait(self, tool: TenantTool, call: Call, item: Item, lasts_s: float, now: Now) -> float | None:
        """When the call may be looked at again; None lets it through.

        What is let through of a tool in quarantine is its trial: the next one comes when it has failed, or when nothing
        was seen of it for a pause and the `lasts_s` that it may take.
        """
        if tool not in self._quarantined:
            return None
        history = self._histories[tool]
        history.due_s = min(history.due_s, now.mono_s + history.window_s)
        if now.mono_s < history.due_s:
            history.held[item] = None
            return history.due_s
        history.trial, history.held = call, {}
        history.let_wait(history.pause_s + lasts_s, now)
        self._report("trying", tool, history, now)
        return None

    def _end(self, what: Literal["ended", "released"], tool: TenantTool, now: Now) -> Iterable[Item]:
        history = self._histories.pop(tool, None)
        if history is None or tool not in self._quarantined:
            return ()
        self._quarantined.discard(tool)
        self.changes.append(QuarantineChange(what, tool, history.failures, now.wall))
        return history.held

    def _hold(self, tool: TenantTool, history: _ToolHistory, pause_s: float, now: Now) -> None:
        begins = tool not in self._quarantined
        self._quarantined.add(tool)
        history.pause_s, history.trial = pause_s, None
        history.let_wait(pause_s, now)
        self._report("begun" if begins else "prolonged", tool, history, now)

    def _report(
        self, what: Literal["begun", "prolonged", "trying"], tool: TenantTool, history: _ToolHistory, now: Now
    ) -> None:
        until = now.wall + timedelta(seconds=history.due_s - now.mono_s)
        self.changes.append(QuarantineChange(what, tool, history.failures, until))


def concerns_tool(event: ev.ToolInvocationFinished | ev.InvocationInDoubt) -> bool | None:
    """Whether a try's end shows that its tool works, or that it does not; None where it shows neither.

    A call that is refused for what it is (`Failed`, bad arguments, a policy, a human) says nothing of the next one; nor
    does the end of a worker, or what became known of an effect later.
    """
    if isinstance(event, ev.InvocationInDoubt):
        return None if event.error_class in NOT_OF_THE_TOOL else False
    if event.via is not Via.EXECUTOR or event.outcome is Outcome.PERMANENT:
        return None
    if event.outcome is Outcome.RETRYABLE:
        return None if (event.error or "").startswith(NOT_CALLED) else False
    return True
