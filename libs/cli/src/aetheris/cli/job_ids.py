"""A job's id as it may be typed: whole, or its beginning."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aetheris.cli.console import CommandError, Exit, progress
from aetheris.cli.gateway import connected
from aetheris.protocol.base.ids import check_name
from aetheris.sdk.client import Client, ResourceNotFound

LOOKED_THROUGH = 1_000
"""So many of the newest jobs a beginning is looked for in."""
SHORTEST = 4
_PAGE = 200
_NAMED = 5
_WHOLE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@contextmanager
def of_job(given: str, data: Path, who: str | None = None, tenant: str | None = None) -> Generator[tuple[Client, str]]:
    """A client of the gateway of a data folder, and the whole id of the job that is meant, of the caller's tenant or
    of the one that is named.

    Raises:
        CommandError: as `connected`; several jobs begin so.
        InvalidName: it can't be a job's id, nor the beginning of one.
        NotRunningError: there is no gateway.
    """
    check_name(given, "ID")
    with connected(data, who) as client:
        yield client, whole_id(client, given, tenant)


def whole_id(client: Client, given: str, tenant: str | None = None) -> str:
    """The id of the job that is meant; what is no job's beginning is left as it is, for the gateway to refuse.

    Raises:
        CommandError: several jobs begin so; names them.
        InvalidName: it can't be a job's id, nor the beginning of one.
    """
    check_name(given, "ID")
    if _WHOLE.fullmatch(given) or len(given) < SHORTEST:
        return given
    found = [job_id for job_id in _newest(client, tenant) if job_id.startswith(given)]
    if len(found) > 1 and given not in found:
        raise _ambiguous(given, found)
    if len(found) != 1 or found[0] == given:
        return given
    progress("job", found[0])
    return found[0]


def _newest(client: Client, tenant: str | None) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while len(found) < LOOKED_THROUGH:
        try:
            page = client.jobs(tenant=tenant, cursor=cursor, limit=_PAGE)
        except ResourceNotFound:
            return found
        found += [one.job_id for one in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    return found


def _ambiguous(given: str, found: list[str]) -> CommandError:
    named = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    return CommandError(
        Exit.BAD_INPUT, "ambiguous_id", f"ID: {len(found)} jobs begin with {given}: {named}", field="ID"
    )
