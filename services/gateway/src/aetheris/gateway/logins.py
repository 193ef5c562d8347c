"""Who calls: by a token of the file, or by one of a provider that is trusted. Refusals are counted, told and slowed."""

import structlog

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import TooMany, UnauthorizedProblem
from aetheris.gateway.core.throttle import Throttle
from aetheris.gateway.openid import OpenId
from aetheris.gateway.tokens import Tokens
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.telemetry.metrics import Metric, Metrics

_log = structlog.get_logger(__name__)

MAX_TOKEN_CHARS = 8192
_JWT_DOTS = 2


class Logins:
    """Of all requests. A token can't be guessed, so one that is good is let in whatever else came from its address."""

    def __init__(self, tokens: Tokens, openid: OpenId | None, metrics: Metrics, clock: Clock) -> None:
        self._tokens = tokens
        self._openid = openid
        self._metrics = metrics
        self._clock = clock
        self._throttle = Throttle()

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants that are known of: of the file's tokens, and of those who came by a provider."""
        return self._tokens.tenants | (self._openid.tenants if self._openid is not None else frozenset())

    async def principal(self, authorization: str | None, address: str) -> Principal:
        """Who sent this Authorization header, from that address.

        Raises:
            Unauthorized: it names no token that counts.
            TooMany: the same, once more than may be tried.
            Unavailable: the keys of its provider can't be had.
        """
        try:
            token = _bearer(authorization)
            if self._openid is None or token.count(".") != _JWT_DOTS:
                return self._tokens.principal(token)
            return self._openid.known(token) or await self._openid.principal(token)
        except UnauthorizedProblem as refused:
            raise self._refused(refused, address) from None

    def counts(self, authorization: str | None) -> bool:
        """Whether a token that was good for a request that is still open is so now."""
        try:
            token = _bearer(authorization)
            if self._openid is not None and token.count(".") == _JWT_DOTS:
                return self._openid.known(token) is not None
            self._tokens.principal(token)
        except UnauthorizedProblem:
            return False
        return True

    def _refused(self, refused: UnauthorizedProblem, address: str) -> UnauthorizedProblem | TooMany:
        wait_s = self._throttle.failed(address, self._clock.monotonic())
        self._metrics.count(Metric.LOGINS_REFUSED, reason=refused.reason if wait_s is None else "throttled")
        if wait_s is None:
            _log.warning("login refused", reason=refused.reason, address=address)
            return refused
        return TooMany("failed_logins", "too many logins have failed: try again with a token that is known", wait_s)


def _bearer(authorization: str | None) -> str:
    """The token of a header; raises Unauthorized."""
    if not authorization:
        raise UnauthorizedProblem("none")
    if len(authorization) > MAX_TOKEN_CHARS:
        raise UnauthorizedProblem("oversized")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise UnauthorizedProblem("scheme")
    return token.strip()
