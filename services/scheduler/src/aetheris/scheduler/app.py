"""The composition root: everything that the scheduler consists of is made here; it writes to no topic."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import structlog
from aiokafka import ConsumerRecord
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage, Topic

from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.process.health import Health
from aetheris.runtime.process.installation import worker_name
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.scheduler.clockwork import RETRY_S, Clockwork
from aetheris.scheduler.core.told_starts import ToldStarts
from aetheris.scheduler.handlers import TopicMessage, TriggerHandler
from aetheris.scheduler.job_writer import JobWriter
from aetheris.scheduler.loaded_starts import LoadedStarts, StartsUnusable, TopicTrigger, WebhookTrigger, load
from aetheris.scheduler.settings import SchedulerSettings
from aetheris.scheduler.starts_teller import StartsTeller, tell_fault
from aetheris.sdk.faststream import broker_at, readable
from aetheris.sdk.keyed_jobs import KeyedJobs, NotTaken
from aetheris.sdk.received import GROUPS

_log = structlog.get_logger(__name__)


async def serve(settings: SchedulerSettings, stop: asyncio.Event) -> None:
    """Start jobs, until `stop` is set.

    Raises:
        StartsUnusable: naming the file, the line and the field.
        LoginUnusable, TlsUnusable, HttpTlsUnusable: what the settings name can't be used.
    """
    member, clock = worker_name(settings), SystemClock()
    starts = await _loaded(settings, member)
    told = ToldStarts(starts.schedules, (one.entry for one in starts.triggers), (one.entry for one in starts.webhooks))
    async with AsyncExitStack() as closing:
        metrics = Metrics("scheduler")
        closing.callback(metrics.close)
        health = Health(metrics.exposition)
        await health.start(settings.listen, settings.health_port)
        closing.push_async_callback(health.stop)
        jobs = KeyedJobs(settings.gateway_url, settings.gateway_token, settings.ca)
        closing.push_async_callback(jobs.close)
        health.add("service", lambda: "is stopping" if stop.is_set() else None)
        health.add("gateway", jobs.unready)
        await _connected(jobs, stop)
        teller = await closing.enter_async_context(_telling(settings, told, member))
        writer = JobWriter(jobs, metrics, told, clock, teller.changed.set)
        if starts.webhooks and not stop.is_set():
            await closing.enter_async_context(_listening(settings, starts.webhooks, writer))
        if starts.triggers and not stop.is_set():
            broker = broker_at(settings.kafka, tls_context(settings))
            for one in starts.triggers:
                _subscribe(broker, one, writer, member)
            await closing.enter_async_context(broker)
            await broker.start()
        freeze_memory()
        await Clockwork(starts.schedules, writer, clock).run(stop)


async def _loaded(settings: SchedulerSettings, member: str) -> LoadedStarts:
    """What starts jobs; people are told why there is nothing, where the gateway can be reached."""
    try:
        return load(settings.starts)
    except StartsUnusable as error:
        jobs = KeyedJobs(settings.gateway_url, settings.gateway_token, settings.ca)
        await tell_fault(jobs, member, str(error))
        await jobs.close()
        raise


@asynccontextmanager
async def _telling(settings: SchedulerSettings, told: ToldStarts, member: str) -> AsyncGenerator[StartsTeller]:
    """People are told by connections of their own: what becomes of those concerns no job."""
    jobs = KeyedJobs(settings.gateway_url, settings.gateway_token, settings.ca)
    teller = StartsTeller(jobs, told, member, SystemClock())
    telling = asyncio.create_task(teller.run())
    try:
        yield teller
    finally:
        telling.cancel()
        await asyncio.wait({telling})
        await jobs.close()


@asynccontextmanager
async def _listening(
    settings: SchedulerSettings, triggers: Sequence[WebhookTrigger], writer: JobWriter
) -> AsyncGenerator[None]:
    from aetheris.http_server.server import HttpServer  # noqa: PLC0415  a web server, where something is delivered
    from aetheris.scheduler.webhooks import webhooks  # noqa: PLC0415

    named = {one.entry.name: one for one in triggers}
    server = HttpServer.of(settings, webhooks(named, writer, SystemClock()))
    serving = asyncio.create_task(server.run())
    try:
        await server.listening()
        yield
    finally:
        server.stop()
        await serving


def _subscribe(broker: KafkaBroker, trigger: TopicTrigger, writer: JobWriter, member: str) -> None:
    handler = TriggerHandler(trigger, writer)

    async def decode(message: KafkaMessage) -> TopicMessage:
        raw = message.raw_message
        assert isinstance(raw, ConsumerRecord)  # noqa: S101  no batches are asked for
        return TopicMessage(raw.partition, raw.offset, raw.key, raw.value or b"")

    @broker.subscriber(
        Topic(trigger.entry.topic, declare=False),
        group_id=f"{GROUPS}scheduler.{trigger.entry.name}",
        group_instance_id=member,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
        no_reply=True,
        parser=readable,
        decoder=decode,
    )
    async def came(message: TopicMessage) -> None:
        await handler.came(message)


async def _connected(jobs: KeyedJobs, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            return await jobs.connect()
        except NotTaken as error:
            _log.warning("waits for the gateway", code=str(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), RETRY_S)
    return None
