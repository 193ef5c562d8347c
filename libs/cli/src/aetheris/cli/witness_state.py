"""What a witness keeps in its folder: its verifier key, and the last checkpoint of each log that it has cosigned.

Whoever loses that, or brings back an older copy, can be shown a fork: so a folder belongs to one key, made with it.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from aetheris.proofs.notes import BadNote, Checkpoint, read_checkpoint
from aetheris.proofs.witnesses import NoteKey, read_vkey, seen_by
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.base.whole_file import write_whole
from aetheris.runtime.process.lock import Lock, locked, opened

_VKEY, _LOCK = "vkey", "lock"


class WitnessStateUnusable(StartRefused):
    """The folder of a witness is missing, another key's, damaged, or in use: the message says which."""

    code = "witness_state_unusable"


class WitnessState:
    """The folder of one witness, while nobody else uses it."""

    def __init__(self, folder: Path, key: NoteKey, lock: Lock, last: dict[str, Checkpoint]) -> None:
        self.key = key
        self._folder, self._lock, self._last = folder, lock, last

    @classmethod
    def load(cls, folder: Path, origins: Iterable[str]) -> "WitnessState":
        """The folder, locked until `close`.

        Raises:
            WitnessStateUnusable.
        """
        try:
            key = read_vkey((folder / _VKEY).read_text().removesuffix("\n"))
        except (OSError, ValueError):
            rule = "is no folder of a witness: `aetheris witness init` makes it, with a new key"
            raise WitnessStateUnusable(f"{folder} {rule}") from None
        descriptor = opened(folder / _LOCK)
        if not locked(descriptor):
            raise WitnessStateUnusable(f"another witness uses {folder}")
        last = {origin: kept for origin in origins if (kept := _kept(folder, origin, key)) is not None}
        return cls(folder, key, Lock(descriptor), last)

    def last(self, origin: str) -> Checkpoint | None:
        """What was cosigned last of a log; None where nothing was."""
        return self._last.get(origin)

    def keep(self, checkpoint: Checkpoint) -> None:
        """On disk before it returns; `note` has the log's signature, and the witness's."""
        write_whole(self._folder / file_name(checkpoint.origin), checkpoint.note.encode())
        self._last[checkpoint.origin] = checkpoint

    def close(self) -> None:
        """Free the folder."""
        self._lock.close()


def check_empty(folder: Path) -> None:
    """Whether a new witness can begin with the folder.

    Raises:
        WitnessStateUnusable: something is there.
    """
    if folder.exists() and any(folder.iterdir()):
        raise WitnessStateUnusable(f"{folder} is not empty: a new witness begins with an empty folder")


def make_state(folder: Path, vkey: str) -> None:
    """The folder of a new key."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(folder / _VKEY, f"{vkey}\n".encode())


def file_name(origin: str) -> str:
    """What names a log in the folder, and in the URL of its checkpoint: the hex SHA-256 of its origin."""
    return hashlib.sha256(origin.encode()).hexdigest()


def _kept(folder: Path, origin: str, key: NoteKey) -> Checkpoint | None:
    path = folder / file_name(origin)
    try:
        note = path.read_text()
        checkpoint, seen = read_checkpoint(note), seen_by(note, [key])
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, BadNote):
        raise WitnessStateUnusable(
            f"{path} is damaged: bring back what it was, or begin anew with another key"
        ) from None
    if checkpoint.origin != origin or not seen:
        raise WitnessStateUnusable(f"{path} is not what this witness has cosigned")
    return checkpoint
