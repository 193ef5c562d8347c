"""Revoked keys of which a process is told by a file: what it brings into jobs, and whose births it refuses (ADR 9)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aetheris.protocol.base.signing import Revocation
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.events import KeyRevoked


@dataclass(frozen=True, slots=True)
class ToldRevocation:
    """A root's revocation; `below` is where each partition of jobs.events ended when it was brought here."""

    revocation: Revocation
    below: tuple[int, ...]

    def event(self, job_id: str) -> KeyRevoked:
        """What a job carries."""
        return KeyRevoked.model_validate({"job_id": job_id} | self.revocation.to_json())


class Revocations:
    """All that a process is told of, each by its root; one of each key."""

    def __init__(self, told: Iterable[ToldRevocation] = ()) -> None:
        self._told = {(one.revocation.installation, one.revocation.key_id): one for one in told}

    def __bool__(self) -> bool:
        return bool(self._told)

    def revokes(self, installation: str, key_id: str) -> bool:
        """Whether a key of an installation counts no more."""
        return (installation, key_id) in self._told

    def refuses(self, installation: str, key_id: str, partition: int, offset: int) -> bool:
        """Whether a key signed a birth or a barrier behind its revocation; where a new partition begins, all are."""
        told = self._told.get((installation, key_id))
        if told is None:
            return False
        return offset >= (told.below[partition] if partition < len(told.below) else 0)

    def of(self, installation: str) -> Iterator[ToldRevocation]:
        """Those of an installation."""
        return (one for (by, _), one in self._told.items() if by == installation)

    def lacking(self, job: JobState) -> Iterator[KeyRevoked]:
        """What a job is to carry, and does not."""
        installation = job.created.installation
        if self._told and installation is not None:
            yield from (
                one.event(job.job_id) for one in self.of(installation) if one.revocation.key_id not in job.revoked
            )


NONE_REVOKED = Revocations()
