"""A fact becomes the jobs that tell of it; it is noted in Kafka once the gateway has taken all of them."""

import asyncio

import structlog

from aetheris.notifier.core import notices
from aetheris.notifier.core.notice_routes import NoticeRoutes
from aetheris.notifier.job_facts import FactsUnread, JobLogFacts
from aetheris.notifier.notice_writer import NoticeWriter
from aetheris.protocol.messages.events import Event
from aetheris.sdk.keyed_jobs import NotTaken
from aetheris.sdk.received import Received

_log = structlog.get_logger(__name__)

TYPES = frozenset(
    {
        "approval_requested",
        "approval_decided",
        "invocation_rejected",
        "job_waiting",
        "wait_completed",
        "invocation_parked",
        "invocation_reopened",
        "tool_invocation_finished",
    }
)
_PAUSE_S = 2.0
"""Before a fact comes again that could not be told of."""


class NoticeHandler:
    """Keeps nothing that a restart could lose: what it submits follows from the fact alone."""

    def __init__(self, routes: NoticeRoutes, writer: NoticeWriter, facts: JobLogFacts, console_url: str | None) -> None:
        self._routes = routes
        self._writer = writer
        self._facts = facts
        self._console_url = console_url
        self._later = tuple(routes.escalations())

    async def happened(self, fact: Received) -> None:
        """Tell who must act on it, or that nobody need any more.

        Raises:
            NotTaken, FactsUnread: not now; the same fact is to come again.
        """
        if fact.event is None or fact.event.job_id != fact.job_id:
            return
        try:
            await self._tell(fact, fact.event)
            await self._untell(fact.event)
        except (NotTaken, FactsUnread):
            await asyncio.sleep(_PAUSE_S)
            raise
        except Exception as error:  # noqa: BLE001  whatever is wrong with a fact concerns that fact
            self._writer.unjudged(fact.job_id, error)

    async def _tell(self, fact: Received, event: Event) -> None:
        facts = None
        if notices.needs_facts(event):
            facts = await self._facts.of(fact.job_id, fact.partition, fact.offset)
        matter = notices.matter_of(event, facts)
        if matter is None:
            return
        jobs = notices.notice_jobs(matter, fact.time, self._routes, self._console_url)
        if not jobs:
            _log.warning("nobody is told", job_id=matter.job_id, kind=matter.kind, tenant=matter.tenant)
        for job in jobs:
            await self._writer.submit(job)

    async def _untell(self, event: Event) -> None:
        """What would be told later, and need not be."""
        for subject in notices.over(event) if self._later else ():
            for step, channel in self._later:
                await self._writer.cancel(notices.key_of(subject, channel, step))
