"""Signing in by an OpenID provider: the code flow with PKCE (RFC 6749, 7636, 9207). What counts is the access token.

It is the gateway that judges the token; no claim is read here.
"""

import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

import httpx

from aetheris.console.settings import ConsoleSettings
from aetheris.runtime.base.refusal import StartRefused

_ATTEMPT_S = 600.0
_MOST_ATTEMPTS = 1000
_TIMEOUT_S = 15.0


class LoginProviderUnusable(StartRefused):
    """What the settings say of the provider can't be used."""

    code = "login_unusable"


class LoginRefused(Exception):
    """Nobody is signed in; the message says why, without anything that the provider or the browser sent."""


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One way to the provider and back, of one browser."""

    browser: str
    verifier: str = field(repr=False)
    until_s: float
    leads_to: str


class LoginProvider:
    """The provider, as its own description says."""

    def __init__(
        self, *, issuer: str, client_id: str, secret: str | None, scope: str, resource: str, now_s: Callable[[], float]
    ) -> None:
        self.issuer = issuer
        self._client_id = client_id
        self._secret = secret
        self._scope = scope
        self._resource = resource
        self._now_s = now_s
        self._attempts: OrderedDict[str, LoginAttempt] = OrderedDict()

    @classmethod
    def of(cls, settings: ConsoleSettings, now_s: Callable[[], float]) -> "LoginProvider | None":
        """None where the settings name none.

        Raises:
            LoginProviderUnusable.
        """
        if not settings.login_issuer:
            return None
        if not settings.login_client_id:
            raise LoginProviderUnusable("AETHERIS_LOGIN_ISSUER needs AETHERIS_LOGIN_CLIENT_ID")
        if not settings.console_url:
            raise LoginProviderUnusable(
                "AETHERIS_LOGIN_ISSUER needs AETHERIS_CONSOLE_URL, where people are sent back to"
            )
        if not _is_safe(settings.login_issuer):
            raise LoginProviderUnusable("AETHERIS_LOGIN_ISSUER must be an https URL, or one of this machine's")
        try:
            secret = _secret(settings.login_client_secret)
        except (OSError, UnicodeDecodeError):
            raise LoginProviderUnusable("AETHERIS_LOGIN_CLIENT_SECRET names no readable file") from None
        return cls(
            issuer=settings.login_issuer,
            client_id=settings.login_client_id,
            secret=secret,
            scope=settings.login_scope,
            resource=settings.login_resource,
            now_s=now_s,
        )

    @property
    def name(self) -> str:
        """As people know it."""
        return urlsplit(self.issuer).netloc

    async def begin(self, browser: str, back: str, leads_to: str) -> str:
        """Where to send a browser, which is known again by `browser`; `back` is where it comes back to.

        Raises:
            LoginRefused: the provider does not answer.
        """
        endpoint = _endpoint(await self._described(), "authorization_endpoint")
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        self._attempts[state] = LoginAttempt(browser, verifier, self._now_s() + _ATTEMPT_S, leads_to)
        while len(self._attempts) > _MOST_ATTEMPTS:
            self._attempts.popitem(last=False)
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": back,
            "scope": self._scope,
            "state": state,
            "code_challenge": _challenge(verifier),
            "code_challenge_method": "S256",
            **({"resource": self._resource} if self._resource else {}),
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def end(self, said: Mapping[str, str], browser: str, back: str) -> tuple[str, str]:
        """(the access token, where the person wanted to go) of what a browser came back with.

        Raises:
            LoginRefused.
        """
        attempt = self._attempts.pop(said.get("state", ""), None)
        if attempt is None or attempt.until_s < self._now_s():
            raise LoginRefused("This sign-in has taken too long, or was ended. Begin anew.")
        if not browser or not secrets.compare_digest(attempt.browser.encode(), browser.encode()):
            raise LoginRefused("This sign-in was begun by another browser.")
        described = await self._described()
        if said.get("iss", self.issuer) != self.issuer or (
            described.get("authorization_response_iss_parameter_supported") and "iss" not in said
        ):
            raise LoginRefused("Another provider has answered than was asked.")
        code = said.get("code")
        if not code:
            raise LoginRefused("The provider has not signed you in.")
        return await self._exchanged(described, code, attempt.verifier, back), attempt.leads_to

    async def _exchanged(self, described: Mapping[str, Any], code: str, verifier: str, back: str) -> str:
        asked = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "code_verifier": verifier,
            **({"resource": self._resource} if self._resource else {}),
        }
        login = httpx.BasicAuth(self._client_id, self._secret) if self._secret is not None else None
        if login is None:
            asked["client_id"] = self._client_id
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_S) as http:
                url = _endpoint(described, "token_endpoint")
                answer = await http.post(url, data=asked, auth=login or httpx.USE_CLIENT_DEFAULT)
            body: Any = answer.json()
        except (httpx.HTTPError, ValueError):
            raise LoginRefused("The provider does not answer.") from None
        token: Any = cast("dict[str, Any]", body).get("access_token") if isinstance(body, dict) else None
        if answer.status_code != 200 or not isinstance(token, str):
            raise LoginRefused("The provider has given no token.")
        return token

    async def _described(self) -> Mapping[str, Any]:
        url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_S) as http:
                body: Any = (await http.get(url)).json()
        except (httpx.HTTPError, ValueError):
            raise LoginRefused("The provider does not answer.") from None
        if not isinstance(body, dict) or cast("dict[str, Any]", body).get("issuer") != self.issuer:
            raise LoginRefused("The provider's description is another's.")
        return cast("dict[str, Any]", body)


def _endpoint(described: Mapping[str, Any], name: str) -> str:
    found = described.get(name)
    if not isinstance(found, str) or not _is_safe(found):
        raise LoginRefused("The provider's description names no safe address.")
    return found


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1"))


def _challenge(verifier: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def _secret(path: Path | None) -> str | None:
    return path.read_text().strip() if path is not None else None
