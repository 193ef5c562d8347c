"""Occasions as jobs: each submitted under its key, once."""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.scheduler.core.job_starts import OccasionRefused, filled
from aetheris.scheduler.core.told_starts import StartSource, ToldStarts
from aetheris.sdk.keyed_jobs import JobRefused, KeyedJobs, NotTaken

_log = structlog.get_logger(__name__)


class JobWriter:
    """One job for each occasion, however often that is asked for; one that can't be holds up nothing.

    `changed` is called when people are to be told something else.
    """

    def __init__(
        self, jobs: KeyedJobs, metrics: Metrics, told: ToldStarts, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._jobs = jobs
        self._metrics = metrics
        self._told = told
        self._clock = clock
        self._changed = changed

    async def start(
        self, source: StartSource, plan: Mapping[str, Any], occasion: Mapping[str, Any], key: str
    ) -> str | None:
        """Submit what is started: it is in the log once this returns; raises NotTaken.

        Returns the code of a refusal where no such job can be submitted, now or ever.
        """
        try:
            job_id = await self._jobs.submit(filled(plan, occasion), key)
        except OccasionRefused as error:
            return self.refused(source, occasion, "occasion", why=str(error))
        except JobRefused as refused:  # also where the plan has changed since: the job of this occasion stands
            return self.refused(source, occasion, refused.code, job_id=refused.job_id)
        except NotTaken as error:
            if self._told.waits(source, str(error)):
                self._changed()
            raise
        if self._told.started(source, occasion, job_id, self._clock.now()):
            self._changed()
        return None

    def refused(self, source: StartSource, occasion: Mapping[str, Any], code: str, **more: Any) -> str:
        """What starts no job is logged, counted and told; its code."""
        place = {name: occasion[name] for name in _PLACE if name in occasion}
        _log.error("starts no job", start=source.name, code=code, **place, **more)
        self._metrics.count(Metric.STARTS_REFUSED, start=source.name)
        self._told.refused(source, occasion, code, self._clock.now())
        self._changed()
        return code


_PLACE = ("topic", "partition", "offset", "delivery")
"""Of an occasion, what the log says."""
