"""People whose values are hidden: erased by destroying their keys, enrolled anew, or on hold (docs/hidden-values.md)."""

from aetheris.gateway.core import access, bodies
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem, NotFoundProblem
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.hidden_submissions import answered
from aetheris.protocol.api_operations import SubjectBody, SubjectView
from aetheris.runtime.subjects.hidden_store import HiddenStore


class Subjects:
    """Of a tenant, by their names, which nothing keeps."""

    def __init__(self, hiding: HiddenStore | None, deadlines: Deadlines) -> None:
        self._hiding = hiding
        self._deadlines = deadlines

    async def erase(self, caller: Principal, raw: bytes) -> SubjectView:
        """Destroy a subject's key: nothing of it can be opened again. Again is the same.

        Raises:
            BadRequest, Forbidden, NotFound, Conflict, Unavailable.
        """
        wanted = bodies.read(SubjectBody, raw)
        tenant = access.in_tenant(caller, wanted.tenant).tenant
        async with self._deadlines.deadline():
            with answered():
                erased = await self._served().keys.erase(tenant, wanted.subject)
        if erased is None:
            raise NotFoundProblem("unknown_subject", "nothing was ever hidden for this subject")
        return SubjectView(pseudonym=erased.k, erased=True)

    async def enrol(self, caller: Principal, raw: bytes) -> SubjectView:
        """Let values of an erased subject be hidden again, under a fresh key.

        Raises:
            BadRequest, Forbidden, Conflict, Unavailable.
        """
        wanted = bodies.read(SubjectBody, raw)
        tenant = access.in_tenant(caller, wanted.tenant).tenant
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

    def _served(self) -> HiddenStore:
        if self._hiding is None:
            raise ConflictProblem("personal_not_served", "nothing is hidden here: AETHERIS_SUBJECT_KEYS is not set")
        return self._hiding
