"""Checkpoints that witnesses have cosigned, as `aetheris seals relay` lays them into a folder, a file of each size.

Who writes there is believed nothing: each is judged by a policy of one's own.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from aetheris.proofs.notes import BadNote, Checkpoint, open_checkpoint
from aetheris.proofs.trust import TrustedKey
from aetheris.proofs.witnesses import BadLogPolicy, LogPolicy, open_witnessed, read_log_policy
from aetheris.runtime.base.refusal import StartRefused

MAX_BYTES = 64 * 1024
_AT_MOST = 100
"""Files that are judged for one answer: those that hold nothing are a fault, or malice."""
_DIGITS = 20


class SealPolicyUnusable(StartRefused):
    """AETHERIS_SEAL_POLICY can't be read, or does not name this verifier's log of seals."""

    code = "seal_policy_unusable"


class WitnessedCheckpoints:
    """Those of a folder that the quorum of a policy has seen, and that a log's key signed."""

    def __init__(self, folder: Path, policy: LogPolicy, log_key: TrustedKey) -> None:
        self._folder, self._policy, self._log_key = folder, policy, log_key

    @classmethod
    def load(cls, policy: Path, folder: Path, origin: str, log_key: TrustedKey) -> "WitnessedCheckpoints":
        """By the policy of a file.

        Raises:
            SealPolicyUnusable.
        """
        try:
            read = read_log_policy(policy.read_bytes())
        except (OSError, BadLogPolicy) as error:
            raise SealPolicyUnusable(f"AETHERIS_SEAL_POLICY: {policy}: {error}") from None
        if (origin, log_key.public_key) not in [(log.name, log.public_key) for log in read.logs]:
            raise SealPolicyUnusable(f"AETHERIS_SEAL_POLICY: {policy} lacks the log {origin} by its key that signs now")
        return cls(folder, read, log_key)

    def newest(self) -> Iterator[Checkpoint]:
        """The largest first; reads files."""
        for name in islice(reversed(self._names()), _AT_MOST):
            checkpoint = self._read(self._folder / name)
            if checkpoint is not None:
                yield checkpoint

    def covering(self, index: int) -> Iterator[Checkpoint]:
        """Those in which a leaf of this index must be, the smallest first; reads files."""
        names = self._names()
        begin = bisect_right(names, file_name(index))
        for name in islice(names, begin, begin + _AT_MOST):
            checkpoint = self._read(self._folder / name)
            if checkpoint is not None and checkpoint.size > index:
                yield checkpoint

    def _names(self) -> list[str]:
        try:
            return sorted(one.name for one in self._folder.iterdir() if _is_size(one.name))
        except OSError:
            return []

    def _read(self, path: Path) -> Checkpoint | None:
        try:
            with path.open("rb") as file:
                note = file.read(MAX_BYTES).decode()
            open_checkpoint(note, [self._log_key])
            return open_witnessed(note, self._policy).checkpoint
        except (OSError, UnicodeDecodeError, BadNote):
            return None


def file_name(size: int) -> str:
    """What names the checkpoint of that size."""
    return f"{size:0{_DIGITS}}"


def _is_size(name: str) -> bool:
    return len(name) == _DIGITS and name.isascii() and name.isdecimal()
