"""Heartbeats: the leases of all grants in hand, renewed by one pipeline. Safety never rests on them."""

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.redis.client import RedisUnavailable
from aetheris.runtime.redis.leases import Lease, Leases


class Heartbeat:
    """The leases that this process holds."""

    def __init__(self, leases: Leases, ttl_s: float, clock: Clock) -> None:
        self._leases = leases
        self._ttl_s = ttl_s
        self._clock = clock
        self._holders: dict[Lease, int] = {}
        self.conflicts = 0
        """How often a lease turned out to be somebody else's."""

    def hold(self, idempotency_key: str, lease_id: str) -> None:
        """Renew this lease until every holder has let go: a grant may come twice."""
        lease = Lease(idempotency_key, lease_id, self._ttl_s)
        self._holders[lease] = self._holders.get(lease, 0) + 1

    def let_go(self, idempotency_key: str, lease_id: str) -> None:
        """One holder less; without any, the lease lapses."""
        lease = Lease(idempotency_key, lease_id, self._ttl_s)
        left = self._holders.pop(lease, 0) - 1
        if left > 0:
            self._holders[lease] = left

    async def run(self) -> None:
        """Renew, three times in the life of a lease, until cancelled."""
        while True:
            await self._clock.sleep(self._ttl_s / 3)
            await self.beat()

    async def beat(self) -> None:
        """Renew all leases once, as far as Redis is there."""
        if not self._holders:
            return
        try:
            renewed = await self._leases.extend(list(self._holders))
        except RedisUnavailable:
            return
        self.conflicts += renewed.count(False)
