"""Reading what jobs did from the log, and asking the verifier about it; also of jobs that are sealed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from aetheris.ledger.core.records import record_of
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.signing import born_of
from aetheris.protocol.fold.job_log import logged_events
from aetheris.protocol.fold.provenance import JobSigners
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import LedgerRecord, Reconcile, Verification
from aetheris.protocol.planning.confirmation import RecordedEffect, Tally, Verifies, question, recorded_effects, to_ask
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import LogError

_log = structlog.get_logger(__name__)

READ_WITHIN_S = 30.0

Send = Callable[[Sequence[Verification], JobSigners | None], Awaitable[None]]
"""Questions about one job, and by what its records are known, if they are signed."""


@dataclass(slots=True)
class _Open:
    """A question under way: what the ledger's record says where every resource of it is confirmed."""

    record: LedgerRecord
    tally: Tally


class Reconciler:
    """One partition's questions about recorded effects."""

    def __init__(self, partition: int, history: JobLogReader, verifies: Verifies, send: Send) -> None:
        self._partition = partition
        self._history = history
        self._verifies = verifies
        self._send = send
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._completing: set[asyncio.Task[None]] = set()
        self._open: dict[str, _Open] = {}

    def take_up(self, command: Reconcile, command_id: str, offset: int) -> None:
        """Ask about everything that the job did; `offset` is the command's, which is read again until it is done."""
        task = asyncio.create_task(self._reconcile(command, command_id))
        self._reading[offset] = task
        task.add_done_callback(lambda _: self._reading.pop(offset, None))

    def complete(self, asked: Verification, until: int, empty: Callable[[], None]) -> None:
        """Put the recorded resources into a question of the core, and ask; `empty` where the call changed none."""
        task = asyncio.create_task(self._complete(asked, until, empty))
        self._completing.add(task)
        task.add_done_callback(self._completing.discard)

    def hear(self, answer: ev.EffectConfirmed | ev.ConfirmationFailed, at: str) -> LedgerRecord | None:
        """The line that ledger.records gets where a question was answered with yes, by an event of the time `at`."""
        held = self._open.get(answer.ask)
        verdict = held.tally.take(answer) if held is not None else None
        if held is None or verdict is None:
            return None
        del self._open[answer.ask]
        confirmed = held.record.model_copy(update={"status": "confirmed", "confirmed_at": at})
        return confirmed if verdict == "confirmed" else None

    def oldest(self) -> int | None:
        """The offset of the oldest command that is not carried out."""
        return min(self._reading, default=None)

    async def close(self) -> None:
        """What is not asked yet, whoever comes next asks."""
        tasks = [*self._reading.values(), *self._completing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._history.close()

    async def _reconcile(self, command: Reconcile, command_id: str) -> None:
        found = await self._effects(command.job_id, command.birth, command.as_of + 1)
        if found is None:
            return
        job, effects, signers = found
        questions = [
            question(
                job,
                effect,
                started,
                ask=derived("reconcile", command_id, effect.key),
                mode="reconcile",
                caused_by=command_id,
            )
            for effect, started in to_ask(effects, self._verifies)
        ]
        self._expect(job, questions)
        await self._send(questions, signers)

    async def _complete(self, asked: Verification, until: int, empty: Callable[[], None]) -> None:
        found = await self._effects(asked.job_id, asked.birth, until)
        if found is None:
            return
        job, effects, signers = found
        changes = next((effect.changes for effect in effects if effect.key == asked.idempotency_key), ())
        if not changes:
            empty()
            return
        resources = tuple(change.model_dump(mode="json") for change in changes)
        whole = asked.model_copy(update={"resources": resources})
        self._expect(job, [whole])
        await self._send([whole], signers)

    async def _effects(
        self, job_id: str, creation_offset: int, until: int
    ) -> tuple[JobState, list[RecordedEffect], JobSigners | None] | None:
        """The job at `until`, its effects, and by what its records are known; None where the log can't be read now."""
        try:
            records = await self._history.read_job(job_id, self._partition, creation_offset, until, READ_WITHIN_S)
        except LogError as error:
            _log.error("not confirmed: the job could not be read", job_id=job_id, error=type(error).__name__)
            return None
        job, effects = await asyncio.to_thread(lambda: recorded_effects(logged_events(records)))
        return (job, effects, _signers(job, records)) if job is not None else None

    def _expect(self, job: JobState, questions: Sequence[Verification]) -> None:
        for one in questions:
            record = record_of(job, one.idempotency_key, job.last_offset)
            self._open[one.ask] = _Open(record, Tally())


def _signers(job: JobState, records: Iterable[Record]) -> JobSigners | None:
    """From the log alone: a job that is sealed may be forgotten by whoever judges what is new."""
    root = job.created.installation
    birth = next((one.value for one in records if one.offset == job.creation_offset), None)
    return JobSigners(root, born_of(birth)) if root is not None and birth is not None else None
