"""A stream of events says nothing more to who may not hear it any more."""

import asyncio
from collections.abc import AsyncGenerator

from aetheris.gateway.core.wire import Moved
from aetheris.gateway.routes.event_stream import event_stream


async def test_a_stream_ends_before_it_says_anything_to_a_revoked_token() -> None:
    counts = True
    coming: asyncio.Queue[list[Moved]] = asyncio.Queue()

    async def portions() -> AsyncGenerator[list[Moved]]:
        while True:
            yield await coming.get()

    stream = event_stream(portions(), 60.0, lambda: counts)
    assert b"stream" in await anext(stream)
    coming.put_nowait([])
    assert await anext(stream) == b""
    counts = False
    coming.put_nowait([])
    assert [said async for said in stream] == []
