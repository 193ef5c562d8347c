"""What `aetheris subscribe` prints is events, line by line, whatever happens on the way to them."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import structlog

from aetheris.cli.commands import subscribe
from aetheris.sdk.subscription import Subscription


class Quiet:
    """A subscription to which nothing comes."""

    async def events(self, *, until_now: bool) -> AsyncIterator[Any]:  # noqa: ARG002  the subscription's signature
        for nothing in ():
            yield nothing


@asynccontextmanager
async def _warned(*_: Any, **__: Any) -> AsyncGenerator[Subscription]:
    structlog.get_logger("aetheris.runtime").warning("no answer", part="reader")
    yield cast("Subscription", Quiet())


def test_a_warning_of_the_client_is_no_line_among_the_events(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    monkeypatch.setattr(subscribe, "subscribed", _warned)
    try:
        subscribe.subscribe(until_now=True)
    finally:
        structlog.reset_defaults()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert json.loads(printed.err)["event"] == "no answer"
