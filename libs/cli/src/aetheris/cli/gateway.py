"""The gateway as commands call it: its refusals become exits."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from aetheris.cli.console import CommandError, Exit
from aetheris.cli.local import Target, target
from aetheris.cli.token_files import APPROVER
from aetheris.sdk.client import ApiError, AsyncClient, BadRequest, Client, ResourceNotFound, Unauthorized, Unreachable
from aetheris.sdk.client.calls import trusted

_LISTED = {"unknown_job": "jobs", "unknown_request": "approvals", "unknown_tool": "tools", "unknown_worker": "workers"}
"""Code of what is not there → the command that lists what is."""
_UNREACHABLE = ". Is it up? `aetheris up`, `aetheris doctor`."
_ROLE_MISSING = f". Of the folder's tokens `--as {APPROVER}` has every role but break_glass."


@contextmanager
def connected(data: Path, who: str | None = None) -> Generator[Client]:
    """A client of the gateway of a data folder, by the token of that name (None: the first one).

    Raises:
        CommandError: the gateway said no, or nobody answered.
        NotRunningError: there is none.
    """
    where = target(data, who)
    with _client(where) as client:
        try:
            yield client
        except ApiError as error:
            ends = _exit_of(error)
            message = f"{error.message.rstrip('.')}{_hint(error.code, ends, here=where.local)}"
            raise CommandError(ends, error.code, message, **error.details) from None


def async_client(where: Target) -> AsyncClient:
    """For those that wait for more than one thing at a time; one of this machine is asked past any proxy."""
    transport = httpx.AsyncHTTPTransport(verify=trusted(where.url)) if where.local else None
    return AsyncClient(where.url, where.token, transport=transport)


def _hint(code: str, ends: Exit, *, here: bool) -> str:
    if code in _LISTED:
        return f". `aetheris {_LISTED[code]}` lists them."
    if code == "missing_role" and here:
        return _ROLE_MISSING
    return _UNREACHABLE if ends is Exit.UNREACHABLE else ""


def _client(where: Target) -> Client:
    try:
        transport = httpx.HTTPTransport(verify=trusted(where.url)) if where.local else None  # past any proxy
        return Client(where.url, where.token, transport=transport)
    except OSError:
        raise CommandError(Exit.BAD_INPUT, "invalid_setting", "AETHERIS_CA names no readable PEM file") from None


def _exit_of(error: ApiError) -> Exit:
    match error:
        case BadRequest() | Unauthorized():
            return Exit.BAD_INPUT
        case ResourceNotFound():
            return Exit.UNKNOWN_JOB
        case Unreachable():
            return Exit.UNREACHABLE
        case _:
            return Exit.FAILED
