"""Notices as jobs: submitted, and cancelled. Nothing is read of them."""

import structlog

from aetheris.notifier.core.notices import OPTIONS, NoticeJob
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.sdk.keyed_jobs import JobRefused, KeyedJobs

_log = structlog.get_logger(__name__)

_TAKEN = "idempotency_conflict"


class NoticeWriter:
    """One job for each notice, however often that is asked for."""

    def __init__(self, jobs: KeyedJobs, metrics: Metrics) -> None:
        self._jobs = jobs
        self._metrics = metrics

    async def submit(self, job: NoticeJob) -> None:
        """Submit a notice's job: it is in the log once this returns, or can never be submitted; raises NotTaken."""
        try:
            await self._jobs.submit(job.plan, job.key, OPTIONS)
        except JobRefused as refused:
            # told before, by another text or route; or the key is somebody else's, who may submit in our tenant
            reason = "key_taken" if refused.code == _TAKEN else "refused"
            _log.error("a notice that no job tells", reason=reason, code=refused.code, job_id=refused.job_id)
            self._metrics.count(Metric.NOTICES_UNTOLD, reason=reason)

    async def cancel(self, key: str) -> None:
        """What is not told yet need not be; raises NotTaken."""
        await self._jobs.cancel(key, "answered")

    def unjudged(self, job_id: str, error: Exception) -> None:
        """What nobody is told of, as it could not be judged: it holds up nothing behind it."""
        _log.error("a fact that could not be told of", job_id=job_id, error=type(error).__name__)
        self._metrics.count(Metric.NOTICES_UNTOLD, reason="unjudged")
