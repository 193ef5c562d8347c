"""The audit topic, read for who may: page by page, in the order of the log."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, cast

from aetheris.gateway.access_log import PARTITION
from aetheris.gateway.core.cursors import cursor_at, number_at
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.deadlines import Deadlines
from aetheris.protocol.base.principals import Role
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.accesses import of_chain
from aetheris.runtime.log.interface import Log, Place
from aetheris.runtime.log.replay import replay

_PLACE: Place = (Topic.ACCESS_RECORDS, PARTITION)
_LIST = "accesses"


class AccessHistory:
    """Of every gateway; nothing is kept."""

    def __init__(self, log: Log, deadlines: Deadlines) -> None:
        self._log = log
        self._deadlines = deadlines

    async def page(self, caller: Principal, since: str | None, cursor: str | None, limit: int) -> dict[str, Any]:
        """{records, cursor, whole}: `whole` where they begin with the first that there ever was.

        Raises:
            BadRequest, Unavailable.
        """
        since_ms = _milliseconds(since)
        place = number_at(cursor, caller.tenant, _LIST) if cursor is not None else 0
        async with self._deadlines.deadline():
            begin = (await self._log.beginning_offsets([_PLACE]))[_PLACE]
            end = (await self._log.end_offsets([_PLACE]))[_PLACE]
            start = max(begin, place)
            if cursor is None and since_ms is not None:
                start = await self._first_since(since_ms, start, end)
            found = [record async for record in self._between(start, min(end, start + limit))]
        following = start + limit
        return {
            "records": [_shown(caller, record) for record in found],
            "cursor": cursor_at(str(following), caller.tenant, _LIST) if following < end else None,
            "whole": start == 0,
        }

    async def _first_since(self, since_ms: int, low: int, high: int) -> int:
        """The first offset whose record was written then or later: the brokers' times never go back by much."""
        while low < high:
            middle = (low + high) // 2
            async with aclosing(self._between(middle, middle + 1)) as records:
                record = await anext(records, None)
            if record is not None and record.timestamp_ms < since_ms:
                low = middle + 1
            else:
                high = middle
        return low

    async def _between(self, start: int, end: int) -> AsyncGenerator[Record]:
        async for records in replay(self._log, _PLACE, start, end):
            for record in records:
                if record.offset < end:
                    yield record


def _milliseconds(since: str | None) -> int | None:
    if since is None:
        return None
    try:
        found = datetime.fromisoformat(since)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise BadRequestProblem("bad_request", "since", "must be a time with its offset, as RFC 3339 has it")
    return int(found.timestamp() * 1000)


def _shown(caller: Principal, record: Record) -> Mapping[str, Any]:
    """As it lies there, for its tenants and for who administers them all; what is no record of ours as nothing."""
    try:
        written: object = json.loads(record.value)
    except ValueError:
        written = None
    if not isinstance(written, dict):
        return {"hidden": True}
    body = cast("dict[str, Any]", written)
    concerns = caller.tenant in (body.get("tenant"), body.get("other_tenant"))
    return body if Role.ADMINISTER in caller.roles or concerns else of_chain(body)
