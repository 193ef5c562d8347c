"""Bearer tokens from a file, known by their SHA-256 (docs/identity.md)."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from aetheris.gateway.core import token_entries
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import UnauthorizedProblem
from aetheris.gateway.core.token_entries import MIN_TOKEN_CHARS, TokenEntry, TokensFault
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.refusal import StartRefused

_log = structlog.get_logger(__name__)

_Stamp = tuple[int, ...]
_ABSENT: _Stamp = ()
_UNSURE: _Stamp = (0,)
"""Of a file that may change once more without its stamp showing it."""
_TICK_S = 0.05
"""Two changes of a file within so short a time may leave the same times on it."""


class TokensFileInvalid(StartRefused):
    """The file of tokens can't be used; the message names the entry, never its content."""

    code = "tokens_file_invalid"


class Tokens:
    """The tokens of a file, as it is now: it is looked at for each request, and read when it has changed.

    They are looked up by their digest. Time may tell of a digest how far it is like one that is known; whoever wants
    more must find a token that has such a digest, which is as hard as guessing the token.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """A missing file knows no token.

        Raises:
            TokensFileInvalid: naming the entry that is wrong.
        """
        self._path = path
        self._clock = clock
        self.changed: Callable[[str, str], None] = lambda _subject, _reason: None
        """Told of what was taken up, and of what could not be."""
        self._stamp = self._look()
        try:
            self._known = self._read()
        except TokensFault as error:
            raise TokensFileInvalid(f"{path}: {error}") from None

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants that somebody has a token of."""
        self._refresh()
        return frozenset(entry.tenant for entry, _ in self._known.values())

    def principal(self, token: str) -> Principal:
        """Who has this token.

        Raises:
            Unauthorized: nobody, or it has ended.
        """
        if len(token) < MIN_TOKEN_CHARS:
            raise UnauthorizedProblem("short")
        self._refresh()
        found = self._known.get(hashlib.sha256(token.encode()).digest())
        if found is None:
            raise UnauthorizedProblem
        entry, principal = found
        now = self._clock.now()
        if entry.ended(now):
            raise UnauthorizedProblem("expired")
        if entry.acts_for is None:
            return principal
        lent = entry.lent((one for one, _ in self._known.values()), now)
        if lent is None:
            raise UnauthorizedProblem("lender")
        return lent

    def _refresh(self) -> None:
        """Take up a changed file; one that is broken is told, and what was known before it goes on to count."""
        stamp = self._look()
        if stamp == self._stamp != _UNSURE:
            return
        broken: TokensFault | None = None
        try:
            self._known = self._read()
        except TokensFault as error:
            broken = error
        if stamp == self._stamp:
            return
        self._stamp = stamp
        if broken is not None:
            _log.error("the file of tokens is broken: what it said before goes on to count", reason=str(broken))
            self.changed("tokens", "broken: what it said before goes on to count")
        else:
            _log.info("tokens read", tokens=len(self._known))
            self.changed("tokens", f"{len(self._known)} are known")

    def _look(self) -> _Stamp:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return _ABSENT
        except OSError as error:
            return (error.errno or 1,)
        if 0 <= self._clock.now().timestamp() - found.st_mtime < _TICK_S:
            return _UNSURE
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size

    def _read(self) -> dict[bytes, tuple[TokenEntry, Principal]]:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return {}
        except UnicodeDecodeError:
            raise TokensFault("not valid TOML") from None
        except OSError as error:
            raise TokensFault(error.strerror or type(error).__name__) from None
        return {entry.digest: (entry, entry.principal) for entry in token_entries.parsed(text)}
