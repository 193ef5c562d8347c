"""Many requests at once: none holds up the others, or what goes on beside them."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from aetheris.gateway.api import Turns

MANY = 50


async def _never() -> Message:
    raise AssertionError


async def _nowhere(_message: Message) -> None:
    raise AssertionError


async def test_requests_that_come_together_begin_one_after_another() -> None:
    begun: list[int] = []
    passes = 0

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        begun.append(passes)

    turns = Turns(app)
    asked = [asyncio.ensure_future(turns({"type": "http"}, _never, _nowhere)) for _ in range(MANY)]
    while not all(one.done() for one in asked):
        passes += 1
        await asyncio.sleep(0)
    assert len(begun) == len(set(begun)) == MANY


async def test_who_fails_or_leaves_keeps_no_turn() -> None:
    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        if scope["type"] == "wrong":
            raise KeyError

    turns = Turns(app)
    first, leaving, last = (
        asyncio.ensure_future(turns({"type": kind}, _never, _nowhere)) for kind in ("wrong", "http", "http")
    )
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(KeyError):
        await first
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await last
