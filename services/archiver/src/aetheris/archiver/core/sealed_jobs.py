"""Which lines of jobs.seals stand for a job: of each job the first that a trusted key signed, and no other."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from aetheris.proofs.claims import read_claim
from aetheris.proofs.records import body_of
from aetheris.proofs.trust import SEAL, TrustedKey, keyring


@dataclass(frozen=True, slots=True)
class SealedJob:
    """A job whose first `event_count` records have this tree (hex); `line`: the offset of its seal in jobs.seals."""

    line: int
    job_id: str
    event_count: int
    tree: str
    sealed_at: str


class SealedJobs:
    """Takes jobs.seals from its first line on; what it has taken is all that it knows, in some 100 bytes a job."""

    def __init__(self, keys: Sequence[TrustedKey]) -> None:
        self._keys = keyring(keys, SEAL)
        self._known: set[bytes] = set()

    def take(self, offset: int, line: bytes) -> SealedJob | None:
        """The job that a line is the first seal of; None for any other line, whoever wrote it.

        A verifier that died before it knew that its line was taken says the same once more; what amends a seal is none.
        """
        claim = read_claim(offset, line, self._keys)
        if claim is None or claim.amends:
            return None
        name = hashlib.sha256(claim.job_id.encode(errors="replace")).digest()[:16]
        if name in self._known:
            return None
        self._known.add(name)
        body = body_of(line) or {}
        return SealedJob(offset, claim.job_id, claim.event_count, str(body.get("tree")), str(body.get("sealed_at")))
