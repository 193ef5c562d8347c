"""The composition root: everything that the archiver consists of is made here; it writes to no topic."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import structlog
from aiokafka import ConsumerRecord
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage, TopicPartition

from aetheris.archiver.core.sealed_jobs import SealedJobs
from aetheris.archiver.job_records import READERS, SealedJobReader
from aetheris.archiver.parquet_store import ParquetStore, store_at
from aetheris.archiver.settings import ArchiverSettings
from aetheris.proofs.trust import BadKeys, TrustedKey, read_keys
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.base.refusal import SettingInvalid, StartRefused
from aetheris.runtime.blobs.archive import JobArchive
from aetheris.runtime.blobs.location import blobs_at
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.log.archive_lines import ArchiveLines
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.log.job_lines import JobLines
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.health import Health
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.sdk.faststream import broker_at

PUBLISHED = ("seal.pub", "seal-keys.json")
"""Where a data folder has the public keys of its verifier, below `keys`: the one that signs now, and all."""
_BATCH = 500
"""Lines that are taken at a time."""
_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class ParquetMissing(StartRefused):
    """What writes Parquet is not installed: pip install 'aetheris-archiver[parquet]'."""

    code = "parquet_missing"


class SealKeysUnusable(StartRefused):
    """The public keys that seals count by can't be read: set AETHERIS_SEAL_KEYS, then start again."""

    code = "seal_keys_unusable"


async def serve(settings: ArchiverSettings, stop: asyncio.Event) -> None:
    """Write sealed jobs, until `stop` is set.

    Raises:
        SettingInvalid, ParquetMissing, SealKeysUnusable, BlobsRefused.
        LoginUnusable, TlsUnusable: what the settings name can't be used.
        LinesMissing, LogGap: the log lacks what it keeps for ever.
    """
    if not settings.parquet:
        raise SettingInvalid("AETHERIS_PARQUET: missing")
    if find_spec("pyarrow") is None:
        raise ParquetMissing("pyarrow is missing: pip install 'aetheris-archiver[parquet]', or 'aetheris-cli[sql]'")
    from aetheris.archiver.handlers import SealHandler  # noqa: PLC0415  pyarrow is asked for first

    async with AsyncExitStack() as closing:
        metrics = Metrics("archiver")
        closing.callback(metrics.close)
        health = Health(metrics.exposition)
        await health.start(settings.listen, settings.health_port)
        closing.push_async_callback(health.stop)
        health.add("service", lambda: "is stopping" if stop.is_set() else None)
        log = await closing.enter_async_context(_log_of(settings, health, stop))
        if log is None:
            return
        keys = await _keys(settings, stop)
        store = store_at(settings.parquet, settings.prefix)
        await store.check()
        index, lines = Table(log, Topic.JOBS_INDEX, JobLines()), Table(log, Topic.JOBS_ARCHIVE, ArchiveLines())
        health.add("index", index.unready)
        health.add("archive", lines.unready)
        await asyncio.gather(index.load(), lines.load())
        archive = JobArchive(blobs_at(settings.blobs, settings.data, settings.prefix), lines.get)
        history = JobLogReader(log, readers=READERS, archive=archive)
        closing.push_async_callback(history.close)
        handler = SealHandler(
            SealedJobs(keys),
            SealedJobReader(log, index, history),
            ParquetStore(store),
            SystemClock(),
            metrics,
            every_s=settings.parquet_every_s,
            payloads=settings.parquet_payloads,
        )
        health.add("parquet", handler.unready)
        following = [asyncio.create_task(one.run()) for one in (index, lines)]
        stopping = asyncio.create_task(stop.wait())
        failed = asyncio.get_running_loop().create_future()
        broker = broker_at(settings.kafka, tls_context(settings))
        _subscribe(broker, settings.prefix, handler.came, failed)
        beginning = asyncio.create_task(handler.begin())
        await asyncio.wait({beginning, stopping}, return_when=asyncio.FIRST_COMPLETED)
        freeze_memory()
        tasks = [*following, beginning]
        if not stop.is_set():
            writing = asyncio.create_task(handler.run(stop))
            tasks.append(writing)
            async with broker:
                await broker.start()
                await asyncio.wait({*following, writing, stopping, failed}, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
        await _ended([*tasks, stopping, failed])


async def _ended(tasks: "Sequence[asyncio.Future[None] | asyncio.Task[bool]]") -> None:
    """None of them goes on; raises what one of them failed of."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


def _subscribe(
    broker: KafkaBroker,
    prefix: str,
    came: "Callable[[Sequence[ConsumerRecord[bytes, bytes]]], Awaitable[None]]",
    failed: "asyncio.Future[None]",
) -> None:
    """From its first line on, at each start, in no group: what was written the store says, and not Kafka."""

    async def decode(message: KafkaMessage) -> object:
        return message.raw_message

    @broker.subscriber(
        partitions=[TopicPartition(in_kafka(prefix) + Topic.JOBS_SEALS, 0, declare=False)],
        batch=True,
        max_records=_BATCH,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.MANUAL,
        no_reply=True,
        decoder=decode,
    )
    async def sealed(lines: object) -> None:
        try:
            await came(lines if isinstance(lines, tuple) else (lines,))  # pyright: ignore[reportArgumentType]
        except Exception as error:
            if not failed.done():
                failed.set_exception(error)
            raise


async def _keys(settings: ArchiverSettings, stop: asyncio.Event) -> Sequence[TrustedKey]:
    """The public keys; those of the data folder are awaited: its verifier publishes one when it first starts."""
    if settings.seal_keys is not None:
        return _read(settings.seal_keys)
    published, *listed = (settings.data / "keys" / name for name in PUBLISHED)
    while not published.exists() and not stop.is_set():
        _log.warning("waits for the verifier's public key")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _RETRY_S)
    known = [key for path in (published, *listed) if path.exists() for key in _read(path)]
    return list({key.key_id: key for key in known}.values())


def _read(path: Path) -> Sequence[TrustedKey]:
    try:
        return read_keys(path.read_bytes())
    except OSError as error:
        raise SealKeysUnusable(f"{path}: {error.strerror}") from None
    except BadKeys as error:
        raise SealKeysUnusable(f"{path}: {error}") from None


@asynccontextmanager
async def _log_of(settings: ArchiverSettings, health: Health, stop: asyncio.Event) -> AsyncGenerator[KafkaLog | None]:
    """Kafka, once it answers; None where `stop` is set before."""
    log = KafkaLog(settings.kafka, settings.session_timeout_s, tls=tls_context(settings), prefix=settings.prefix)
    pulse = log.pulse()
    health.add("brokers", pulse.unready)
    while not stop.is_set():
        try:
            await log.start()
            break
        except LogUnreachable as error:
            _log.warning("waits", error=type(error).__name__)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _RETRY_S)
    if stop.is_set():
        yield None
        return
    beating = asyncio.create_task(pulse.run())
    try:
        yield log
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await log.stop()
