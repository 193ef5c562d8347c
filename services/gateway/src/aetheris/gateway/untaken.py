"""Submissions that only jobs.commands knows: Redis lost its list before the planner had taken them up."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

from aetheris.gateway.views import Row
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import text_of
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_message
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.log.interface import Log, Place
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay

LOOKED_BACK = 20_000
"""So many commands of a partition are looked at, at first; then what has come since. A planner is rarely so late."""
KEPT = 50_000
"""Submissions that are remembered."""


class Untaken:
    """Looks a job up among the newest commands; nothing is read before somebody asks for a job that isn't listed."""

    def __init__(self, log: Log, messages: SignedMessages | None = None) -> None:
        self._log = log
        self._messages = messages or SignedMessages()
        self._read: dict[Place, int] = {}
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self._reading = asyncio.Lock()

    async def find(self, job_id: str) -> Row | None:
        """The job as it was submitted; None where no command of late did.

        Raises:
            LogUnreachable: no answer from the brokers. LogGap.
        """
        number = partition_of(job_id, await self._log.partitions(Topic.JOBS_INDEX))  # as many as there were at first
        async with self._reading:
            await self._catch_up((str(Topic.JOBS_COMMANDS), number))
        return self._rows.get(job_id)

    async def _catch_up(self, place: Place) -> None:
        end = (await self._log.end_offsets([place]))[place]
        begin = self._read.get(place)
        if begin is None:
            begin = max((await self._log.beginning_offsets([place]))[place], end - LOOKED_BACK)
        async for records in replay(self._log, place, begin, end):
            self._keep(records)
            self._read[place] = records[-1].offset + 1
        self._read[place] = max(end, self._read.get(place, end))

    def _keep(self, records: Iterable[Record]) -> None:
        for record in records:
            row = _row_of(record, self._messages)
            if row is not None:
                self._rows.setdefault(row.job_id, row)
        while len(self._rows) > KEPT:
            self._rows.popitem(last=False)


def _row_of(record: Record, messages: SignedMessages) -> Row | None:
    try:
        envelope = decode_message(record)
    except Undecodable:
        return None
    if not isinstance(envelope, Envelope) or not isinstance(envelope.body, Submit):
        return None
    if not messages.counts(record.topic, envelope.body.type_name, record.key, record.value):
        return None
    command = envelope.body
    if command.repeats:
        return None
    return Row(
        job_id=command.job_id,
        tenant=command.tenant,
        status="submitted",
        request_hash=command.request_hash,
        submitted_by=command.by,
        created_at=text_of(record.header("ce_time")),
        trace=command.options.trace,
        labels=command.labels or {},
    )
