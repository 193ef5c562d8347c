"""Tokens of OpenID providers: JWTs, verified once and known by their digest until they end (docs/identity.md)."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jws import CompactSignature, JWSRegistry

from aetheris.gateway.core import identity_providers
from aetheris.gateway.core.identity_providers import IdentityProvider, ProvidersFault
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import UnauthorizedProblem
from aetheris.gateway.signing_keys import SigningKeys
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.refusal import StartRefused

MAX_KNOWN = 10_000
_MAX_TENANTS = 10_000


class ProvidersFileInvalid(StartRefused):
    """The file of OpenID providers can't be used; the message names the entry."""

    code = "providers_file_invalid"


def providers_of(path: Path, *, dev: bool) -> tuple[IdentityProvider, ...]:
    """The providers of a file.

    Raises:
        ProvidersFileInvalid: naming the entry that is wrong.
    """
    try:
        return identity_providers.parsed(path.read_text(), dev=dev)
    except OSError as error:
        raise ProvidersFileInvalid(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProvidersFileInvalid(f"{path}: not valid TOML") from None
    except ProvidersFault as error:
        raise ProvidersFileInvalid(f"{path}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Believed:
    principal: Principal
    ends_s: float


class OpenId:
    """The providers that are trusted, each with its keys."""

    def __init__(
        self, providers: Sequence[IdentityProvider], http: httpx.AsyncClient, clock: Clock, *, dev: bool
    ) -> None:
        self._clock = clock
        self._known: OrderedDict[bytes, _Believed] = OrderedDict()
        self._providers = {
            one.issuer: (one, SigningKeys(one, http, clock, self._known.clear, dev=dev)) for one in providers
        }
        self._registries = {
            one.issuer: JWSRegistry(algorithms=list(one.algorithms), strict_check_header=False) for one in providers
        }
        self._tenants = {one.fixed.tenant for one in providers if one.fixed.tenant is not None}

    def follow(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """What keeps the keys fresh, to be run beside."""
        return tuple(keys.run() for _, keys in self._providers.values())

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants of whoever came."""
        return frozenset(self._tenants)

    def known(self, token: str) -> Principal | None:
        """Who has this token, where it was verified before and has not ended."""
        digest = hashlib.sha256(token.encode()).digest()
        found = self._known.get(digest)
        if found is None:
            return None
        if self._clock.now().timestamp() >= found.ends_s:
            del self._known[digest]
            return None
        return found.principal

    async def principal(self, token: str) -> Principal:
        """Who has this token, verified now.

        Raises:
            Unauthorized: it is none of a trusted provider's, or for somebody else, or not for now.
            Unavailable: its provider's keys can't be had.
        """
        parsed = _parsed(token)
        issuer = _unverified_issuer(parsed)
        if issuer not in self._providers:
            raise UnauthorizedProblem("issuer")
        provider, keys = self._providers[issuer]
        header = parsed.headers()
        if header.get("alg") not in provider.algorithms:
            raise UnauthorizedProblem("algorithm")
        key_id = header.get("kid")
        key = await keys.find(key_id if isinstance(key_id, str) else None)
        try:
            good = jws.validate_compact(parsed, key, registry=self._registries[issuer])
        except (JoseError, ValueError):
            good = False  # such as a key of another kind than the algorithm's
        if not good:
            raise UnauthorizedProblem("signature")
        claims = _claims(parsed)
        found = provider.principal(header, claims, self._clock.now().timestamp())
        self._keep(token, _Believed(found, provider.ends_s(claims)))
        return found

    def _keep(self, token: str, believed: _Believed) -> None:
        self._known[hashlib.sha256(token.encode()).digest()] = believed
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        if len(self._tenants) < _MAX_TENANTS:
            self._tenants.add(believed.principal.tenant)


def _parsed(token: str) -> CompactSignature:
    try:
        found = jws.extract_compact(token.encode())
    except (JoseError, ValueError, RecursionError):
        raise UnauthorizedProblem("malformed") from None
    if "crit" in found.headers():  # whoever sets it wants more understood than is here
        raise UnauthorizedProblem("malformed")
    return found


def _claims(parsed: CompactSignature) -> dict[str, Any]:
    try:
        found: object = json.loads(parsed.payload)
    except (ValueError, RecursionError):
        raise UnauthorizedProblem("malformed") from None
    if not isinstance(found, dict):
        raise UnauthorizedProblem("malformed")
    return cast("dict[str, Any]", found)


def _unverified_issuer(parsed: CompactSignature) -> str:
    """Whose the token says that it is: enough to know by whose keys that is to be checked."""
    issuer = _claims(parsed).get("iss")
    return issuer if isinstance(issuer, str) else ""
