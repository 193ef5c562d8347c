"""Occasions as jobs: each submitted under its key, once."""

from collections.abc import Mapping
from typing import Any

import structlog

from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.scheduler.core.job_starts import OccasionRefused, filled
from aetheris.sdk.keyed_jobs import JobRefused, KeyedJobs

_log = structlog.get_logger(__name__)


class JobWriter:
    """One job for each occasion, however often that is asked for; one that can't be holds up nothing."""

    def __init__(self, jobs: KeyedJobs, metrics: Metrics) -> None:
        self._jobs = jobs
        self._metrics = metrics

    async def start(self, name: str, plan: Mapping[str, Any], occasion: Mapping[str, Any], key: str) -> str | None:
        """Submit what is started: it is in the log once this returns; raises NotTaken.

        Returns the code of a refusal where no such job can be submitted, now or ever.
        """
        try:
            await self._jobs.submit(filled(plan, occasion), key)
        except OccasionRefused as error:
            return self.refused(name, "occasion", why=str(error))
        except JobRefused as refused:  # also where the plan has changed since: the job of this occasion stands
            return self.refused(name, refused.code, job_id=refused.job_id)
        return None

    def refused(self, name: str, code: str, **more: Any) -> str:
        """What starts no job is logged and counted; its code."""
        _log.error("starts no job", start=name, code=code, **more)
        self._metrics.count(Metric.STARTS_REFUSED, start=name)
        return code
