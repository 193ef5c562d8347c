"""What a witness asks of a checkpoint before it puts its name under it: C2SP tlog-witness, without HTTP and files."""

from collections.abc import Sequence
from dataclasses import dataclass

from aetheris.proofs.merkle import EMPTY_ROOT, consistency_holds
from aetheris.proofs.notes import BadNote, Checkpoint, parse_consistency, read_checkpoint
from aetheris.proofs.witnesses import NoteKey, open_logged

MAX_STEPS = 63


@dataclass(frozen=True, slots=True)
class Addition:
    """A checkpoint that its log signed, `note` with that signature alone; and the proof of its growth, not judged."""

    checkpoint: Checkpoint
    old: int
    path: tuple[bytes, ...]


def read_addition(body: bytes, logs: Sequence[NoteKey]) -> Addition:
    """What is posted to `add-checkpoint`, if it is of one of these logs.

    Raises:
        BadNote: `bad_proof` or `bad_checkpoint`, `unknown_log`, `checkpoint_unknown_log` or `checkpoint_signature`
            (no key of that log has signed it), `old_beyond` (it says that it grew from a larger tree).
    """
    try:
        proof = parse_consistency(body.decode())
    except UnicodeDecodeError:
        raise BadNote("bad_proof", "no text") from None
    if len(proof.path) > MAX_STEPS:
        raise BadNote("bad_proof", f"more than {MAX_STEPS} hashes")
    if read_checkpoint(proof.checkpoint).origin not in {log.name for log in logs}:
        raise BadNote("unknown_log", "its origin is no log that this witness knows")
    checkpoint = open_logged(proof.checkpoint, logs)
    if proof.old > checkpoint.size:
        raise BadNote("old_beyond", "the old size is larger than the checkpoint's")
    return Addition(checkpoint, proof.old, proof.path)


def check_growth(added: Addition, last: Checkpoint | None) -> None:
    """Whether a log only grew since the checkpoint of it that was cosigned last; None where none was.

    Raises:
        BadNote: `other_size` (the proof begins elsewhere), `not_consistent`.
    """
    size, root = (last.size, last.root) if last is not None else (0, EMPTY_ROOT)
    if added.old != size:
        raise BadNote("other_size", f"what was cosigned last has {size} leaves")
    if not consistency_holds(size, added.checkpoint.size, added.path, root, added.checkpoint.root):
        raise BadNote("not_consistent", f"it is not a continuation of the first {size} leaves as they were")
