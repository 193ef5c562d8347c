"""Submissions, answers and signals with personal values: hidden before they reach the log (docs/hidden-values.md)."""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aetheris.gateway.core import personal_arguments
from aetheris.gateway.core.problems import ConflictProblem, Unavailable
from aetheris.protocol.base.hidden_values import put_at
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import RegistryEntry, Submit
from aetheris.protocol.planning.personal_fields import PersonalValue
from aetheris.runtime.blobs.store import BlobsUnreachable
from aetheris.runtime.subjects.hidden_store import HiddenStore, SealedValue, sealed
from aetheris.runtime.subjects.kms import SubjectErased, SubjectHeld, SubjectKeyError

TakeRoom = Callable[[Submit], Awaitable[None]]
"""Whether a submission's job may be created; raises TooMany."""

NO_KEYS = "nothing is hidden here: AETHERIS_SUBJECT_KEYS is not set"

MOST_SUBJECTS = 100
"""Of one submission: each that is new is a key, kept for good before anything of the submission is taken."""


class HiddenSubmissions:
    """Hides what is personal; without a store of keys such submissions are refused."""

    def __init__(self, hiding: HiddenStore | None) -> None:
        self._hiding = hiding

    @staticmethod
    def are_in(command: Submit, registry: Mapping[str, RegistryEntry]) -> bool:
        """Whether anything of a submission is personal.

        Raises:
            BadRequest: a value can't be hidden where it stands.
        """
        return bool(personal_arguments.personal_arguments(command.plan or {}, registry))

    async def hide(
        self, command: Submit, raw: bytes, registry: Mapping[str, RegistryEntry], take_room: TakeRoom
    ) -> tuple[Submit, Sequence[SealedValue]]:
        """(the command as it may be written, the ciphertexts that must be kept before).

        `take_room` is asked before anybody gets a key: that is kept for good, whatever becomes of the submission.

        Raises:
            BadRequest: a value can't be hidden where it stands.
            Conflict: a subject was erased.
            TooMany, Unavailable.
        """
        found = personal_arguments.personal_arguments(command.plan or {}, registry)
        if not found:
            return command, ()
        if self._hiding is None:
            raise personal_arguments.refusal(found[0].field, NO_KEYS)
        if len({one.value.subject for one in found}) > MOST_SUBJECTS:
            raise personal_arguments.refusal("plan", f"values of more than {MOST_SUBJECTS} subjects")
        await take_room(command)
        hidden = await self._sealed(self._hiding, command.tenant, command.job_id, [one.value for one in found])
        values = [one.value for one in hidden]
        return personal_arguments.hidden_submission(command, raw, found, values), hidden

    async def hide_answer(
        self, tenant: str, job_id: str, form: Mapping[str, Any], data: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Sequence[SealedValue]]:
        """(what was filled in of a form, as it may be written; the ciphertexts that must be kept before).

        Raises:
            BadRequest, Conflict, Unavailable: as `hide`.
        """
        found = personal_arguments.personal_answers(form, data)
        return await self._in_place(tenant, job_id, "data", dict(data), found)

    async def hide_signal(self, job: JobState, correlation_key: str, payload: Any) -> tuple[Any, Sequence[SealedValue]]:
        """(a signal's payload, as it may be written; the ciphertexts that must be kept before).

        Raises:
            BadRequest, Conflict, Unavailable: as `hide`.
        """
        found = personal_arguments.signalled(job, correlation_key, payload)
        return await self._in_place(job.created.tenant, job.job_id, "payload", payload, found)

    async def _in_place(
        self, tenant: str, job_id: str, field: str, said: Any, found: Sequence[PersonalValue]
    ) -> tuple[Any, Sequence[SealedValue]]:
        if not found:
            return said, ()
        if self._hiding is None:
            raise personal_arguments.refusal(f"{field}{found[0].at}", NO_KEYS)
        hidden = await self._sealed(self._hiding, tenant, job_id, found)
        for one, kept in zip(found, hidden, strict=True):
            said = put_at(said, one.at, kept.value.json())
        return said, hidden

    async def _sealed(
        self, hiding: HiddenStore, tenant: str, job_id: str, values: Sequence[PersonalValue]
    ) -> list[SealedValue]:
        with answered():
            keys = await hiding.keys.enrolled(tenant, dict.fromkeys(one.subject for one in values))
        held = [(keys[one.subject], one.value) for one in values]
        return [sealed({key.k: key.key}, tenant, job_id, value) for key, value in held]

    async def keep(self, hidden: Sequence[SealedValue]) -> None:
        """Keep the ciphertexts; raises Unavailable."""
        if not hidden or self._hiding is None:
            return
        try:
            await self._hiding.keep(hidden)
        except BlobsUnreachable:
            raise Unavailable("blobs_unreachable", "the store of blobs does not answer: try again") from None


@contextmanager
def answered() -> Generator[None]:
    """What the store of keys says, as an answer."""
    try:
        yield
    except SubjectErased:
        message = "a subject of these values was erased: an administrator may enrol it anew"
        raise ConflictProblem("erased", message) from None
    except SubjectHeld:
        message = "the subject is on hold: what is hidden of it must be kept until an administrator releases it"
        raise ConflictProblem("held", message) from None
    except SubjectKeyError as error:
        raise Unavailable(error.code, "the keys of these values' subjects can't be had now: try again") from None
