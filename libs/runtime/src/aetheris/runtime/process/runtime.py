"""What every service stands on, built in one place: topics, log, Redis, blobs, telemetry, metrics, health."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from ssl import SSLContext

import structlog

from aetheris.runtime.base.clock import Clock, SystemClock
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.blobs.location import blobs_at
from aetheris.runtime.blobs.store import Blobs
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.kafka.admin import check_broker, cluster_id, ensure_topics
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.kafka.topics import Assured
from aetheris.runtime.log.interface import Appender, Log, LogUnreachable
from aetheris.runtime.log.log_home import moved
from aetheris.runtime.process.health import Health
from aetheris.runtime.process.installation import claim
from aetheris.runtime.process.lifecycle import Stopped
from aetheris.runtime.process.settings import RuntimeSettings
from aetheris.runtime.process.watchdog import Watchdog, reported
from aetheris.runtime.process.withheld import Withheld
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.store_check import check_store
from aetheris.runtime.redis.wake_up import WakeUp
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.tracer import Telemetry

_log = structlog.get_logger(__name__)

_RETRY_PAUSE_S = 1.0

WATCH_S = 30.0
DOUBTED_S = 5.0
"""Pauses between two looks at what the brokers say of our topics, and before one that confirms a refusal."""

STUCK_AFTER_S = 10.0
"""An append that has waited longer makes a service unready."""


@dataclass(frozen=True)
class Runtime:
    """The parts that a composition root builds a service on."""

    service: str
    settings: RuntimeSettings
    log: Log
    appender: Appender
    withheld: Withheld
    """Appends too; where the brokers refuse a record for what it holds, only that record's job waits."""
    redis: Redis
    wake_up: WakeUp
    blobs: Blobs
    traffic: BlobTraffic
    """The same store, for whoever may not wait for it."""
    telemetry: Telemetry
    metrics: Metrics
    health: Health
    watchdog: Watchdog
    clock: Clock


@asynccontextmanager
async def runtime(
    settings: RuntimeSettings, service: str, stop: asyncio.Event | None = None, *, with_redis: bool = True
) -> AsyncGenerator[Runtime]:
    """Connect and listen; everything is closed in the opposite order.

    Without `with_redis` nobody asks Redis here: it is neither judged nor waited for, and need not be reachable.

    It is alive from the start, and not ready before the brokers answer, nor once `stop` is set.

    Raises:
        BlobsRefused: the bucket for large results is not there, or not for us.
        BrokerRefused: the brokers could lose or reorder what was acknowledged; in a group where they come to it later.
        ClockSkewed: their clock is too far from this machine's; the same.
        InstallationMixed: the data folder is another installation's.
        Stopped: `stop` was set before a broker answered.
        StoreRefused: Redis could throw effects away.
        TlsUnusable: the certificates that are set can't be used.
    """
    stop = asyncio.Event() if stop is None else stop
    claim(settings.data, settings.prefix)
    async with AsyncExitStack() as closing:
        telemetry = Telemetry(service, settings.trace_sample)
        closing.callback(telemetry.close)
        metrics = Metrics(service)
        closing.callback(metrics.close)
        health = Health(metrics.exposition)
        watchdog = Watchdog(reported(metrics))
        closing.enter_context(watchdog.watching())
        await health.start(settings.listen, settings.health_port)
        closing.push_async_callback(health.stop)
        tls = tls_context(settings)
        await _brokers(settings, tls, stop)
        await closing.enter_async_context(_watched(settings, tls))
        log = KafkaLog(settings.kafka, settings.session_timeout_s, tls=tls, prefix=settings.prefix)
        await log.start()
        closing.push_async_callback(log.stop)
        pulse = log.pulse()
        beating = asyncio.create_task(pulse.run())
        closing.push_async_callback(_ended, beating)
        appender = log.appender()
        await appender.start()
        closing.push_async_callback(appender.stop)
        withheld = Withheld(appender, SystemClock(), metrics)
        closing.push_async_callback(withheld.close)
        redis = Redis(settings.redis, prefix=settings.prefix)
        closing.push_async_callback(redis.close)
        if with_redis:
            await check_store(redis, dev=settings.dev)
            health.add("redis", lambda: redis.unready() or (None if settings.dev else redis.evicting()))
        blobs = blobs_at(settings.blobs, settings.data, settings.prefix)
        await blobs.check()
        traffic = BlobTraffic(blobs, SystemClock())
        health.report("blobs_away", traffic.reported)
        health.add("service", lambda: "is stopping" if stop.is_set() else None)
        health.add("brokers", pulse.unready)
        health.add("log", lambda: _why_stuck(appender))
        health.report("refused", withheld.reported)
        wake_up = WakeUp(redis)
        yield Runtime(
            service,
            settings,
            log,
            appender,
            withheld,
            redis,
            wake_up,
            blobs,
            traffic,
            telemetry,
            metrics,
            health,
            watchdog,
            SystemClock(),
        )


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _why_stuck(appender: Appender) -> str | None:
    refusals = appender.refusals()
    if refusals:
        return "; ".join(f"the brokers take nothing for {topic}: {why}" for topic, why in sorted(refusals.items()))
    return "an append waits for the brokers" if appender.stuck_s() > STUCK_AFTER_S else None


