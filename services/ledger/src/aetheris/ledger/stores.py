"""What the core asks of Redis and of the blob store, and what their silence means (docs/guarantees.md)."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from aetheris.ledger.core.decisions import Facts, Look, Nonces
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import BlobError, BlobRef, Blobs, BlobsUnreachable
from aetheris.runtime.redis.client import RedisUnavailable
from aetheris.runtime.redis.effects import EffectStore
from aetheris.runtime.redis.leases import Lease, Leases

_AGAIN_S = 1.0

_log = structlog.get_logger(__name__)


class Stores:
    """One for a process: whether Redis has lost data is found out once, for all partitions."""

    def __init__(self, leases: Leases, effects: EffectStore, blobs: Blobs, clock: Clock) -> None:
        self._leases = leases
        self._effects = effects
        self._blobs = blobs
        self._clock = clock
        self._lost_s: float | None = None
        self._silent = False

    async def facts(self, look: Look) -> Facts:
        """The answers to what the core must know; what could not be asked is None."""
        if not (look.effects or look.leases or look.blobs):
            return Facts()
        held, effects = await self._held(look.leases), await self._found(look.effects)
        return Facts(effects, held, self._lost_s, await self._loaded(look.blobs))

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

    async def keep(self, blobs: Sequence[bytes]) -> None:
        """Store large results before the events that refer to them; waits for a store that does not answer."""
        await asyncio.gather(*(self._put(data) for data in blobs))

    async def _put(self, data: bytes) -> None:
        while True:
            try:
                await self._blobs.put(data)
            except BlobsUnreachable as error:
                _log.warning("a result can't be kept: it is tried again", reason=str(error))
                await self._clock.sleep(_AGAIN_S)
            else:
                return

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

    async def _found(self, keys: Sequence[tuple[str, str]]) -> Mapping[str, Nonces] | None:
        try:
            found = await self._effects.find(keys)
        except RedisUnavailable:
            self._not_answered()
            return None
        return {key: nonces for (_, key), nonces in zip(keys, found, strict=True)}

    async def _loaded(self, blobs: Mapping[str, int]) -> Mapping[str, Any]:
        """What can be read; a blob that can't is asked for again later."""
        loaded: dict[str, Any] = {}
        for sha256, size in blobs.items():
            try:
                loaded[sha256] = json.loads(await self._blobs.get(BlobRef(sha256, size)))
            except BlobError as error:
                _log.warning("a result can't be read", sha256=sha256, error=type(error).__name__)
        return loaded

    def _not_answered(self) -> None:
        """Heartbeats did not arrive either: leases lapse, and that is no evidence."""
        if not self._silent:
            self._silent = True
            self._lost_s = self._clock.monotonic()
            _log.warning("redis does not answer: nothing is doubted for a while")
