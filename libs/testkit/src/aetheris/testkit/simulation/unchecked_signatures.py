"""What judges signatures, one of its checks left out, for `ablations`: from the real function, that in its place."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aetheris.protocol.base.signing import Certificate, SignedPlace
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.workers import LOCK, Ended, Name

Statement = Callable[[SignedPlace, bytes], bytes]


def without(member: str) -> Callable[[Statement], Statement]:
    """Nobody signs that a record is for this, and nobody asks."""

    def signed(real: Statement) -> Statement:
        return lambda place, payload: real(replace(place, **{member: ""}), payload)

    return signed


def whoever_is_certified(real: Callable[..., bool]) -> Callable[..., bool]:
    """Whichever service a key is certified for, it signs for all."""

    def is_signed_by(job: Any, _writer: Party, *more: Any) -> bool:
        return any(real(job, party, *more) for party in Party)

    return is_signed_by


def under_whichever_root(real: Callable[[Certificate, str], bool]) -> Callable[[Certificate, str], bool]:
    """Whoever has made a root certifies keys for the jobs of all."""

    def is_certified(certificate: Certificate, _installation: str) -> bool:
        return real(certificate, certificate.installation)

    return is_certified


def whoever_is_said_to_have_ended(real: Callable[[Name, str], list[str]]) -> Callable[[Name, str], list[str]]:
    """Of a worker's end: its incarnation does, too, where its word is asked for."""

    def ended_by(name: Name, word: str) -> list[str]:
        return [*real(name, word), *name.end(Ended(incarnation=word, how=LOCK))]

    return ended_by
