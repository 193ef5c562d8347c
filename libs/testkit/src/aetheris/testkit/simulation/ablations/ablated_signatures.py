"""Ablations of what judges signatures, each without one of its checks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aetheris.protocol.base.signing import Certificate, SignedPlace
from aetheris.protocol.base.writers import Party
from aetheris.testkit.simulation.ablations.ablation import Ablation, Replace, always

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


def _forged(name: str, rule: str, caught_within: int, path: str, without: Replace) -> Ablation:
    return Ablation(name, rule, caught_within, {f"aetheris.protocol.{path}": without}, compared=False)


SIGNATURES: tuple[Ablation, ...] = (
    _forged(
        "with records that nobody signs",
        "what its writer has not signed is void",
        100,
        "fold.provenance.Provenance._is_their_writers",
        always(value=True),
    ),
    _forged(
        "with whoever is certified",
        "a key signs only what the table says its service writes",
        300,
        "fold.provenance._is_signed_by",
        whoever_is_certified,
    ),
    _forged(
        "with certificates of whichever root",
        "a certificate is of the root that the job's birth names",
        300,
        "fold.provenance.is_certified_under",
        under_whichever_root,
    ),
    *(
        _forged(
            f"with signatures for whichever {member}",
            f"a signature is for one {member}",
            600,
            "base.signing.statement",
            without("born" if member == "birth" else member),
        )
        for member in ("birth", "key", "topic", "type", "installation")
    ),
)
