"""Who was erased, in the log of seals: a gateway says so, and from then on nobody can say otherwise.

A line is written by whichever verifier audits partition 0. What is logged already is seen in the log itself, so whoever
comes next writes what the one before it has not.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import structlog
from pydantic import ValidationError

from aetheris.proofs.log_lines import erased_payload
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.seal_lines import ERASURE_KEY, ErasedSubjectLine, SubjectErasure
from aetheris.protocol.tables.signed_messages import IsTheirs
from aetheris.runtime.base.fresh_ids import fresh_salt
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.process.runtime import Runtime
from aetheris.runtime.process.withheld import write_all
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.seallog import SealLog, SealLogForked
from aetheris.verifier.token_key import KeyAway

SOURCE = "aetheris/verifier"
AGAIN_S = 5.0
"""After which what could not be logged, or is another's to log, is looked at again."""
_AT_ONCE = 500
"""Erasures that are asked for, and written, together: at a start all that ever were are asked for."""
_WRITERS = 0
"""The partition whose auditor writes."""

_log = structlog.get_logger(__name__)


class ErasureLines:
    """What `policies` says of erased persons, and the log of seals does not yet."""

    def __init__(
        self, parts: Runtime, worker: PartitionWorker, is_theirs: IsTheirs, keys: SealKeys, seals: SealLog
    ) -> None:
        """Before the worker's tables are loaded."""
        self._parts = parts
        self._worker = worker
        self._is_theirs = is_theirs
        self._keys = keys
        self._seals = seals
        self._waiting: dict[str, str] = {}
        """Pseudonym → when its key was destroyed."""
        self._news = asyncio.Event()
        worker.tables[Topic.POLICIES].on_change(self._take)

    async def run(self) -> None:
        """Log what is said, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._write()
            except (LogUnreachable, SealLogForked, KeyAway) as error:
                _log.warning("an erasure can't be logged yet", code=error.code, reason=str(error))
            if self._waiting:
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_S):
                        await self._news.wait()
                self._news.set()

    def _take(self, key: str, value: bytes | None) -> None:
        if key != ERASURE_KEY or value is None:
            return
        try:
            said = SubjectErasure.model_validate_json(value)
        except ValidationError:
            return
        if self._is_theirs(Topic.POLICIES, said.type_name, key.encode(), value):
            self._waiting.setdefault(said.pseudonym, said.erased_at)
            self._news.set()

    async def _write(self) -> None:
        waiting = tuple(self._waiting.items())
        for begin in range(0, len(waiting), _AT_ONCE):
            some = dict(waiting[begin : begin + _AT_ONCE])
            for pseudonym in await self._seals.logged_erasures(some):
                del some[pseudonym], self._waiting[pseudonym]
            if some and self._is_ours():
                for pseudonym in await self._append(some):
                    del self._waiting[pseudonym]

    def _is_ours(self) -> bool:
        return _WRITERS in self._worker.numbers

    async def _append(self, erased: Mapping[str, str]) -> list[str]:
        """Those that are in the log then; `erased`: pseudonym → when its key was destroyed."""
        lines = {pseudonym: await self._line(pseudonym, erased_at) for pseudonym, erased_at in erased.items()}
        refusals = await write_all(self._parts.appender, [(line,) for line in lines.values()])
        for refusal in refusals:
            _log.error("an erasure is refused", reason=refusal.why)
        refused = {line.value for refusal in refusals for line in refusal.group}
        return [pseudonym for pseudonym, line in lines.items() if line.value not in refused]

    async def _line(self, pseudonym: str, erased_at: str) -> Draft:
        at, salt = self._parts.clock.now().isoformat(), fresh_salt()
        sign = partial(self._keys.sign_line, erased_payload(pseudonym=pseudonym, erased_at=erased_at, at=at, salt=salt))
        signed = await asyncio.to_thread(sign) if self._keys.is_elsewhere else sign()
        line = ErasedSubjectLine.model_validate(signed)
        return draft(
            Topic.JOBS_SEALS, line, key=line.type_name, id=derived(line.type_name, salt), source=SOURCE, time=at
        )
