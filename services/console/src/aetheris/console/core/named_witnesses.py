"""Who has cosigned the checkpoint that a proof of inclusion leads to (C2SP tlog-proof, tlog-cosignature). Pure."""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

_SIGNATURE = "— "
_KEY_ID, _TIME, _SIGNED = 4, 8, 64
_COSIGNATURE = _KEY_ID + _TIME + _SIGNED
"""Bytes of a cosignature/v1; the log's own signature has no time."""


@dataclass(frozen=True, slots=True)
class NamedWitness:
    """A witness as the proof names it, and when it says that it saw the log; whether it did, its key must show."""

    name: str
    at: str
    """RFC 3339."""


def named_witnesses(proof: str) -> list[NamedWitness]:
    """Those of a proof, in its order; lines that are no cosignatures are passed over."""
    return list(_witnesses(proof))


def _witnesses(proof: str) -> Iterator[NamedWitness]:
    for line in proof.split("\n"):
        name, _, encoded = line.removeprefix(_SIGNATURE).rpartition(" ")
        if not line.startswith(_SIGNATURE) or not name:
            continue
        try:
            signature = base64.b64decode(encoded, validate=True)
            if len(signature) != _COSIGNATURE:
                continue
            at = datetime.fromtimestamp(int.from_bytes(signature[_KEY_ID : _KEY_ID + _TIME], "big"), UTC)
        except (binascii.Error, ValueError, OverflowError, OSError):
            continue
        yield NamedWitness(name, at.isoformat())
