"""A provider's public keys: fetched in the background, kept while it is away, asked for again when one is unknown."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import httpx
import structlog
from joserfc import jwk
from joserfc.jwk import ECKey, OKPKey, RSAKey

from aetheris.gateway.core.identity_providers import IdentityProvider, is_safe
from aetheris.gateway.core.problems import UnauthorizedProblem, Unavailable
from aetheris.runtime.base.clock import Clock

_log = structlog.get_logger(__name__)

PublicKey = RSAKey | ECKey | OKPKey

REFRESH_S = 300.0
"""After so long a key that the provider has withdrawn counts no more."""
_RETRY_S = 5.0
_UNKNOWN_PAUSE_S = 10.0
"""Between two fetches for the sake of unknown keys, which anybody may name."""
STALE_AFTER_S = 86_400.0
"""So long keys count of a provider that does not answer."""
_WITHIN_S = 5.0
_MAX_BYTES = 1024 * 1024
_MAX_KEYS = 100
_MIN_RSA_BITS = 2048
_MIN_MODULUS_CHARS = 342
"""Of such a key, in base64url."""


class _Unusable(Exception):
    """What the provider answers is not what it should be."""


class SigningKeys:
    """Of one provider, by their ids."""

    def __init__(
        self,
        provider: IdentityProvider,
        http: httpx.AsyncClient,
        clock: Clock,
        changed: Callable[[], None],
        *,
        dev: bool,
    ) -> None:
        """`changed` is called whenever other keys count than before."""
        self._provider = provider
        self._http = http
        self._clock = clock
        self._changed = changed
        self._dev = dev
        self._keys: dict[str | None, PublicKey] | None = None
        self._loaded_s = 0.0
        self._tried_s = float("-inf")
        self._loading: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Fetch them from time to time, until cancelled."""
        while True:
            await self._clock.sleep(REFRESH_S if await self.load() else _RETRY_S)

    async def find(self, key_id: str | None) -> PublicKey:
        """The key of an id; without one, the only key that there is.

        Raises:
            Unauthorized: the provider has no such key.
            Unavailable: nobody can tell, as the provider has not answered.
        """
        found = self._known(key_id)
        if found is None and self._clock.monotonic() - self._tried_s >= _UNKNOWN_PAUSE_S:
            await self.load()
            found = self._known(key_id)
        elif found is None and self._loading is not None:
            await asyncio.shield(self._loading)
            found = self._known(key_id)
        if self._keys is None or self._clock.monotonic() - self._loaded_s > STALE_AFTER_S:
            raise Unavailable("provider_unreachable", "the identity provider does not answer: try again")
        if found is None:
            raise UnauthorizedProblem("unknown_key")
        return found

    async def load(self) -> bool:
        """Fetch them now, or join who does; whether they could be had."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
            self._loading.add_done_callback(self._done)
        return await asyncio.shield(self._loading)

    def _done(self, _: asyncio.Task[bool]) -> None:
        self._loading = None

    def _known(self, key_id: str | None) -> PublicKey | None:
        keys = self._keys or {}
        if key_id is None:
            return next(iter(keys.values())) if len(keys) == 1 else None
        return keys.get(key_id)

    async def _load(self) -> bool:
        self._tried_s = self._clock.monotonic()
        try:
            async with asyncio.timeout(_WITHIN_S):
                keys = _usable((await self._get(await self._url())).get("keys"))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, _Unusable) as error:
            _log.warning("keys of an identity provider not fetched", issuer=self._provider.issuer, reason=_said(error))
            return False
        before, self._keys, self._loaded_s = self._keys, keys, self._clock.monotonic()
        if _thumbprints(before) != _thumbprints(keys):
            _log.info("keys of an identity provider", issuer=self._provider.issuer, keys=len(keys))
            self._changed()
        return True

    async def _url(self) -> str:
        """Where the keys are, by the provider's own description where no setting says so."""
        if self._provider.jwks_url is not None:
            return self._provider.jwks_url
        found = await self._get(f"{self._provider.issuer.rstrip('/')}/.well-known/openid-configuration")
        url = found.get("jwks_uri")
        if found.get("issuer") != self._provider.issuer or not isinstance(url, str):
            raise _Unusable("its description is another issuer's")
        if not is_safe(url, dev=self._dev):
            raise _Unusable("its keys are not at an https:// address")
        return url

    async def _get(self, url: str) -> Mapping[str, Any]:
        taken = bytearray()
        async with self._http.stream("GET", url, headers={"Accept": "application/json"}) as answer:
            if answer.status_code != 200:
                raise _Unusable(f"it answered {answer.status_code}")
            async for chunk in answer.aiter_bytes():
                taken += chunk
                if len(taken) > _MAX_BYTES:
                    raise _Unusable("its answer is too large")
        try:
            found: object = json.loads(bytes(taken))
        except (ValueError, RecursionError):
            raise _Unusable("its answer is not JSON") from None
        if not isinstance(found, dict):
            raise _Unusable("its answer is not a JSON object")
        return cast("Mapping[str, Any]", found)


def _usable(listed: object) -> dict[str | None, PublicKey]:
    """The public keys for signatures among those of a set; what else is in it is no fault."""
    if not isinstance(listed, list):
        raise _Unusable("its answer has no keys")
    found: dict[str | None, PublicKey] = {}
    for one in cast("list[object]", listed)[:_MAX_KEYS]:
        key = _key(cast("dict[str, Any]", one)) if isinstance(one, dict) else None
        if key is not None:
            found[key.kid] = key
    if not found:
        raise _Unusable("its answer has no key that signatures can be checked with")
    return found


def _key(body: dict[str, Any]) -> PublicKey | None:
    is_weak = body.get("kty") == "RSA" and len(str(body.get("n"))) < _MIN_MODULUS_CHARS
    if body.get("use", "sig") != "sig" or is_weak:
        return None
    try:
        key = jwk.import_key(body)
    except Exception:  # noqa: BLE001  whatever is wrong with a key of somebody else's: it is none
        return None
    if isinstance(key, RSAKey):
        return key if key.public_key.key_size >= _MIN_RSA_BITS else None
    return key if isinstance(key, ECKey | OKPKey) else None


def _thumbprints(keys: Mapping[str | None, PublicKey] | None) -> frozenset[tuple[str | None, str]] | None:
    return None if keys is None else frozenset((kid, key.thumbprint()) for kid, key in keys.items())


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, _Unusable) else type(error).__name__
