"""What a job did, compared with the external system when somebody asks, or by the clock (docs/confirmation.md)."""

import asyncio
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
from aetheris.protocol.fold.job_log import logged_events
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
                records = await self._reader.records(row, await self._reader.end(job_id))
                job, effects = await asyncio.to_thread(lambda: recorded_effects(logged_events(records)))
                if job is None:
                    raise NotBegun
                silent = len(silent_effects(job, logged_events(records)))
                wanted = reconciliations.wanted(effects, silent, self._registry.verifies)
                as_of = reconciliations.last_of_effects(records)
                command = Reconcile(
                    job_id=job_id, by=caller.id, tenant=caller.tenant, birth=job.creation_offset, as_of=as_of
                )
                command_id = await self._writer.send(command, row.trace) if asked or wanted.effects else ""
            reported = await self._confirmations(news, command_id, wanted.effects)
        return Reply(len(reported) == wanted.effects, reconciliations.answer(job_id, command_id, wanted, reported))

    async def _confirmations(self, news: JobFeed, command_id: str, count: int) -> list[dict[str, Any]]:
        """What the verifier says of each resource, each once, as far as it is said in time."""
        body: dict[str, dict[str, Any]] = {}
        with suppress(TimeoutError, FeedClosed):
            async with asyncio.timeout(self._writer.answer_s):
                while len(body) < count:
                    one = reconciliations.confirmation(await news.get(), command_id)
                    if one is not None:
                        body.setdefault(one["id"], one)
        return list(body.values())
