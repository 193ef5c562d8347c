"""Commands into the log, and the events that answer them."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import structlog

from aetheris.gateway.core import answers
from aetheris.gateway.core.answers import ObservedEvent
from aetheris.gateway.core.problems import TooLarge, Unavailable
from aetheris.gateway.feed import FeedClosed, JobFeed
from aetheris.gateway.message_signer import MessageSigner
from aetheris.gateway.views import timestamp
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobCommand, Submit
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.submission_numbers import Receipt
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.process.withheld import write_all
from aetheris.runtime.telemetry.spans import Span, SpanKind
from aetheris.runtime.telemetry.tracer import Telemetry, whole

_log = structlog.get_logger(__name__)

SOURCE = "aetheris/gateway"
_RECEIPT = (("ce_type", b"io.aetheris.receipt.v1"),)
"""It lies in no topic: who signs it asks for no more."""


class CommandWriter:
    """Appends to jobs.commands."""

    def __init__(
        self,
        appender: Appender,
        clock: Clock,
        telemetry: Telemetry,
        *,
        answer_s: float,
        request_s: float,
        keys: RecordKeys = UNSIGNED,
        place: Callable[[JobCommand], int | None] = lambda _command: None,
    ) -> None:
        """`place`: the partition that a command is laid into; the one that its job's hash points at, if not told."""
        self._appender = appender
        self._place = place
        self._signer = MessageSigner(keys)
        self._clock = clock
        self._telemetry = telemetry
        self._request_s = request_s
        self.answer_s = answer_s
        """How long an answer is waited for."""

    async def send(self, command: JobCommand, trace: bool | None, command_id: str | None = None) -> str:
        """Append a command, `trace` being its job's option; its ce_id.

        Raises:
            TooLarge, Unavailable, LogError.
        """
        self.check()
        ce_id = command_id if command_id is not None else fresh_id()
        await self._write(command, trace, ce_id)
        return ce_id

    async def send_with_receipt(self, command: Submit, trace: bool | None, command_id: str, receipt: Receipt) -> str:
        """Append a submission; the receipt, signed together with it. `check` was called before.

        Raises:
            TooLarge, LogError; Unavailable: the certificate has ended, and with it this process.
        """
        key, value = receipt.job_id.encode(), receipt.model_dump_json(exclude_none=True).encode()
        (signed,) = await self._write(command, trace, command_id, Draft(Topic.JOBS_COMMANDS, key, value, _RECEIPT))
        return signed.value.decode()

    def check(self) -> None:
        """Whether there is use in queueing more; raises Unavailable."""
        if self._appender.stuck_s() > self._request_s:
            raise Unavailable("log_unreachable", "Kafka takes no records")

    @property
    def signs(self) -> bool:
        """Whether its commands are signed."""
        return self._signer.signs

    async def _write(self, command: JobCommand, trace: bool | None, command_id: str, *beside: Draft) -> Sequence[Draft]:
        """Append a command, and sign with it what is `beside` it."""
        with self._traced(command, trace) as span:
            record = self._draft(command, command_id, span.traceparent)
            signed, *others = await self._signer.together([record, *beside])
            for refusal in await write_all(self._appender, [(signed,)]):
                _log.error("a command is refused", job_id=command.job_id, reason=refusal.why)
                raise TooLarge
        return others

    def _draft(self, command: JobCommand, command_id: str, traceparent: bytes | None = None) -> Draft:
        return draft(
            Topic.JOBS_COMMANDS,
            command,
            key=command.job_id,
            id=command_id,
            source=SOURCE,
            time=timestamp(self._clock.now()),
            traceparent=traceparent,
            partition=self._place(command),
        )

    async def hear(
        self, news: JobFeed, since: int, settles: Callable[[ObservedEvent], bool], within_s: float | None = None
    ) -> ObservedEvent | None:
        """The first event from the offset `since` on that settles it; None if none came in time.

        Raises:
            Conflict: what came first contradicts it.
        """
        try:
            async with asyncio.timeout(self.answer_s if within_s is None else within_s):
                while True:
                    record = await news.get()
                    observed = answers.observed_event(record)
                    if record.offset >= since and settles(observed):
                        return observed
        except (TimeoutError, FeedClosed):
            return None

    def _traced(self, command: JobCommand, trace: bool | None) -> AbstractContextManager[Span]:
        """In the job's own trace, whose root a submission is."""
        kind = type(command).__name__.lower()
        attributes = {"aetheris.job_id": command.job_id}
        return self._telemetry.span(
            whole(command.job_id, trace),
            f"command {kind}",
            kind=SpanKind.SERVER,
            attributes=attributes,
            root=isinstance(command, Submit) and not command.repeats,
        )
