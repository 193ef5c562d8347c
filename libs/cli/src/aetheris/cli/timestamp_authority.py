"""RFC 3161: what an authority is asked for, and what it answers, by `rfc3161-client` (the extra `timestamps`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.x509 import Certificate, load_pem_x509_certificates
from rfc3161_client import (
    HashAlgorithm,
    TimestampRequestBuilder,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from aetheris.cli.console import CommandError, Exit
from aetheris.cli.inputs import read_bytes
from aetheris.cli.seal_relay import WITHIN_S, NoAnswer, exchanged
from aetheris.proofs.timestamps import MAX_STAMP_BYTES, BadTimestamp

_OK = 200
_TYPES = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}


class AuthorityRoots:
    """Certificates of authorities' roots, each good by itself."""

    def __init__(self, roots: Sequence[Certificate]) -> None:
        self._roots = list(dict.fromkeys(roots))

    @classmethod
    def read(cls, path: Path) -> "AuthorityRoots":
        """Those of a PEM file.

        Raises:
            CommandError: there are none.
        """
        try:
            return cls(load_pem_x509_certificates(read_bytes(path)))
        except ValueError:
            raise CommandError(Exit.BAD_INPUT, "bad_tsa_roots", f"{path}: no certificates in PEM") from None

    def asked_at(self, url: str) -> "TimestampAuthority":
        """One whose answers are judged by these."""
        return TimestampAuthority(url, self)

    def time_of(self, stamp: bytes, text: bytes) -> datetime:
        """When a text was there, by an authority's answer (DER); raises BadTimestamp."""
        return self.answered(stamp, text, None)

    def answered(self, stamp: bytes, text: bytes, nonce: int | None) -> datetime:
        """The same of an answer to a request with this nonce; raises BadTimestamp."""
        try:
            answer = decode_timestamp_response(stamp)
            VerifierBuilder(roots=self._roots, nonce=nonce).build().verify_message(answer, text)
            return answer.tst_info.gen_time
        except (VerificationError, ValueError) as error:
            raise BadTimestamp(f"not by one of these roots over this text: {error}") from None


@dataclass(frozen=True, slots=True)
class TimestampAuthority:
    """One that is asked by HTTP; what it answers must be by one of the roots."""

    url: str
    trusted: AuthorityRoots
    within_s: float = WITHIN_S

    @property
    def name(self) -> str:
        """Its URL without scheme, as a line of a note can have it."""
        parts = urlsplit(self.url)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}".replace("+", "").rstrip("/") or "tsa"

    def stamp(self, text: bytes) -> bytes:
        """Its answer (DER) over a text; raises BadTimestamp."""
        asked = TimestampRequestBuilder().data(text).hash_algorithm(HashAlgorithm.SHA256).build()
        try:
            status, answer = exchanged(self.url, asked.as_bytes(), _TYPES, self.within_s)
        except NoAnswer as error:
            raise BadTimestamp(str(error)) from None
        if status != _OK or len(answer) > MAX_STAMP_BYTES:
            raise BadTimestamp(f"it answers {status}, {len(answer)} bytes")
        self.trusted.answered(answer, text, asked.nonce)
        return answer
