"""Submissions into the log, each with its number, and their receipts out (docs/receipts.md)."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from aetheris.gateway.command_writer import CommandWriter
from aetheris.gateway.core.problems import TooLarge
from aetheris.gateway.core.submission_numbers import SubmissionNumbers
from aetheris.gateway.views import timestamp
from aetheris.protocol.base.ids import derived
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.submission_numbers import Receipt, ReceiptVoid, SubmissionNumber
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_salt

R = TypeVar("R", Receipt, ReceiptVoid)

_log = structlog.get_logger(__name__)


class SubmissionWriter:
    """A number that was taken is written to the end, whether or not its client still waits, or made void."""

    def __init__(self, writer: CommandWriter, partition_of: Callable[[str], int], clock: Clock) -> None:
        """`partition_of`: that of a job."""
        self._writer = writer
        self._partition_of = partition_of
        self._clock = clock
        self._numbers = SubmissionNumbers(fresh_salt())
        self._writing: set[asyncio.Task[str]] = set()

    async def send(self, command: Submit, trace: bool | None) -> str | None:
        """Append a submission; its receipt, None where this gateway signs nothing.

        Raises:
            TooLarge, Unavailable, LogError.
        """
        command_id = derived("command", command.job_id, "submit")
        if not self._writer.signs:
            await self._writer.send(command, trace, command_id)
            return None
        return await self._send(command, self._next(command), trace, command_id)

    async def send_again(self, repeat: Submit, trace: bool | None) -> str | None:
        """The same for one that was taken before; nothing is appended where there would be no receipt."""
        if not self._writer.signs:
            return None
        number = self._next(repeat)
        command_id = derived("command", repeat.job_id, "repeat", number.gateway, str(number.number))
        return await self._send(repeat, number, trace, command_id)

    def _next(self, command: Submit) -> SubmissionNumber:
        self._writer.check()  # before: a number that is taken is written
        now, partition = timestamp(self._clock.now()), self._partition_of(command.job_id)
        return self._numbers.take(command.tenant, partition, now, fresh_salt())

    async def _send(self, command: Submit, number: SubmissionNumber, trace: bool | None, command_id: str) -> str:
        numbered = command.model_copy(update={"receipt": number})
        writing = asyncio.create_task(self._write(numbered, trace, command_id))
        self._writing.add(writing)
        writing.add_done_callback(self._written)
        return await asyncio.shield(writing)

    def _written(self, writing: asyncio.Task[str]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and (error := writing.exception()) is not None:
            _log.info("a submission was not written", reason=type(error).__name__)

    async def _write(self, command: Submit, trace: bool | None, command_id: str) -> str:
        try:
            return await self._writer.send_with_receipt(command, trace, command_id, _about(Receipt, command))
        except TooLarge:
            await self._writer.send(_about(ReceiptVoid, command), trace, derived(command_id, "void"))
            raise


def _about(kind: type[R], command: Submit) -> R:
    if command.receipt is None:
        raise ValueError("it has no number")
    return kind(
        job_id=command.job_id,
        by=command.by,
        tenant=command.tenant,
        request_hash=command.request_hash,
        receipt=command.receipt,
    )
