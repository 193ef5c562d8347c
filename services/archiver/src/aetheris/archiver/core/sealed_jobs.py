"""Which lines of jobs.seals stand for a job: the first of each that a trusted key signed, and what amends that."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from aetheris.proofs.amendments import amends
from aetheris.proofs.claims import read_claim
from aetheris.proofs.records import body_of
from aetheris.proofs.trust import SEAL, TrustedKey, keyring

_NAME_BYTES, _LINE_BYTES = 16, 8


@dataclass(frozen=True, slots=True)
class SealedJob:
    """A job whose first `event_count` records have this tree (hex); `line`: the offset of its seal in jobs.seals."""

    line: int
    job_id: str
    event_count: int
    tree: str
    sealed_at: str
    amendment: int = 0
    """0: its first seal; n: the n-th that amends it."""
    amends: str | None = None
    """The SHA-256 (hex) of the line that it amends."""


class SealedJobs:
    """Takes jobs.seals from its first line on; what it has taken is all that it knows, in some 170 bytes a job."""

    def __init__(self, keys: Sequence[TrustedKey]) -> None:
        self._keys = keyring(keys, SEAL)
        self._known: dict[bytes, int] = {}
        """A job's last line that counts, by the beginning of its hash."""
        self._amended: dict[bytes, int] = {}
        """How often those were amended that were."""

    def take(self, offset: int, line: bytes) -> SealedJob | None:
        """The job that a line seals, or amends the last seal of; None for any other line, whoever wrote it.

        A verifier that died before it knew that its line was taken says the same once more.
        """
        claim = read_claim(offset, line, self._keys)
        if claim is None:
            return None
        body, name = body_of(line) or {}, _digest(claim.job_id.encode(errors="replace"))[:_NAME_BYTES]
        named = amends(body)
        if named is None:
            if name in self._known:
                return None
        elif self._known.get(name) != _beginning(named):
            return None
        self._known[name] = _beginning(_digest(line).hex())
        if named is not None:
            self._amended[name] = self._amended.get(name, 0) + 1
        count, times = claim.event_count, self._amended.get(name, 0)
        return SealedJob(offset, claim.job_id, count, str(body.get("tree")), str(body.get("sealed_at")), times, named)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _beginning(sha256: str) -> int:
    """Of a hash (hex): only lines of trusted keys are compared. -1 for what is none."""
    try:
        return int.from_bytes(bytes.fromhex(sha256)[:_LINE_BYTES])
    except ValueError:
        return -1
