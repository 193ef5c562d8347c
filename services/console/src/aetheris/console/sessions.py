"""Who is signed in: in memory, each session with the person's own token, which goes to the gateway and nowhere else."""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from aetheris.protocol.api import CallerView

MOST_SESSIONS = 1000
MOST_LINKS = 100
LINK_S = 120.0
"""How long a one-time link is good."""


@dataclass(slots=True)
class PersonSession:
    """One browser's: whose token it has, and what its forms must carry."""

    token: str = field(repr=False)
    caller: CallerView
    began_s: float
    seen_s: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    passkey_challenge: bytes | None = field(default=None, repr=False)
    """For which a passkey may be made, once: that of the page which asked last."""

    def may(self, *roles: str) -> bool:
        """Whether the caller has one of the roles; the gateway judges that again."""
        return not set(roles).isdisjoint(self.caller.roles)


@dataclass(frozen=True, slots=True)
class SignInLink:
    """What a one-time code stands for, until it is used."""

    token: str = field(repr=False)
    caller: CallerView
    until_s: float


class Sessions:
    """Sessions and one-time codes, by the digests of their ids: who reads this memory's keys can be nobody."""

    def __init__(self, now_s: Callable[[], float], idle_s: float, longest_s: float) -> None:
        self._now_s = now_s
        self._idle_s = idle_s
        self._longest_s = longest_s
        self._sessions: OrderedDict[bytes, PersonSession] = OrderedDict()
        self._links: OrderedDict[bytes, SignInLink] = OrderedDict()

    def begin(self, token: str, caller: CallerView) -> str:
        """The id of a new session; the one that was silent for longest goes where there are too many."""
        id_, now_s = secrets.token_urlsafe(32), self._now_s()
        self._sessions[_digest(id_)] = PersonSession(token, caller, now_s, now_s)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return id_

    def find(self, id_: str | None, *, is_used: bool = True) -> PersonSession | None:
        """The session, where it goes on; what a page asks by itself is no use of it."""
        key = _digest(id_ or "")
        found = self._sessions.get(key)
        if found is None:
            return None
        now_s = self._now_s()
        if now_s - found.seen_s > self._idle_s or now_s - found.began_s > self._longest_s:
            del self._sessions[key]
            return None
        if is_used:
            found.seen_s = now_s
            self._sessions.move_to_end(key)
        return found

    def end(self, session: PersonSession) -> None:
        """It is over, whoever has its id."""
        for key in [key for key, one in self._sessions.items() if one is session]:
            del self._sessions[key]

    def link(self, token: str, caller: CallerView) -> str:
        """A code by which one browser, once and soon, begins a session."""
        code = secrets.token_urlsafe(32)
        self._links[_digest(code)] = SignInLink(token, caller, self._now_s() + LINK_S)
        while len(self._links) > MOST_LINKS:
            self._links.popitem(last=False)
        return code

    def linked(self, code: str) -> CallerView | None:
        """Whom a code would sign in; None where it is none, was used, or is too old."""
        found = self._links.get(_digest(code))
        return found.caller if found is not None and found.until_s > self._now_s() else None

    def use(self, code: str) -> str | None:
        """The id of the session that a code begins, once."""
        found = self._links.pop(_digest(code), None)
        return self.begin(found.token, found.caller) if found is not None and found.until_s > self._now_s() else None


def _digest(id_: str) -> bytes:
    return hashlib.sha256(id_.encode()).digest()