async def _brokers(settings: RuntimeSettings, tls: SSLContext | None, stop: asyncio.Event) -> None:
    """Wait until they answer, and may be relied on: an outage is no reason to be restarted again and again."""
    stopping = asyncio.create_task(stop.wait())
    checking = asyncio.create_task(_checked(settings, tls))
    try:
        await asyncio.wait({stopping, checking}, return_when=asyncio.FIRST_COMPLETED)
        if not checking.done():
            raise Stopped
        checking.result()
    finally:
        for task in (stopping, checking):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


@asynccontextmanager
async def _watched(settings: RuntimeSettings, tls: SSLContext | None) -> AsyncGenerator[None]:
    """Ends whatever lasts meanwhile once the brokers may be relied on no longer: topics can be altered at any time."""
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_watch(settings, tls))
        try:
            yield
        finally:
            watching.cancel()


async def _watch(settings: RuntimeSettings, tls: SSLContext | None) -> None:
    """Raises what is refused twice: a broker that has just started may know little.

    That is BrokerRefused, ClockSkewed, or LogMoved where a name leads to another cluster than at the first look.
    """
    doubts, first = 0, None
    while True:
        await asyncio.sleep(DOUBTED_S if doubts else WATCH_S)
        try:
            await _check(settings, tls)
            cluster = await cluster_id(settings.kafka, tls=tls)
            first = first or cluster
            if cluster not in (None, first):
                raise moved(f"{settings.kafka} was Kafka cluster {first}, and is {cluster}")
        except LogUnreachable:
            continue  # readiness says so
        except StartRefused as refused:
            if doubts:
                raise
            _log.warning("the brokers are to be relied on no longer", code=refused.code, reason=str(refused))
            doubts += 1
        else:
            doubts = 0


async def _check(settings: RuntimeSettings, tls: SSLContext | None) -> list[str]:
    return await check_broker(
        settings.kafka,
        settings.partitions,
        dev=settings.dev,
        tls=tls,
        prefix=settings.prefix,
        assured=Assured(settings.kafka_in_sync, settings.kafka_retention_days),
    )


async def _checked(settings: RuntimeSettings, tls: SSLContext | None) -> None:
    while True:
        try:
            if settings.dev:
                await ensure_topics(
                    settings.kafka, settings.partitions, settings.replication, tls=tls, prefix=settings.prefix
                )
            allowed = await _check(settings, tls)
        except LogUnreachable as error:
            _log.warning("waiting for the brokers", error=str(error))
            await asyncio.sleep(_RETRY_PAUSE_S)
        else:
            if allowed:
                _log.warning("not to be relied on (allowed by dev)", wrong=len(allowed), first=allowed[0])
            return
