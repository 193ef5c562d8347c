"""TLS to the brokers: who they are by their CA, who we are by our certificate (docs/deployment.md)."""

import ssl
from pathlib import Path
from typing import Protocol

from aetheris.runtime.base.refusal import StartRefused


class TlsUnusable(StartRefused):
    """The files of AETHERIS_KAFKA_CA, _CERT and _KEY can't be used."""

    code = "tls_unusable"


class TlsFiles(Protocol):
    """Where the PEM files are."""

    @property
    def kafka_ca(self) -> Path | None: ...
    @property
    def kafka_cert(self) -> Path | None: ...
    @property
    def kafka_key(self) -> Path | None: ...


def tls_context(files: TlsFiles) -> ssl.SSLContext | None:
    """The context for these files; None where none is set: then nothing is encrypted.

    Raises:
        TlsUnusable: one of them is missing, or no PEM.
    """
    if files.kafka_ca is None:
        if files.kafka_cert is not None or files.kafka_key is not None:
            raise TlsUnusable("AETHERIS_KAFKA_CA must be set where AETHERIS_KAFKA_CERT or _KEY is")
        return None
    if (files.kafka_cert is None) != (files.kafka_key is None):
        raise TlsUnusable("AETHERIS_KAFKA_CERT and AETHERIS_KAFKA_KEY must be set together")
    try:
        context = ssl.create_default_context(cafile=files.kafka_ca)
    except OSError:
        raise TlsUnusable("AETHERIS_KAFKA_CA names no readable PEM file") from None
    if files.kafka_cert is not None:
        try:
            context.load_cert_chain(files.kafka_cert, files.kafka_key)
        except OSError:
            raise TlsUnusable("AETHERIS_KAFKA_CERT and AETHERIS_KAFKA_KEY name no certificate with its key") from None
    return context
