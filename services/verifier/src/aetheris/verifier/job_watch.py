"""Shows what the log says of jobs to whoever asks for metrics."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.verifier.core.job_metrics import JobMeasures


class WatchedJobs(NamedTuple):
    """Of one partition, now."""

    live: int = 0
    asked: int = 0
    parked: int = 0
    oldest_end_s: float | None = None
    """When the job ended that waits longest for its seal, in seconds since 1970."""


Ask = Callable[[], Iterable[WatchedJobs]]
"""Each partition, from any thread."""


def show(measures: JobMeasures, ask: Ask, metrics: Metrics, clock: Clock) -> None:
    """All of a process."""
    for metric, counts in (
        (Metric.JOBS_CREATED, measures.created),
        (Metric.JOBS_ENDED, measures.ended),
        (Metric.STEPS, measures.steps),
        (Metric.CALLS, measures.calls),
        (Metric.EFFECTS, measures.effects),
        (Metric.PREVENTED, measures.prevented),
        (Metric.SEALS, measures.seals),
        (Metric.TOKENS, measures.tokens),
        (Metric.MODEL_COST, measures.microdollars),
    ):
        metrics.watch_numbers(metric, counts)
    for metric, histogram in (
        (Metric.JOB_DURATION, measures.job_s),
        (Metric.STEP_DURATION, measures.step_s),
        (Metric.APPROVAL_DURATION, measures.approval_s),
        (Metric.DOUBT_DURATION, measures.doubt_s),
        (Metric.RECOVERY_DURATION, measures.recovery_s),
        (Metric.SEAL_DURATION, measures.seal_s),
    ):
        metrics.watch_histograms(metric, histogram)
    metrics.watch(Metric.JOBS_LIVE, lambda: sum(one.live for one in ask()))
    metrics.watch(Metric.APPROVALS_OPEN, lambda: sum(one.asked for one in ask()))
    metrics.watch(Metric.PARKED_OPEN, lambda: sum(one.parked for one in ask()))
    metrics.watch(Metric.SEALS_LATE, lambda: _oldest_s(ask(), clock))


def _oldest_s(partitions: Iterable[WatchedJobs], clock: Clock) -> float:
    ends = [one.oldest_end_s for one in partitions if one.oldest_end_s is not None]
    return max(0.0, clock.now().timestamp() - min(ends)) if ends else 0.0
