"""A job's events as Server-Sent Events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing

import structlog
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from starlette.types import Receive, Scope, Send

from aetheris.gateway.core import wire
from aetheris.gateway.core.wire import Moved
from aetheris.gateway.feed import FeedClosed

_log = structlog.get_logger(__name__)


_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class EventStreamResponse(StreamingResponse):
    """A stream of events, sent within `held`; what that raises is the answer instead."""

    def __init__(self, stream: AsyncIterator[bytes], held: AbstractContextManager[None]) -> None:
        super().__init__(stream, media_type="text/event-stream", headers=_HEADERS)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._held:
            await super().__call__(scope, receive, send)


async def event_stream(
    portions: AsyncIterator[list[Moved]], keepalive_s: float, counts: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The stream's bytes; a comment whenever nothing was said for a while.

    It ends before anything is said to who may not hear it any more: whose token `counts` no longer.
    """
    yield format_sse_event(comment="stream", retry=1000)
    async with aclosing(_paced(portions, keepalive_s)) as events:
        try:
            async for portion in events:
                if not counts():
                    return
                yield format_sse_event(comment="alive") if portion is None else b"".join(map(wire.sse_bytes, portion))
        except FeedClosed:
            return
        except Exception as error:  # noqa: BLE001  the answer has begun: the client resumes
            _log.warning("event stream broke", error=type(error).__name__)


async def _paced(portions: AsyncIterator[list[Moved]], pause_s: float) -> AsyncGenerator[list[Moved] | None]:
    """The events, and None whenever none came for `pause_s`."""
    coming: asyncio.Future[list[Moved]] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(portions))
            done, _ = await asyncio.wait({coming}, timeout=pause_s)
            if not done:
                yield None
                continue
            ready, coming = coming, None
            try:
                portion = ready.result()
            except StopAsyncIteration:
                return
            yield portion
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})
