"""The gateway as commands call it: its refusals become exits."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from aetheris.cli.console import CommandError, Exit
from aetheris.cli.local import target
from aetheris.sdk.client import ApiError, BadRequest, Client, NotFound, Unauthorized, Unreachable

_NEXT_STEPS = {
    Exit.UNREACHABLE: ". Is it up? `aetheris up`, `aetheris doctor`.",
    Exit.UNKNOWN_JOB: ". `aetheris jobs` lists them.",
}


@contextmanager
def connected(data: Path, who: str | None = None) -> Generator[Client]:
    """A client of the gateway of a data folder, by the token of that name (None: the first one).

    Raises:
        CommandError: the gateway said no, or nobody answered.
        NotRunningError: there is none.
    """
    where = target(data, who)
    transport = httpx.HTTPTransport() if where.local else None  # past any proxy
    with Client(where.url, where.token, transport=transport) as client:
        try:
            yield client
        except ApiError as error:
            ends = _exit_of(error)
            message = f"{error.message.rstrip('.')}{_NEXT_STEPS.get(ends, '')}"
            raise CommandError(ends, error.code, message, **error.details) from None


def _exit_of(error: ApiError) -> Exit:
    match error:
        case BadRequest() | Unauthorized():
            return Exit.BAD_INPUT
        case NotFound():
            return Exit.UNKNOWN_JOB
        case Unreachable():
            return Exit.UNREACHABLE
        case _:
            return Exit.FAILED
