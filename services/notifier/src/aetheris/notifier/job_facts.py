"""What the log says of a job, where a fact does not say it itself: read once, then read on."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from aetheris.notifier.core.notices import JobFacts
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_event
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import LogError
from aetheris.runtime.log.table import Table

MOST = 1000
"""Jobs that are remembered."""


class FactsUnread(Exception):
    """The job's log can't be read now: the fact is to come again."""


@dataclass(slots=True)
class _Known:
    tenant: str
    submitted_by: str
    following: int
    """The offset from which on nothing was read."""
    tools: set[str] = field(default_factory=set[str])
    called: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            match _event(record):
                case ev.PlanGenerated() as planned:
                    self.tools |= {one.tool for one in planned.graph.nodes if one.tool is not None}
                case ev.ToolInvocationStarted() as started:
                    self.called[started.invocation_id] = started.tool_name
                    self.tools.add(started.tool_name)
                case _:
                    pass
            self.following = max(self.following, record.offset + 1)


class JobLogFacts:
    """Of the jobs that were asked about last; each record of a job is read once."""

    def __init__(self, index: Table, history: JobLogReader) -> None:
        self._index = index
        self._history = history
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def of(self, job_id: str, partition: int, offset: int) -> JobFacts | None:
        """What is known of a job up to, and with, this offset; None where there is no such job.

        Raises:
            FactsUnread: it can't be said now.
        """
        known = self._known.pop(job_id, None) or self._begin(job_id)
        if known is None:
            return None
        if known.following <= offset:
            try:
                known.take(await self._history.read_job(job_id, partition, known.following, offset + 1))
            except (LogError, ValueError) as error:
                raise FactsUnread(type(error).__name__) from None
            known.following = max(known.following, offset + 1)
        self._known[job_id] = known
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return JobFacts(known.tenant, known.submitted_by, frozenset(known.tools), known.called)

    def _begin(self, job_id: str) -> _Known | None:
        line = self._index.get(job_id)
        if line is None:
            return None
        try:
            entry = JobIndexEntry.model_validate_json(line)
        except ValueError:  # it has ended, or is none
            return None
        return _Known(entry.tenant, entry.submitted_by, entry.birth)


async def caught_up(index: Table, within_s: float) -> None:
    """The index has all that it held when this was asked; raises FactsUnread."""
    try:
        async with asyncio.timeout(within_s):
            await index.caught_up()
    except (TimeoutError, LogError) as error:
        raise FactsUnread(type(error).__name__) from None


def _event(record: Record) -> ev.Event | None:
    try:
        found = decode_event(record)
    except Undecodable:
        return None
    return found.body if isinstance(found, Envelope) else None
