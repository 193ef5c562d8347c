"""What a process has signed: of what it reads back, to the byte and at its place, it need not ask whose it is."""

from aetheris.protocol.base.signing import SignedPlace

_KEPT = 4096
"""So many records, the newest; whatever is read back later is judged as anybody's."""


class OwnRecords:
    """Of one process, from its signing to the first reading."""

    __slots__ = ("_signed",)

    def __init__(self) -> None:
        self._signed: dict[bytes, tuple[SignedPlace, str]] = {}

    def keep(self, value: bytes, place: SignedPlace, key_id: str) -> None:
        """A record's value was signed here by a key, for a place."""
        self._signed[value] = place, key_id
        if len(self._signed) > _KEPT:
            del self._signed[next(iter(self._signed))]

    def take(self, value: bytes) -> tuple[SignedPlace, str] | None:
        """For which place, and by which key, these bytes were signed here; None where they were not, or were taken."""
        return self._signed.pop(value, None)
