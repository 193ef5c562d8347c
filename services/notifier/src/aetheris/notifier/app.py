"""The composition root: everything that the notifier consists of is made here; it writes to no topic."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import structlog

from aetheris.notifier.handlers import TYPES, NoticeHandler
from aetheris.notifier.job_facts import JobLogFacts
from aetheris.notifier.loaded_routes import load
from aetheris.notifier.notice_writer import NoticeWriter
from aetheris.notifier.settings import NotifierSettings
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.log.job_lines import JobLines
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.health import Health
from aetheris.runtime.process.installation import worker_name
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.sdk.faststream import broker_at, job_events
from aetheris.sdk.keyed_jobs import KeyedJobs, NotTaken
from aetheris.sdk.received import Received

GROUP = "notifier"
"""The Kafka group is aetheris.subscriber.notifier."""
_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


async def serve(settings: NotifierSettings, stop: asyncio.Event) -> None:
    """Tell people what waits for them, until `stop` is set.

    Raises:
        NoticesUnusable: naming the file, the line and the field.
        LoginUnusable, TlsUnusable: what the settings name can't be used.
        LogGap: the log no longer has what was not read yet.
    """
    routes = load(settings.notices)
    member = worker_name(settings)
    async with AsyncExitStack() as closing:
        metrics = Metrics("notifier")
        closing.callback(metrics.close)
        health = Health(metrics.exposition)
        await health.start(settings.listen, settings.health_port)
        closing.push_async_callback(health.stop)
        jobs = KeyedJobs(settings.gateway_url, settings.gateway_token, settings.ca)
        closing.push_async_callback(jobs.close)
        health.add("service", lambda: "is stopping" if stop.is_set() else None)
        health.add("gateway", jobs.unready)
        log = await closing.enter_async_context(_log_of(settings, health, stop))
        if log is None or not await _until(jobs.connect, NotTaken, stop):
            return
        index = Table(log, Topic.JOBS_INDEX, JobLines())
        health.add("index", index.unready)
        await index.load()
        history = JobLogReader(log, readers=1)
        closing.push_async_callback(history.close)
        handler = NoticeHandler(routes, NoticeWriter(jobs, metrics), JobLogFacts(index, history), settings.console_url)
        broker = broker_at(settings.kafka, tls_context(settings))

        @job_events(broker, GROUP, TYPES, settings.prefix, member=member)
        async def happened(fact: Received) -> None:
            await handler.happened(fact)

        following = asyncio.create_task(index.run())
        stopping = asyncio.create_task(stop.wait())
        freeze_memory()
        async with broker:
            await broker.start()
            await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (following, stopping):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await following


@asynccontextmanager
async def _log_of(settings: NotifierSettings, health: Health, stop: asyncio.Event) -> AsyncGenerator[KafkaLog | None]:
    """Kafka, once it answers; None where `stop` is set before."""
    tls = tls_context(settings)
    log = KafkaLog(settings.kafka, settings.session_timeout_s, tls=tls, prefix=settings.prefix)
    pulse = log.pulse()
    health.add("brokers", pulse.unready)
    if not await _until(log.start, LogUnreachable, stop):
        yield None
        return
    beating = asyncio.create_task(pulse.run())
    try:
        yield log
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await log.stop()


async def _until(attempt: Callable[[], Awaitable[None]], failure: type[Exception], stop: asyncio.Event) -> bool:
    """Whether it worked, however often it failed before, and not `stop` was first."""
    while not stop.is_set():
        try:
            await attempt()
            return True
        except failure as error:
            _log.warning("waits", error=type(error).__name__)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _RETRY_S)
    return False
