"""A sealing key in a token that doesn't give it out (PKCS#11): it signs there; needs the extra `pkcs11`."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aetheris.runtime.base.refusal import StartRefused

if TYPE_CHECKING:
    from pkcs11.types import SignMixin

SCHEME = "pkcs11:"
_PATH = frozenset({"token", "object"})
_QUERY = frozenset({"module-path", "pin-source"})
_TRIAL = b"aetheris: which key signs here?"
_POINT = bytes.fromhex("0420")
"""What stands before the 32 bytes of a public key in CKA_EC_POINT: a DER octet string."""


class TokenKeyUnusable(StartRefused):
    """The key that a pkcs11: or vault+https: URI names can't be used: the message says which part of it, and why."""

    code = "seal_key_unusable"


class KeyAway(Exception):
    """The token, or the Vault, does not sign at the moment; it is asked again."""

    code = "seal_key_away"


@dataclass(frozen=True, slots=True)
class KeyUri:
    """Where a key is (RFC 7512): the token's and the key's label, the token's library, the file with its PIN."""

    token: str
    object: str
    module_path: str
    pin_source: Path

    @classmethod
    def parse(cls, uri: str) -> "KeyUri":
        """Read a URI.

        Raises:
            TokenKeyUnusable: a part is missing, there twice, or none that is read here; a PIN is never shown.
        """
        if not uri.startswith(SCHEME):
            raise TokenKeyUnusable("AETHERIS_SEAL_KEY_URI begins with neither pkcs11: nor vault+https:")
        path, _, query = uri.removeprefix(SCHEME).partition("?")
        named = [(name, unquote(value)) for name, _, value in (part.partition("=") for part in path.split(";"))]
        parts = _once(named, _PATH) | _once(parse_qsl(query.replace("+", "%2B"), separator="&"), _QUERY)
        if missing := sorted((_PATH | _QUERY) - {name for name, value in parts.items() if value}):
            raise TokenKeyUnusable(f"the pkcs11: URI says no {', '.join(missing)}")
        pin_source = Path(parts["pin-source"].removeprefix("file:"))
        return cls(parts["token"], parts["object"], parts["module-path"], pin_source)

    def pin(self) -> str:
        """Raises: TokenKeyUnusable."""
        try:
            return self.pin_source.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            raise TokenKeyUnusable(f"pin-source: {self.pin_source} can't be read") from None


class TokenKey:
    """An Ed25519 key of a token. Calls wait for the token: they belong into a thread.

    Raises:
        TokenKeyUnusable: the library, the token, the PIN or the key isn't what the URI says.
    """

    def __init__(self, uri: KeyUri) -> None:
        self._uri = uri
        self._turn = threading.Lock()
        try:
            self._private, self._public = _open(uri)
            signature = _signature(self._private, _TRIAL)
        except KeyAway as why:
            raise TokenKeyUnusable(str(why)) from None
        try:
            self._public.verify(signature, _TRIAL)
        except InvalidSignature:
            raise TokenKeyUnusable(f"pkcs11: the two keys called {uri.object!r} are no pair") from None

    def public_key(self) -> Ed25519PublicKey:
        """What checks its signatures."""
        return self._public

    def sign(self, data: bytes, /) -> bytes:
        """A signature of 64 bytes; where the token has forgotten us, we log in again, once.

        Raises:
            KeyAway: the token does not sign, or with another key than before.
        """
        with self._turn:
            try:
                return _signature(self._private, data)
            except KeyAway:
                private, public = _open(self._uri, anew=True)
            if public != self._public:
                raise KeyAway(f"pkcs11: another key is called {self._uri.object!r} now")
            self._private = private
            return _signature(private, data)


def _open(uri: KeyUri, *, anew: bool = False) -> tuple["SignMixin", Ed25519PublicKey]:
    """The pair, in a new session; `anew` has the library look for its tokens again, for which it ends all sessions.

    Raises:
        TokenKeyUnusable, KeyAway.
    """
    try:
        import pkcs11  # noqa: PLC0415  an extra
        from pkcs11 import Attribute, KeyType, ObjectClass  # noqa: PLC0415
        from pkcs11.types import SignMixin  # noqa: PLC0415
    except ImportError:
        raise TokenKeyUnusable("a pkcs11: URI needs the extra aetheris-verifier[pkcs11]") from None
    wanted = {Attribute.KEY_TYPE: KeyType.EC_EDWARDS, Attribute.LABEL: uri.object}
    try:
        library = pkcs11.lib(uri.module_path)
        if anew:
            library.reinitialize()
        session = library.get_token(token_label=uri.token).open(user_pin=uri.pin())
        ((private,), (public,)) = (
            list(session.get_objects({**wanted, Attribute.CLASS: kind}))
            for kind in (ObjectClass.PRIVATE_KEY, ObjectClass.PUBLIC_KEY)
        )
        point = bytes(public[Attribute.EC_POINT])
    except RuntimeError as error:  # the library's own base class; a library that can't be loaded is one, too
        raise KeyAway(f"pkcs11: the token {uri.token!r}: {type(error).__name__}") from None
    except ValueError:
        raise KeyAway(f"pkcs11: the token has not one pair of Ed25519 keys called {uri.object!r}") from None
    if not isinstance(private, SignMixin):
        raise KeyAway(f"pkcs11: the key {uri.object!r} may not sign")
    return private, Ed25519PublicKey.from_public_bytes(point.removeprefix(_POINT))


def _signature(private: "SignMixin", data: bytes) -> bytes:
    """Raises: KeyAway."""
    from pkcs11 import Mechanism  # noqa: PLC0415  an extra

    try:
        return bytes(private.sign(data, mechanism=Mechanism.EDDSA))
    except RuntimeError as error:
        raise KeyAway(f"pkcs11: the token does not sign: {type(error).__name__}") from None


def _once(parts: Iterable[tuple[str, str]], known: frozenset[str]) -> dict[str, str]:
    found = dict[str, str]()
    for name, value in parts:
        if name not in known or name in found:
            raise TokenKeyUnusable(f"the pkcs11: URI has {name!r} twice, or it is not read here")
        found[name] = value
    return found
