"""Opening aiokafka's clients without a leak, and closing them within a deadline (their stop() may hang: #1101)."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from aetheris.streams.log import LogUnreachable

_log = structlog.get_logger(__name__)

_START_S = 2.0


async def open_client(client: AIOKafkaConsumer | AIOKafkaProducer, bootstrap: str) -> None:
    """Start it; whatever keeps it from starting, it is closed.

    Raises:
        LogUnreachable: no broker answers.
    """
    starting = asyncio.create_task(client.start())  # cancelled in the middle, it would leak its connection
    started = False
    try:
        await asyncio.shield(starting)
        started = True
    except (KafkaError, OSError) as error:
        raise LogUnreachable(f"no broker at {bootstrap}: {type(error).__name__}") from None
    finally:
        if not started:
            await asyncio.wait({starting}, timeout=_START_S)
            await _attempt(client.stop(), 1.0, "client that did not start")


async def close_consumer(consumer: AIOKafkaConsumer, deadline_s: float) -> None:
    """Stop it; past the deadline it is left to die with its connections."""
    await _attempt(consumer.stop(), deadline_s, "consumer")


async def close_producer(producer: AIOKafkaProducer, deadline_s: float) -> None:
    """Stop it without sending what it still holds: first its sender, so that nothing is sent late."""
    sender = producer._sender  # pyright: ignore[reportPrivateUsage]  it has no public way to abandon
    held = producer._message_accumulator  # pyright: ignore[reportPrivateUsage]
    if sender.sender_task is not None:
        sender.sender_task.cancel()
    await _attempt(producer.client.close(), deadline_s, "producer's connections")
    held.fail_all(KafkaError("abandoned"))
    await _attempt(producer.stop(), deadline_s, "producer")


async def _attempt(closing: Coroutine[Any, Any, None], deadline_s: float, what: str) -> None:
    """In a task of its own: aiokafka lets the cancellation of its own tasks escape to whoever closes it."""
    task = asyncio.create_task(closing)
    await asyncio.wait({task}, timeout=deadline_s)
    if not task.done():
        task.cancel()
        _log.warning("did not stop in time", part=what, deadline_s=deadline_s)
    elif not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("failed to stop", part=what, error=type(error).__name__)
