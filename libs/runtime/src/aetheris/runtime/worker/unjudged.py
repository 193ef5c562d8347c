"""Telling an operator of jobs that a service fails to judge."""

import structlog

from aetheris.protocol.fold.unjudged import Unjudged
from aetheris.runtime.telemetry.metrics import Metric, Metrics

_log = structlog.get_logger(__name__)


def report_unjudged(unjudged: Unjudged, metrics: Metrics) -> None:
    """Log and count what failed since the last call: never the error's text, which may quote a payload."""
    for failure in unjudged.take() if unjudged.failures else ():
        _log.error("job not judged", job_id=failure.job_id, error=type(failure.error).__name__, at=failure.place)
        metrics.count(Metric.UNJUDGED, error=type(failure.error).__name__)
