"""What every service stands on, built in one place: topics, log, Redis, blobs, telemetry, metrics, health."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aetheris.streams.admin import check_broker, ensure_topics
from aetheris.streams.bell import Bell
from aetheris.streams.blobs import Blobs
from aetheris.streams.clock import Clock, SystemClock
from aetheris.streams.health import Health
from aetheris.streams.kafka.log import KafkaLog
from aetheris.streams.kafka.tls import tls_context
from aetheris.streams.log import Appender, Log
from aetheris.streams.metrics import Metrics
from aetheris.streams.redis import Redis
from aetheris.streams.safekeeping import check_store
from aetheris.streams.settings import RuntimeSettings
from aetheris.streams.telemetry import Telemetry

STUCK_AFTER_S = 10.0
"""An append that has waited longer makes a service unready."""


@dataclass(frozen=True)
class Runtime:
    """The parts that a composition root builds a service on."""

    service: str
    settings: RuntimeSettings
    log: Log
    appender: Appender
    redis: Redis
    bell: Bell
    blobs: Blobs
    telemetry: Telemetry
    metrics: Metrics
    health: Health
    clock: Clock


@asynccontextmanager
async def runtime(settings: RuntimeSettings, service: str) -> AsyncGenerator[Runtime]:
    """Connect and listen; everything is closed in the opposite order.

    Raises:
        BrokerRefused: the brokers could lose or reorder what was acknowledged.
        LogUnreachable: no broker answers.
        StoreRefused: Redis could throw effects away.
        TlsUnusable: the certificates that are set can't be used.
    """
    async with AsyncExitStack() as closing:
        health = Health()
        telemetry = Telemetry(service, settings.trace_sample)
        closing.callback(telemetry.close)
        metrics = Metrics(service)
        closing.callback(metrics.close)
        await health.start(settings.listen, settings.health_port)
        closing.push_async_callback(health.stop)
        tls = tls_context(settings)
        if settings.dev:
            await ensure_topics(settings.kafka, settings.partitions, tls=tls)
        await check_broker(settings.kafka, settings.partitions, dev=settings.dev, tls=tls)
        log = KafkaLog(settings.kafka, settings.session_timeout_s, tls=tls)
        await log.start()
        closing.push_async_callback(log.stop)
        appender = log.appender()
        await appender.start()
        closing.push_async_callback(appender.stop)
        redis = Redis(settings.redis)
        closing.push_async_callback(redis.close)
        await check_store(redis, dev=settings.dev)
        health.add("log", lambda: "an append waits for the brokers" if appender.stuck_s() > STUCK_AFTER_S else None)
        health.add("redis", redis.unready)
        blobs = Blobs(settings.data / "blobs")
        bell = Bell(redis)
        yield Runtime(service, settings, log, appender, redis, bell, blobs, telemetry, metrics, health, SystemClock())
