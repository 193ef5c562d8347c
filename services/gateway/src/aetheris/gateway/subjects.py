"""People whose values are hidden: erased with their keys, enrolled anew, or on hold (docs/hidden-values.md)."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from pydantic import ValidationError

from aetheris.gateway.command_writer import SOURCE
from aetheris.gateway.commands import Reply
from aetheris.gateway.core import access, bodies
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem, NotFoundProblem, Problem, Unavailable
from aetheris.gateway.hidden_submissions import answered
from aetheris.gateway.order_writer import OrderWriter
from aetheris.gateway.verifier_proxy import VerifierProxy
from aetheris.protocol.api_operations import LoggedLine, SubjectBody, SubjectView
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.seal_lines import ERASURE_KEY, SubjectErasure
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.subjects.hidden_store import HiddenStore
from aetheris.runtime.subjects.kms import SubjectKeyError
from aetheris.runtime.subjects.subject_keys import ErasedSubject

_LOOK_AGAIN_S = 0.1
_ASKED_S = 2.0
"""So long the verifier is waited for: what it has to say follows."""
_AGAIN_S = 60.0
"""After which it is looked again for erasures of which nobody has told."""

_log = structlog.get_logger(__name__)


class Subjects:
    """Of a tenant, by their names, which nothing keeps."""

    def __init__(self, hiding: HiddenStore | None, writer: OrderWriter, verifier: VerifierProxy) -> None:
        self._hiding = hiding
        self._writer = writer
        self._deadlines = writer.deadlines
        self._verifier = verifier

    async def erase(self, caller: Principal, raw: bytes) -> Reply[SubjectView]:
        """Destroy a subject's key: nothing of it can be opened again. Again is the same.

        Answered where the log of seals has a line of it; else that follows, and asking again shows it.

        Raises:
            BadRequest, Forbidden, NotFound, Conflict, Unavailable.
        """
        wanted = bodies.read(SubjectBody, raw)
        tenant = access.in_tenant(caller, wanted.tenant).tenant
        async with self._deadlines.deadline():
            with answered():
                erased = await self._served().keys.erase(tenant, wanted.subject, _order(caller))
        if erased is None:
            raise NotFoundProblem("unknown_subject", "nothing was ever hidden for this subject")
        lines = await self._said(caller, erased) or await self._logged(caller, erased.k)
        return Reply(bool(lines), SubjectView(pseudonym=erased.k, erased=True, lines=tuple(lines)))

    async def enrol(self, caller: Principal, raw: bytes) -> SubjectView:
        """Let values of an erased subject be hidden again, under a fresh key.

        Raises:
            BadRequest, Forbidden, Conflict, Unavailable.
        """
        wanted = bodies.read(SubjectBody, raw)
        tenant = access.in_tenant(caller, wanted.tenant).tenant
        async with self._deadlines.deadline():
            with answered():
                erased = await self._served().keys.erased(tenant, wanted.subject)
        if erased is not None:  # a gateway may have died before it said so, and what follows forgets the pseudonym
            await self._said(caller, erased)
        async with self._deadlines.deadline():
            with answered():
                pseudonym = await self._served().keys.enrol_anew(tenant, wanted.subject)
        if pseudonym is None:
            raise ConflictProblem("not_erased", "this subject is not erased")
        return SubjectView(pseudonym=pseudonym, erased=False)

    async def hold(self, caller: Principal, raw: bytes) -> SubjectView:
        """Let nobody erase a subject, until it is released. Again is the same.

        Raises:
            BadRequest, Forbidden, Conflict, Unavailable.
        """
        wanted = bodies.read(SubjectBody, raw)
        tenant = access.in_tenant(caller, wanted.tenant).tenant
        async with self._deadlines.deadline():
            with answered():
                pseudonym = await self._served().keys.hold(tenant, wanted.subject)
        return SubjectView(pseudonym=pseudonym, erased=False, held=True)

    async def release(self, caller: Principal, raw: bytes) -> SubjectView:
        """End a subject's hold: it may be erased again.

        Raises:
            BadRequest, Forbidden, Conflict, Unavailable.
        """
        wanted = bodies.read(SubjectBody, raw)
        tenant = access.in_tenant(caller, wanted.tenant).tenant
        async with self._deadlines.deadline():
            with answered():
                pseudonym = await self._served().keys.release(tenant, wanted.subject)
        if pseudonym is None:
            raise ConflictProblem("not_held", "this subject is not on hold")
        return SubjectView(pseudonym=pseudonym, erased=False, held=False)

    async def end_erasures(self) -> None:
        """Tell of what a gateway has erased, or begun to, and died before it told anybody; until cancelled."""
        if self._hiding is None:
            return
        while True:
            for k in await _untold(self._hiding):
                try:
                    found = await self._hiding.keys.ended(k)
                    if found is not None:
                        await self._tell(found.erased, found.order)
                except (SubjectKeyError, Problem, ValidationError) as error:
                    _log.warning("an erasure can't be told yet", pseudonym=k, reason=type(error).__name__)
            await self._writer.clock.sleep(_AGAIN_S)

    async def _said(self, caller: Principal, erased: ErasedSubject) -> Sequence[LoggedLine]:
        """What the log of seals has of an erasure; where it has nothing, that is asked for."""
        lines = await self._lines(caller, erased.k)
        if not lines:
            await self._tell(erased, _order(caller))
        else:
            with answered():
                await self._served().keys.told(erased.k)
        return lines

    async def _tell(self, erased: ErasedSubject, order: Mapping[str, Any]) -> None:
        """Ask for a line of an erasure; raises Unavailable."""
        said = SubjectErasure.model_validate({"pseudonym": erased.k, "erased_at": erased.at, **order})
        record = draft(Topic.POLICIES, said, key=ERASURE_KEY, id=fresh_id(), source=SOURCE, time=self._writer.now())
        async with self._deadlines.deadline():
            await self._writer.append(record)
            with answered():
                await self._served().keys.told(erased.k)

    async def _logged(self, caller: Principal, pseudonym: str) -> Sequence[LoggedLine]:
        """What the log of seals has of it, as soon as there is something; nothing where that takes too long."""
        ends_s = self._writer.clock.monotonic() + self._writer.answer_s
        while not (lines := await self._lines(caller, pseudonym)) and self._writer.clock.monotonic() < ends_s:
            await self._writer.clock.sleep(_LOOK_AGAIN_S)
        return lines

    async def _lines(self, caller: Principal, pseudonym: str) -> Sequence[LoggedLine]:
        """What the log of seals has of it now; nothing where the verifier can't tell."""
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_ASKED_S):
                answer = await self._verifier.seals(caller, f"erasures/{pseudonym}", {})
            if answer.is_success:
                return [LoggedLine.model_validate(one) for one in answer.json()["lines"]]
        return ()

    def _served(self) -> HiddenStore:
        if self._hiding is None:
            raise ConflictProblem("personal_not_served", "nothing is hidden here: AETHERIS_SUBJECT_KEYS is not set")
        return self._hiding


def _order(caller: Principal) -> dict[str, Any]:
    """Who erases, as it is recorded."""
    return {"by": caller.id, "principal": caller.recorded.model_dump(mode="json", exclude_none=True)}


async def _untold(hiding: HiddenStore) -> Sequence[str]:
    try:
        return await hiding.keys.untold()
    except SubjectKeyError as error:
        _log.warning("whether erasures are to be told is not known", code=error.code)
        return ()
