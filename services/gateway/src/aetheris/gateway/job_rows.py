"""A job's row, of whatever age: the views have it while it lives and for a time; then it is made of the log."""

from collections.abc import Iterable, Mapping

from aetheris.gateway.core.problems import Unavailable
from aetheris.gateway.feed import Feed
from aetheris.gateway.index import JobIndex
from aetheris.gateway.untaken import Untaken
from aetheris.gateway.views import Row, Views
from aetheris.protocol.fold.job_log import text_of
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_event
from aetheris.protocol.messages.events import JobCreated
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.job_lines import JobLine


class JobRows:
    """Finds rows."""

    def __init__(self, *, views: Views, index: JobIndex, untaken: Untaken, history: JobLogReader, feed: Feed) -> None:
        self._views = views
        self._index = index
        self._untaken = untaken
        self._history = history
        self._feed = feed

    async def find(self, job_id: str) -> Row | None:
        """The row of a job; None where there is no such job.

        Raises:
            ViewsLost, Unavailable, RedisUnavailable, LogError.
        """
        return await self.listed(job_id) or await self._untaken.find(job_id)

    async def listed(self, job_id: str) -> Row | None:
        """As `find`, of a job that was taken up, or submitted here.

        Raises:
            ViewsLost, Unavailable, RedisUnavailable, LogError.
        """
        return await self._views.job(job_id) or await self._old(job_id)

    async def listed_tenants(self, job_ids: Iterable[str]) -> Mapping[str, str]:
        """The tenants of those of the jobs that the views have.

        Raises:
            ViewsLost, RedisUnavailable.
        """
        return await self._views.tenants(job_ids)

    async def tenant(self, job_id: str) -> str | None:
        """Whose a job is; None where there is no such job.

        Raises:
            As `listed`.
        """
        row = await self.listed(job_id)
        return None if row is None else row.tenant

    async def _old(self, job_id: str) -> Row | None:
        line = self._index.line(job_id)
        if line is None:
            self._index.check_whole()
            return None
        (_, partition), _ = self._feed.place_of(job_id)
        at = line.birth
        for record in await self._history.read_job(job_id, partition, at, at + 1):
            try:
                found = decode_event(record)
            except Undecodable:
                continue
            if isinstance(found, Envelope) and isinstance(found.body, JobCreated):
                return _row(found.body, line, text_of(record.header("ce_time")))
        raise Unavailable("job_unreadable", "jobs.index names no creation of this job: the log and it disagree")


def _row(created: JobCreated, line: JobLine, created_at: str) -> Row:
    return Row(
        job_id=created.job_id,
        tenant=created.tenant,
        status=line.status,
        request_hash=line.request_hash,
        submitted_by=created.submitted_by,
        created_at=created_at,
        birth=line.birth,
        trace=None if created.options is None else created.options.trace,
        labels=created.labels or {},
    )
