"""What a job did, compared with the external system when somebody asks, or by the clock (docs/confirmation.md)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from aetheris.gateway.command_writer import CommandWriter
from aetheris.gateway.commands import Reply
from aetheris.gateway.core import reconciliations
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import NotBegun
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.feed import FeedClosed, JobFeed
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.registry import Registry
from aetheris.protocol.api import Reconciled
from aetheris.protocol.fold.job_log import LoggedEvent, Sequence, next_logged_event
from aetheris.protocol.messages.commands import Reconcile
from aetheris.protocol.planning.confirmation import recorded_effects, silent_effects


class Reconciliation:
    """Asks the verifier through the log, and collects what it says of each resource."""

    def __init__(self, reader: JobReader, writer: CommandWriter, registry: Registry, deadlines: Deadlines) -> None:
        self._reader = reader
        self._writer = writer
        self._registry = registry
        self._deadlines = deadlines

    async def reconcile(self, caller: Principal, job_id: str, *, asked: bool = True) -> Reply[Reconciled]:
        """Compare what a job did with the external system; answered where every effect was answered for.

        Where nobody `asked` for it, nothing is written about a job that did nothing to compare.

        Raises:
            NotFound, Unavailable.
        """
        async with self._reader.listening(job_id) as news:
            async with self._deadlines.deadline():
                row = await self._reader.row(caller, job_id)
                end = await self._reader.end(job_id)
                records, numbers = await self._reader.records(row, end), Sequence()
                logged = await asyncio.to_thread(lambda: [next_logged_event(numbers, record) for record in records])
                job, effects = await asyncio.to_thread(recorded_effects, logged)
                if job is None:
                    raise NotBegun
                silent = len(silent_effects(job, logged))
                wanted = reconciliations.wanted(effects, silent, self._registry.verifies)
                as_of = reconciliations.last_of_effects(records)
                command = Reconcile(
                    job_id=job_id, by=caller.id, tenant=caller.tenant, birth=job.creation_offset, as_of=as_of
                )
                command_id = await self._writer.send(command, row.trace) if asked or wanted.effects else ""
            reported = await self._confirmations(_logged(news, numbers, end), command_id, wanted.effects)
        return Reply(len(reported) == wanted.effects, reconciliations.answer(job_id, command_id, wanted, reported))

    async def _confirmations(
        self, news: AsyncIterator[LoggedEvent], command_id: str, count: int
    ) -> list[dict[str, Any]]:
        """What the prober says of each resource, each once, as far as it is said in time."""
        body: dict[str, dict[str, Any]] = {}
        with suppress(TimeoutError, FeedClosed):
            async with asyncio.timeout(self._writer.answer_s):
                while len(body) < count:
                    one = reconciliations.confirmation(await anext(news), command_id)
                    if one is not None:
                        body.setdefault(one["id"], one)
        return list(body.values())


async def _logged(news: JobFeed, numbers: Sequence, end: int) -> AsyncIterator[LoggedEvent]:
    """What comes behind `end`, judged by all that lies before it: whoever may append to the log could say it.

    Raises:
        FeedClosed.
    """
    while True:
        record = await news.get()
        if record.offset >= end:
            yield next_logged_event(numbers, record)
