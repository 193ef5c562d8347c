"""The certificate that an HTTP server shows: read again once its files have changed, for connections from then on.

And whom its own calls trust.
"""

import ssl
import time
from pathlib import Path

import structlog

from aetheris.runtime.base.refusal import StartRefused

_LOOK_S = 1.0
"""Between two looks at the files, at most."""

_log = structlog.get_logger(__name__)


class HttpTlsUnusable(StartRefused):
    """The files of AETHERIS_HTTP_CERT, AETHERIS_HTTP_KEY or AETHERIS_CA can't be used."""

    code = "http_tls_unusable"


class ServedTls:
    """A certificate with its key."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Read them.

        Raises:
            HttpTlsUnusable.
        """
        self._cert = cert
        self._key = key
        self._seen = self._state()
        self._looked_s = time.monotonic()
        try:
            self._context = _context(cert, key)
        except OSError:
            raise HttpTlsUnusable("AETHERIS_HTTP_CERT and AETHERIS_HTTP_KEY name no certificate with its key") from None

    @classmethod
    def of(cls, cert: Path | None, key: Path | None) -> "ServedTls | None":
        """None where neither is set: what is said can then be read by who sees it.

        Raises:
            HttpTlsUnusable.
        """
        if cert is None and key is None:
            return None
        if cert is None or key is None:
            raise HttpTlsUnusable("AETHERIS_HTTP_CERT and AETHERIS_HTTP_KEY must be set together")
        return cls(cert, key)

    def __call__(self) -> ssl.SSLContext:
        """For a new connection. Files that can't be used are told, and the former ones stay in use."""
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            self._look()
        return self._context

    def _look(self) -> None:
        seen = self._state()
        if seen == self._seen:
            return
        try:
            self._context = _context(self._cert, self._key)
        except OSError as error:  # half of them is written: the next look reads them again
            _log.warning("the new certificate can't be used", error=type(error).__name__)
            return
        self._seen = seen
        _log.info("another certificate is shown from now on")

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        return _identity(self._cert), _identity(self._key)


def trusted(ca: Path | None) -> ssl.SSLContext | bool:
    """Whom to trust, as httpx takes it: who the file names, else the system's authorities.

    Raises:
        HttpTlsUnusable.
    """
    try:
        return ssl.create_default_context(cafile=ca) if ca is not None else True
    except OSError:
        raise HttpTlsUnusable("AETHERIS_CA names no readable PEM file") from None


def _context(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key, password=_no_password)
    return context


def _no_password() -> str:
    """Instead of a question at the terminal."""
    return ""


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
