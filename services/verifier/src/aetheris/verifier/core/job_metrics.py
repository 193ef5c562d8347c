"""What the log says of jobs, counted and timed as it flows by (docs/metrics.md): pure, and by the records' own times.

Nothing is decided by it. A record that proves nothing counts for nothing, as everywhere; what was counted before this
process read it is followed, for what comes of it, and not counted again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, cast

from aetheris.proofs.history import SUCCESSES, TERMINAL
from aetheris.proofs.records import Fact
from aetheris.protocol.base.measures import PATIENCE_S, Busiest, Counts, Histogram, Histograms
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import RejectReason, Via

_MOST_TOKENS = 10**9
"""In an answer; whoever says more is not believed."""
_MOST_DOLLARS = 10**6
_OWN_WORD = frozenset({Via.EXECUTOR, Via.LATE})
"""The try itself says how long it took."""
_FOUND = frozenset({Via.CATCH_UP, Via.PROBE, Via.HUMAN})
"""It is known to have taken effect, so it is not made again."""


@dataclass(frozen=True)
class JobMeasures:
    """Of a whole process."""

    created: Counts = field(default_factory=lambda: Counts("tenant", bounded=("tenant",)))
    ended: Counts = field(default_factory=lambda: Counts("end", "tenant", bounded=("tenant",)))
    steps: Counts = field(default_factory=lambda: Counts("result", "tenant", bounded=("result", "tenant")))
    calls: Counts = field(default_factory=lambda: Counts("outcome", "tool", bounded=("outcome", "tool")))
    effects: Counts = field(default_factory=lambda: Counts("tool", bounded=("tool",)))
    prevented: Counts = field(default_factory=lambda: Counts("how"))
    seals: Counts = field(default_factory=Counts)
    tokens: Counts = field(default_factory=lambda: Counts("direction", "model", "tenant", bounded=("model", "tenant")))
    microdollars: Counts = field(default_factory=lambda: Counts("model", "tenant", bounded=("model", "tenant")))
    causes: Busiest = field(default_factory=Busiest)
    """Of doubts, as they are shown."""
    job_s: Histogram = field(default_factory=lambda: Histogram(PATIENCE_S))
    step_s: Histograms = field(default_factory=lambda: Histograms("tool"))
    approval_s: Histogram = field(default_factory=lambda: Histogram(PATIENCE_S))
    doubt_s: Histogram = field(default_factory=Histogram)
    recovery_s: Histogram = field(default_factory=Histogram)
    seal_s: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class CallTimes:
    """A call under way; times in seconds since 1970, None where it is not so."""

    tool: str = ""
    node: str = ""
    tried: str = ""
    """The invocation_id of the latest try."""
    invocation_id: str = ""
    """Of the try in charge; empty where none is."""
    worker: tuple[str, str] | None = None
    started_s: float | None = None
    doubted_s: float | None = None
    gone_s: float | None = None
    """Since when the log says that its worker has ended, or that nobody knows of it."""


@dataclass(slots=True)
class JobTimes:
    """What is under way in a job."""

    created_s: float | None = None
    ended_s: float | None = None
    calls: dict[str, CallTimes] = field(default_factory=dict[str, CallTimes])
    asked: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """Keys whose approval is asked for, and since when."""
    parked: set[str] = field(default_factory=set[str])

    def span(self, finished: Fact) -> tuple[CallTimes, float, float] | None:
        """The call that a tool_invocation_finished ends, and its try's start and end; None where they aren't known."""
        call, ended_s = self.calls.get(finished.key), _seconds(finished)
        if call is None or call.tried != finished.invocation_id or call.started_s is None or ended_s is None:
            return None
        return call, call.started_s, max(call.started_s, ended_s)


class JobMetrics:
    """Of one partition: `measures` is the whole process's, `asked` and `parked` are what waits for people here now."""

    def __init__(self, measures: JobMeasures) -> None:
        self._measures = measures
        self._counts = measures
        self._nowhere = JobMeasures()
        self.asked = 0
        self.parked = 0

    def take(self, times: JobTimes, tenant: str, fact: Fact, *, is_news: bool) -> None:
        """The next fact of a job; one that is no news is followed, and not counted."""
        taker = self._TAKERS.get(fact.type)
        if taker is not None:
            self._counts = self._measures if is_news else self._nowhere
            taker(self, times, tenant, fact)

    def _created(self, times: JobTimes, tenant: str, fact: Fact) -> None:
        times.created_s = _seconds(fact)
        self._counts.created.add(tenant)

    def _started(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        call = times.calls.get(fact.key)
        if call is None:
            call = times.calls[fact.key] = CallTimes()
        elif call.invocation_id:
            if call.invocation_id != fact.invocation_id:
                self._counts.prevented.add("race")
            return
        now_s = _seconds(fact)
        if call.gone_s is not None:
            _add(self._counts.recovery_s, call.gone_s, now_s)
        call.tool, call.node, call.worker = fact.text("tool_name"), fact.node, fact.worker
        call.tried = call.invocation_id = fact.invocation_id
        call.started_s, call.doubted_s, call.gone_s = now_s, None, None

    def _finished(self, times: JobTimes, tenant: str, fact: Fact) -> None:
        call = times.calls.get(fact.key)
        if call is None or call.invocation_id != fact.invocation_id:
            return
        now_s, via = _seconds(fact), fact.text("via")
        self._counts.calls.add(fact.outcome, call.tool)
        if via in _OWN_WORD and call.started_s is not None and now_s is not None:
            self._counts.step_s.add(call.tool, now_s - call.started_s)
        if via in _FOUND and fact.outcome in SUCCESSES:
            self._counts.prevented.add(via)
        if call.doubted_s is not None or times.parked:
            self._settle(times, call, fact, now_s)
        call.invocation_id = ""
        usage = fact.body.get("usage")
        if isinstance(usage, dict):
            self._spent(cast("Mapping[str, Any]", usage), tenant)

    def _reopened(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        call = times.calls.get(fact.key)
        if call is not None and call.invocation_id == fact.invocation_id:
            self._settle(times, call, fact, _seconds(fact))
            call.invocation_id = ""

    def _settle(self, times: JobTimes, call: CallTimes, fact: Fact, now_s: float | None) -> None:
        _add(self._counts.doubt_s, call.doubted_s, now_s)
        call.doubted_s = None
        if fact.key in times.parked:
            times.parked.discard(fact.key)
            self.parked -= 1

    def _in_doubt(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        call = times.calls.get(fact.key)
        if call is None or call.invocation_id != fact.invocation_id:
            return
        now_s = _seconds(fact)
        call.doubted_s = now_s if call.doubted_s is None else call.doubted_s
        if fact.body.get("returned") is not True:
            call.gone_s = now_s if call.gone_s is None else call.gone_s

    def _parked(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        if times.ended_s is None and fact.key in times.calls and fact.key not in times.parked:
            times.parked.add(fact.key)
            self.parked += 1

    def _worker_ended(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        now_s = _seconds(fact)
        for call in times.calls.values():
            if call.invocation_id and call.worker == fact.worker and call.gone_s is None:
                call.gone_s = now_s

    def _committed(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        call = times.calls.pop(fact.key, None)
        if call is not None:
            self._counts.effects.add(call.tool)

    def _rejected(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        if fact.text("reason") == RejectReason.DUPLICATE_OF:
            self._counts.prevented.add("equal_call")
        self._answer(times, fact.key)

    def _asked(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        if times.ended_s is None and fact.key not in times.asked:
            times.asked[fact.key] = _seconds(fact)
            self.asked += 1

    def _decided(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        _add(self._counts.approval_s, times.asked.get(fact.key), _seconds(fact))
        self._answer(times, fact.key)

    def _answer(self, times: JobTimes, key: str) -> None:
        if key in times.asked:
            del times.asked[key]
            self.asked -= 1

    def _node_finished(self, _times: JobTimes, tenant: str, fact: Fact) -> None:
        self._counts.steps.add(fact.text("result_type"), tenant)

    def _ended(self, times: JobTimes, tenant: str, fact: Fact) -> None:
        if times.ended_s is not None:
            return
        times.ended_s = _seconds(fact) or 0.0
        self._counts.ended.add(fact.type.removeprefix("job_"), tenant)
        _add(self._counts.job_s, times.created_s, _seconds(fact))
        self.forget(times)

    def _sealed(self, times: JobTimes, _tenant: str, fact: Fact) -> None:
        self._counts.seals.add()
        _add(self._counts.seal_s, times.ended_s, _seconds(fact))
        self.forget(times)

    def forget(self, times: JobTimes) -> None:
        """Nobody waits in a job that is over."""
        self.asked -= len(times.asked)
        self.parked -= len(times.parked)
        times.asked.clear()
        times.parked.clear()

    def _spent(self, usage: Mapping[str, Any], tenant: str) -> None:
        model = usage.get("model")
        named = model if isinstance(model, str) else ""
        for direction in ("input", "output"):
            tokens = usage.get(f"{direction}_tokens")
            if type(tokens) is int and 0 < tokens <= _MOST_TOKENS:
                self._counts.tokens.add(direction, named, tenant, amount=tokens)
        cost = usage.get("cost_usd")
        if isinstance(cost, int | float) and 0 < cost <= _MOST_DOLLARS:
            self._counts.microdollars.add(named, tenant, amount=round(cost * 1e6))

    _TAKERS: ClassVar[Mapping[str, Callable[..., None]]] = {
        ev.JobCreated.event_type: _created,
        ev.ToolInvocationStarted.event_type: _started,
        ev.ToolInvocationFinished.event_type: _finished,
        ev.InvocationReopened.event_type: _reopened,
        ev.InvocationInDoubt.event_type: _in_doubt,
        ev.InvocationParked.event_type: _parked,
        ev.WorkerEnded.event_type: _worker_ended,
        ev.CommandCommitted.event_type: _committed,
        ev.InvocationRejected.event_type: _rejected,
        ev.ApprovalRequested.event_type: _asked,
        ev.ApprovalDecided.event_type: _decided,
        ev.NodeFinished.event_type: _node_finished,
        ev.JobSealed.event_type: _sealed,
        **dict.fromkeys(TERMINAL, _ended),
    }


def _seconds(fact: Fact) -> float | None:
    """When its writer says that it was written, in seconds since 1970; None where that is no time."""
    try:
        moment = datetime.fromisoformat(fact.time)
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None


def _add(histogram: Histogram, since_s: float | None, now_s: float | None) -> None:
    if since_s is not None and now_s is not None:
        histogram.add(now_s - since_s)
