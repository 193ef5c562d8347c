"""The hidden values of a job, opened for who may see payloads, each with what shows that it is the recorded one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aetheris.gateway.core.cursors import cursor_at, number_at
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.job_reader import JobReader
from aetheris.protocol.api_operations import OpeningList, OpeningView
from aetheris.protocol.base.hidden_values import MARK, HiddenPlace, recorded_places
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import text_of
from aetheris.runtime.blobs.store import BlobError, BlobsUnreachable
from aetheris.runtime.subjects.hidden_store import HiddenStore, opening
from aetheris.runtime.subjects.kms import SubjectErased, SubjectKeyError, SubjectKeysAway

MOST_VALUES = 1_000
MOST_BYTES = 8 * 1024 * 1024
"""Of an answer: hidden values that are looked at, and what is opened of them, as JSON; the cursor leads on."""


@dataclass(slots=True)
class _Opened:
    """What has been looked at so far."""

    openings: list[OpeningView] = field(default_factory=list[OpeningView])
    size: int = 0
    erased: int = 0
    left_out: int = 0

    @property
    def count(self) -> int:
        return len(self.openings) + self.erased + self.left_out

    @property
    def is_full(self) -> bool:
        return self.count >= MOST_VALUES or self.size >= MOST_BYTES


class JobOpenings:
    """Reads a job's records, and opens what they hide."""

    def __init__(self, hiding: HiddenStore | None, reader: JobReader, deadlines: Deadlines) -> None:
        self._hiding = hiding
        self._reader = reader
        self._deadlines = deadlines

    async def of_job(self, caller: Principal, job_id: str, cursor: str | None = None) -> OpeningList:
        """Each hidden value once, in the order in which they stand in the log, behind `cursor`.

        Raises:
            BadRequest, NotFound, Forbidden, Unavailable.
        """
        listed = f"openings {job_id}"
        begin = number_at(cursor, caller.tenant, listed) if cursor is not None else 0
        async with self._deadlines.deadline():
            row = await self._reader.row(caller, job_id)
            records = await self._reader.records(row, await self._reader.end(job_id))
            found = _hidden(records)
            opened = _Opened()
            for event_id, place in found[begin:]:
                if opened.is_full:
                    break
                await self._open(row.tenant, job_id, event_id, place, opened)
        following = begin + opened.count
        return OpeningList(
            openings=tuple(opened.openings),
            hidden=len(found),
            erased=opened.erased,
            left_out=opened.left_out,
            cursor=cursor_at(str(following), caller.tenant, listed) if following < len(found) else None,
        )

    async def _open(self, tenant: str, job_id: str, event_id: str, place: HiddenPlace, opened: _Opened) -> None:
        if self._hiding is None:
            opened.left_out += 1
            return
        try:
            value, keys = await self._hiding.opened(tenant, job_id, place.value)
        except (SubjectKeysAway, BlobsUnreachable) as error:
            raise Unavailable(error.code, "what opens hidden values does not answer: try again") from None
        except SubjectErased:
            opened.erased += 1
        except (SubjectKeyError, BlobError):
            opened.left_out += 1
        else:
            salt = opening(keys, tenant, job_id, value)
            view = OpeningView(event_id=event_id, at=place.at, c=place.value.c, salt=salt, value=value)
            opened.openings.append(view)
            opened.size += len(json.dumps(value))


def _hidden(records: Sequence[Record]) -> list[tuple[str, HiddenPlace]]:
    """Where each value stands first: (the id of the event, the place in it)."""
    found: dict[str, tuple[str, HiddenPlace]] = {}
    for record in records:
        if MARK not in record.value:
            continue
        try:
            body: Any = json.loads(record.value)
        except ValueError:
            continue
        for place in recorded_places(body):
            found.setdefault(place.value.c, (text_of(record.header("ce_id")), place))
    return list(found.values())
