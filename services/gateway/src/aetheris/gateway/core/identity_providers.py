"""OpenID providers: whose tokens are believed, and who each of them says calls (docs/identity.md).

[[provider]]
issuer = "https://id.example.com"
audience = ["aetheris"]

[provider.claims]
tenant = "org"
roles = "groups"

[provider.fixed]
kind = "person"

[provider.role_names]
payouts = ["approve", "read", "read_payloads"]
"""

import tomllib
from collections.abc import Mapping
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError
from joserfc.jwt import JWTClaimsRegistry
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import UnauthorizedProblem
from aetheris.gateway.core.token_entries import Name
from aetheris.protocol.base.principals import PrincipalKind, Role

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "Ed448"]
"""What a provider may sign with: public keys only. No secret that it shares with us, and never nothing."""

Claim = str | tuple[str, ...]
"""A claim's name, or the names that lead to one inside others."""

_TYPES = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})
"""Of tokens that say who calls; others of the same provider, such as for logging out, say something else."""
_ROLES = frozenset(Role)
_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


class ProvidersFault(ValueError):
    """The file of providers can't be used; the message names the entry."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Claims(_Strict):
    """Which claims say who calls."""

    id: Claim = "sub"
    tenant: Claim | None = None
    kind: Claim | None = None
    roles: Claim | None = None


class Fixed(_Strict):
    """What holds of everybody who comes by this provider."""

    tenant: Name | None = None
    kind: PrincipalKind | None = None
    roles: tuple[Role, ...] | None = None


class IdentityProvider(_Strict):
    """One provider, and how its claims are read; tenant, kind and roles are each either claimed or fixed."""

    issuer: str = Field(min_length=1)
    audience: tuple[str, ...] = Field(min_length=1, description="Any of them must be the token's")
    jwks_url: str | None = Field(None, description="Where its keys are; else its own description says")
    algorithms: tuple[Algorithm, ...] = Field(("RS256", "PS256", "ES256", "Ed25519"), min_length=1)
    clock_skew_s: int = Field(30, ge=0, le=300)
    claims: Claims = Claims()
    fixed: Fixed = Fixed()
    role_names: Mapping[str, tuple[Role, ...]] = Field(default_factory=dict[str, tuple[Role, ...]])
    kind_names: Mapping[str, PrincipalKind] = Field(default_factory=dict[str, PrincipalKind])

    @model_validator(mode="after")
    def _says_each_once(self) -> "IdentityProvider":
        for name in ("tenant", "kind", "roles"):
            if (getattr(self.claims, name) is None) is (getattr(self.fixed, name) is None):
                raise ValueError(f"{name}: either in claims or in fixed")
        return self

    def principal(self, header: Mapping[str, Any], claims: dict[str, Any], now_s: float) -> Principal:
        """Who calls, by a token whose signature is good.

        Raises:
            Unauthorized: it is for somebody else, not for now, or doesn't say who calls.
        """
        typ = header.get("typ")
        if (typ.lower() if isinstance(typ, str) else typ) not in _TYPES:
            raise UnauthorizedProblem("type")
        self._check(claims, int(now_s))
        return Principal(self._id(claims), self._tenant(claims), self._kind(claims), self._roles(claims))

    def ends_s(self, claims: Mapping[str, Any]) -> float:
        """Until when a token that was believed is, in seconds since 1970."""
        return float(claims["exp"]) + self.clock_skew_s

    def _check(self, claims: dict[str, Any], now_s: int) -> None:
        registry = JWTClaimsRegistry(
            now_s,
            self.clock_skew_s,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "values": list(self.audience)},
            exp={"essential": True},
        )
        try:
            registry.validate(claims)
        except ExpiredTokenError:
            raise UnauthorizedProblem("expired") from None
        except InvalidClaimError as error:
            raise UnauthorizedProblem({"nbf": "not_yet", "iat": "not_yet"}.get(error.claim, "claims")) from None
        except JoseError:
            raise UnauthorizedProblem("claims") from None

    def _id(self, claims: Mapping[str, Any]) -> str:
        return _name(claims, self.claims.id)

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        return self.fixed.tenant or _name(claims, self.claims.tenant or ())

    def _kind(self, claims: Mapping[str, Any]) -> PrincipalKind:
        if self.fixed.kind is not None:
            return self.fixed.kind
        reported = _at(claims, self.claims.kind or ())
        known: Mapping[str, PrincipalKind] = self.kind_names or {kind.value: kind for kind in PrincipalKind}
        found = known.get(reported) if isinstance(reported, str) else None
        if found is None:
            raise UnauthorizedProblem("kind")
        return found

    def _roles(self, claims: Mapping[str, Any]) -> frozenset[Role]:
        """What is claimed, as far as it is known; who claims nothing of it may do nothing."""
        if self.fixed.roles is not None:
            return frozenset(self.fixed.roles)
        reported = _at(claims, self.claims.roles or ())
        names = (
            reported.split()
            if isinstance(reported, str)
            else cast("list[object]", reported)
            if isinstance(reported, list)
            else []
        )
        if self.role_names:
            return frozenset(role for name in names if isinstance(name, str) for role in self.role_names.get(name, ()))
        return frozenset(Role(name) for name in names if isinstance(name, str) and name in _ROLES)


def parsed(text: str, *, dev: bool) -> tuple[IdentityProvider, ...]:
    """The providers of a file; with `dev`, those of this machine may do without TLS.

    Raises:
        ProvidersFault: naming the entry that is wrong.
    """
    try:
        listed: object = tomllib.loads(text).get("provider", [])
    except tomllib.TOMLDecodeError:
        raise ProvidersFault("not valid TOML") from None
    if not isinstance(listed, list) or not listed:
        raise ProvidersFault("names no provider: write [[provider]]")
    found = tuple(_provider(index, one, dev=dev) for index, one in enumerate(cast("list[object]", listed)))
    if len({provider.issuer for provider in found}) < len(found):
        raise ProvidersFault("an issuer is named twice")
    return found


def is_safe(url: str, *, dev: bool) -> bool:
    """Whether what is read from there can't have been put in its place on the way."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (dev and parts.scheme == "http" and parts.hostname in _LOCAL)


def _provider(index: int, listed: object, *, dev: bool) -> IdentityProvider:
    try:
        found = IdentityProvider.model_validate(listed)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(["", *map(str, first["loc"])])
        raise ProvidersFault(f"provider[{index}]{field}: {first['msg']}") from None
    for field, url in (("issuer", found.issuer), ("jwks_url", found.jwks_url)):
        if url is not None and not is_safe(url, dev=dev):
            raise ProvidersFault(f"provider[{index}].{field}: must begin with https://")
    return found


def _at(claims: Mapping[str, Any], claim: Claim) -> object:
    found: object = claims
    for part in (claim,) if isinstance(claim, str) else claim:
        found = cast("Mapping[str, Any]", found).get(part) if isinstance(found, dict) else None
    return found


_NAME = TypeAdapter[str](Name)


def _name(claims: Mapping[str, Any], claim: Claim) -> str:
    try:
        return _NAME.validate_python(_at(claims, claim), strict=True)
    except ValidationError:
        raise UnauthorizedProblem("claims") from None
