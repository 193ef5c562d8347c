"""Opening aiokafka's clients without a leak, and closing them within a deadline (their stop() may hang: #1101)."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from aetheris.runtime.log.interface import LogUnreachable

_log = structlog.get_logger(__name__)

_START_S = 2.0


async def open_client(client: AIOKafkaConsumer, bootstrap: str) -> None:
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


async def _attempt(closing: Coroutine[Any, Any, None], deadline_s: float, what: str) -> None:
    """In a task of its own: aiokafka lets the cancellation of its own tasks escape to whoever closes it."""
    task = asyncio.create_task(closing)
    await asyncio.wait({task}, timeout=deadline_s)
    if not task.done():
        task.cancel()
        _log.warning("did not stop in time", part=what, deadline_s=deadline_s)
    elif not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("failed to stop", part=what, error=type(error).__name__)
