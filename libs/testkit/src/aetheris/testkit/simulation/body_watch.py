"""What must hold of the calls of bodies, told from the log and from what the code itself has asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.references import resolve
from aetheris.protocol.fold.job_log import LoggedEvent
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages.events import (
    CallPlanned,
    Event,
    InvocationInDoubt,
    JobCompleted,
    ToolInvocationFinished,
    ToolInvocationStarted,
    WorkflowAccepted,
)
from aetheris.protocol.plan.graph import EffectClass
from aetheris.sdk.workflows.body_replay import replay_body
from aetheris.testkit.simulation.external_system import ExternalCall
from aetheris.testkit.simulation.flows import AS_IT_WAS, FLOW
from aetheris.testkit.simulation.goal_replay import replay_goal
from aetheris.testkit.simulation.log import Entry
from aetheris.testkit.simulation.scenario import FLOWS

Node = tuple[str, str]
"""job_id, node_id"""

_REFUSED = "CallRefused"


@dataclass(frozen=True, slots=True)
class _Takeover:
    """A body that has begun, and what of its node's calls must be asked for before it does something new."""

    at: int
    body: str
    expected: frozenset[str]


@dataclass(slots=True)
class BodyWatch:
    """Of all bodies; `asked`: what the code of each has asked for, in turn; `deployed`: what code there was."""

    asked: Mapping[str, Sequence[str]]
    deployed: Sequence[str]
    _takeovers: dict[Node, list[_Takeover]] = field(default_factory=dict[Node, "list[_Takeover]"])
    _planned: dict[Node, dict[str, int]] = field(default_factory=dict[Node, "dict[str, int]"])
    """Call → body → where it has planned it first."""
    _first: dict[Node, str] = field(default_factory=dict[Node, str])
    """Call → its first try."""
    _waived: dict[tuple[Node, str], frozenset[str]] = field(default_factory=dict[tuple[Node, str], "frozenset[str]"])

    def note(self, job: JobState, event: Event, offset: int, *, counts: bool) -> str | None:
        """A record was folded; what it breaks."""
        match event:
            case ToolInvocationStarted(code=code) if counts and code is not None:
                node, waived = (job.job_id, event.node_id), self._waived.get(((job.job_id, event.node_id), code.hash))
                expected = frozenset(_recorded(job, event.node_id)) - (waived or frozenset())
                self._takeovers.setdefault(node, []).append(_Takeover(offset, event.invocation_id, expected))
            case ToolInvocationStarted() if counts:
                self._first.setdefault((job.job_id, event.node_id), event.invocation_id)
            case CallPlanned():
                self._planned.setdefault((job.job_id, event.node_id), {}).setdefault(event.invocation_id, offset)
            case WorkflowAccepted() if counts:
                known = (job.job_id, event.node_id), event.code_hash
                self._waived[known] = self._waived.get(known, frozenset()) | frozenset(event.waives)
            case InvocationInDoubt(error_class="diverged") if counts and set(self.deployed) == {AS_IT_WAS}:
                return f"{event.node_id} of {job.job_id} is said to have changed, and has not: {event.evidence}"
            case ToolInvocationFinished(error=str() as error) if counts and error.startswith(_REFUSED):
                return f"a body of {event.node_id} of {job.job_id} is refused what it may plan: {error}"
            case _:
                pass
        return None

    def goes_out(self, job: JobState, call: ExternalCall, at: int) -> str | None:
        """A call goes out whose `started` lies there; what it breaks, if it is a body's, and its first."""
        node, entry = (call.job_id, call.node_id), job.entry(call.node_id)
        if entry is None or entry.call is None or self._first.get(node) != call.invocation_id:
            return None
        if entry.node.refs and call.args != canonical(_given(job, entry)):
            return f"{call.node_id} is made with other results than those that it was planned with"
        parent = entry.call.parent
        in_charge = [one for one in self._takeovers.get((call.job_id, parent), ()) if one.at < at]
        if not in_charge:
            return f"{call.node_id} starts before any body of {parent}"
        last = in_charge[-1]
        if self._planned.get(node, {}).get(last.body, at) >= at:
            return f"{call.node_id} starts for a body that is not {last.body}, which has never planned it"
        unasked = last.expected - set(self.asked.get(last.body, ()))
        if unasked and call.effect_class is not EffectClass.PURE:
            return f"{call.node_id} starts beside {sorted(unasked)}, for which {last.body} has not asked"
        return None

    def open_behind(self, job: JobState, node_id: str) -> list[str]:
        """Of a node that has settled: its body's calls that have begun and have not."""
        if (job.job_id, node_id) not in self._takeovers:
            return []
        return [one for one, _, state in _calls(job, node_id) if state.invocations and not _is_settled(state)]

    def check_replay(self, job: JobState, entries: Sequence[Entry]) -> str | None:
        """Whether code that has not changed makes a completed job's calls once more; what it does instead."""
        if not isinstance(job.terminal, JobCompleted) or set(self.deployed) != {AS_IT_WAS}:
            return None
        if job.created.goal is not None:
            return replay_goal(job, entries)
        logged = [LoggedEvent(0, entry.record, entry.body) for entry in entries]
        for node_id in [one for of, one in self._takeovers if of == job.job_id]:
            replayed = replay_body(FLOWS[AS_IT_WAS], logged, {}, node_id)
            if replayed.diverges or replayed.new or replayed.end != "returns":
                return f"{FLOW} of {job.job_id}: {replayed}"
        return None


def _given(job: JobState, entry: PlanEntry) -> Any:
    """A call's arguments with what the calls that they refer to came to."""
    settled = {one.node_id: job.settled_key(one.node_id) for one in entry.node.refs}
    results = {name: one[1].result for name, one in settled.items() if one and one[1].outcome is Settled.SUCCESS}
    return resolve(entry.node.args, results)


def _calls(job: JobState, parent: str) -> Iterator[tuple[str, PlanEntry, KeyState]]:
    for node_id in job.entries:
        entry = job.entry(node_id)
        if entry is not None and entry.call is not None and entry.call.parent == parent:
            for key in job.node_keys.get(node_id, ()):
                yield node_id, entry, job.keys[key]


def _recorded(job: JobState, parent: str) -> Iterator[str]:
    """Calls that have begun, and have, or may have, an effect."""
    for node_id, entry, state in _calls(job, parent):
        surely_failed = _is_settled(state) and state.outcome is not Settled.SUCCESS and state.sure
        if state.invocations and entry.effect_class is not EffectClass.PURE and not surely_failed:
            yield node_id


def _is_settled(state: KeyState) -> bool:
    return state.status is KeyStatus.SETTLED
