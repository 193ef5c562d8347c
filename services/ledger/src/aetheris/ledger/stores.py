"""What the core asks of Redis and of the blob store, and what their silence means (docs/guarantees.md)."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from aetheris.ledger.core.decisions import Facts, ResultsByInvocation, ToFetch
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.traffic import BlobTraffic, Wake
from aetheris.runtime.redis.client import RedisUnavailable
from aetheris.runtime.redis.effects import EffectStore
from aetheris.runtime.redis.leases import Lease, Leases

_AGAIN_S = 1.0

_log = structlog.get_logger(__name__)


class Stores:
    """One for a process: whether Redis has lost data is found out once, for all partitions."""

    def __init__(self, leases: Leases, effects: EffectStore, traffic: BlobTraffic, clock: Clock) -> None:
        self._leases = leases
        self._effects = effects
        self._traffic = traffic
        self._clock = clock
        self._lost_s: float | None = None
        self._silent = False

    async def facts(self, wanted: ToFetch, wake: Wake) -> Facts:
        """The answers to what the core must know; what could not be asked is None.

        `wake` is called when a large result has come that was not there yet.
        """
        if not (wanted.effects or wanted.leases or wanted.blobs):
            return Facts()
        held, effects = await self._held(wanted.leases), await self._found(wanted.effects)
        blobs = await self._traffic.values(wanted.blobs, wake) if wanted.blobs else {}
        return Facts(effects, held, self._lost_s, blobs)

    async def begin(self) -> None:
        """Notice what Redis lost while no ledger looked."""
        try:
            await self._notice_loss()
        except RedisUnavailable:
            self._not_answered()

    async def grant(self, leases: Sequence[Lease]) -> None:
        """Set leases; without Redis the grants go out all the same, and are doubted later."""
        try:
            await self._leases.grant(leases)
        except RedisUnavailable:
            self._not_answered()

    async def forget(self, keys: Sequence[tuple[str, str]]) -> None:
        """Drop the effects of (job_id, key): they are settled in the log."""
        try:
            await self._effects.drop(keys)
        except RedisUnavailable:
            self._not_answered()

    async def keep(self, blobs: Sequence[bytes]) -> "asyncio.Task[None] | None":
        """Store large results before the events that refer to them; None, or what ends once they are stored."""
        return await self._traffic.kept(blobs)

    async def _held(self, keys: Sequence[str]) -> Mapping[str, bool] | None:
        if not keys:
            return {}
        try:
            held = await self._leases.held(keys)
            await self._notice_loss()  # after the look: what was lost before it is then known
            return dict(zip(keys, held, strict=True))
        except RedisUnavailable:
            self._not_answered()
            return None

    async def _notice_loss(self) -> None:
        if await self._leases.data_lost() or self._silent:
            self._lost_s = self._clock.monotonic()
            _log.warning("redis may have lost leases: nothing is doubted for a while")
        self._silent = False

    async def _found(self, keys: Sequence[tuple[str, str]]) -> Mapping[str, ResultsByInvocation] | None:
        try:
            found = await self._effects.find(keys)
        except RedisUnavailable:
            self._not_answered()
            return None
        return {key: stored_results for (_, key), stored_results in zip(keys, found, strict=True)}

    def _not_answered(self) -> None:
        """Heartbeats did not arrive either: leases lapse, and that is no evidence."""
        if not self._silent:
            self._silent = True
            self._lost_s = self._clock.monotonic()
            _log.warning("redis does not answer: nothing is doubted for a while")
