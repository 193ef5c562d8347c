"""Commands into the log, and the events that answer them."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

import structlog

from aetheris.gateway.core import answers
from aetheris.gateway.core.answers import ObservedEvent
from aetheris.gateway.core.problems import TooLarge, Unavailable
from aetheris.gateway.feed import FeedClosed, JobFeed
from aetheris.gateway.message_signer import MessageSigner
from aetheris.gateway.views import timestamp
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobCommand, Submit
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.process.withheld import write_all
from aetheris.runtime.telemetry.spans import Span, SpanKind
from aetheris.runtime.telemetry.tracer import Telemetry, whole

_log = structlog.get_logger(__name__)

SOURCE = "aetheris/gateway"


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
    ) -> None:
        self._appender = appender
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
        if self._appender.stuck_s() > self._request_s:  # no use in queueing more behind what nobody takes
            raise Unavailable("log_unreachable", "Kafka takes no records")
        ce_id = command_id if command_id is not None else fresh_id()
        with self._traced(command, trace) as span:
            record = draft(
                Topic.JOBS_COMMANDS,
                command,
                key=command.job_id,
                id=ce_id,
                source=SOURCE,
                time=timestamp(self._clock.now()),
                traceparent=span.traceparent,
            )
            for refusal in await write_all(self._appender, [(await self._signer.signed(record),)]):
                _log.error("a command is refused", job_id=command.job_id, reason=refusal.why)
                raise TooLarge
        return ce_id

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
            root=isinstance(command, Submit),
        )
