"""RFC 3161 time stamps of checkpoints: lines under a checkpoint, beside cosignatures (docs/evidence.md).

A line is one of a signed note, of type ff: its key id is that of its name alone, its signature the authority's whole
answer (DER) over the SHA-256 of the checkpoint's text. Readers that know nothing of it pass it over.
"""

import base64
import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from aetheris.proofs.notes import BadNote, signatures_of

MAX_STAMP_BYTES = 16 * 1024
MOST_STAMPS = 2
"""Of a checkpoint, that are looked at."""
_KIND = b"\xffrfc3161"
_ID_BYTES = 4


class BadTimestamp(Exception):
    """No time stamp, or one that nobody who is trusted has given for this text."""


class TrustedAuthorities(Protocol):
    """Whose time stamps count."""

    def time_of(self, stamp: bytes, text: bytes) -> datetime:
        """When a text was there, by an authority's answer; raises BadTimestamp."""
        ...


def stamp_line(name: str, stamp: bytes) -> str:
    """The line of an authority's answer; `name` has no white space and no plus."""
    return f"— {name} {base64.b64encode(_key_id(name) + stamp).decode()}\n"


def stamps_of(note: str) -> Iterable[tuple[str, bytes]]:
    """(name, answer) of each line of a checkpoint that says to be a time stamp; none of them is judged.

    Raises:
        BadNote: it is no checkpoint.
    """
    _, _, signatures = signatures_of(note)
    found = [(name, one[_ID_BYTES:]) for name, one in signatures if one[:_ID_BYTES] == _key_id(name)]
    return [(name, stamp) for name, stamp in found if len(stamp) <= MAX_STAMP_BYTES][:MOST_STAMPS]


def stamped_at(note: str, authorities: TrustedAuthorities) -> datetime:
    """The earliest time at which one of the authorities has seen a checkpoint.

    Raises:
        BadNote: it is no checkpoint, or none of them has.
    """
    _, text, _ = signatures_of(note)
    times, why = list[datetime](), "it has no time stamp"
    for name, stamp in stamps_of(note):
        try:
            times.append(authorities.time_of(stamp, text))
        except BadTimestamp as error:
            why = f"{name}: {error}"
    if not times:
        raise BadNote("no_timestamp", why)
    return min(times)


def _key_id(name: str) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _KIND).digest()[:_ID_BYTES]
