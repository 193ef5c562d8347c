"""Leases in Redis: who is running a key now. A missing lease is no evidence (docs/guarantees.md, "Ledger")."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.resp import Command

# A holder keeps its lease, or takes it up again where Redis has lost it; it never takes another's.
_EXTEND = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


_SERVER: Command = ("INFO", "server")


class Lease(NamedTuple):
    """A key, who holds it, and for how long after the last heartbeat."""

    idempotency_key: str
    lease_id: str
    ttl_s: float


class Leases:
    """Batches of leases, each batch one pipeline with the connection's deadline."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._names, self._epoch_name = redis.named("aetheris:lease:"), redis.named("aetheris:epoch")
        self._epochs: frozenset[str] | None = None
        self._asking = asyncio.Lock()  # of two answers that cross, neither would be the first

    async def grant(self, leases: Sequence[Lease]) -> None:
        """Set these leases; the ledger decided it from its fold, so an older holder is replaced.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        await self._redis.pipeline(
            [("SET", self._names + lease.idempotency_key, lease.lease_id, "PX", _ms(lease.ttl_s)) for lease in leases]
        )

    async def extend(self, leases: Sequence[Lease]) -> list[bool]:
        """A heartbeat: renew each lease, also one that Redis lost; False where another holds the key.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        commands: list[Command] = [
            ("EVAL", _EXTEND, 1, self._names + lease.idempotency_key, lease.lease_id, _ms(lease.ttl_s))
            for lease in leases
        ]
        return [reply == 1 for reply in await self._redis.pipeline(commands)]

    async def held(self, keys: Sequence[str]) -> list[bool]:
        """Whether anyone holds each key. False is no evidence: ask `data_lost` too.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        if not keys:
            return []
        found = await self._redis.pipeline([("GET", self._names + key) for key in keys])
        return [value is not None for value in found]

    async def lasting_s(self, keys: Sequence[str]) -> list[float | None]:
        """For how many seconds each key's lease lasts, if nobody renews it; None: there is none, which is no evidence.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        if not keys:
            return []
        found = await self._redis.pipeline([("PTTL", self._names + key) for key in keys])
        return [ms / 1000 if ms >= 0 else None for ms in found]

    async def release(self, leases: Sequence[Lease]) -> None:
        """Give up these leases, where they are still ours.

        Raises:
            RedisUnavailable: not within the deadline; they lapse by themselves.
        """
        await self._redis.pipeline(
            [("EVAL", _RELEASE, 1, self._names + lease.idempotency_key, lease.lease_id) for lease in leases]
        )

    async def data_lost(self) -> bool:
        """Whether Redis may have lost leases since the last call (the first call: before it).

        True if the epoch that lies beside the leases of a master is missing or another one, or that server was
        restarted or is another one (the last second of writes, or what its replica had not yet, is then gone). The
        ledger then waits before it doubts anything.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        async with self._asking:
            fresh = secrets.token_hex(8)
            answers = await self._redis.each(
                lambda tag: [("SET", self._epoch_name + (f":{{{tag}}}" if tag else ""), fresh, "NX", "GET"), _SERVER]
            )
            found = [(old.decode() if isinstance(old, bytes) else fresh, _run_id(info)) for old, info in answers]
            epochs = frozenset(f"{epoch}:{run}" for epoch, run in found)
            # A master that has gone gave its slots to others first, or one of those is new.
            lost = any(epoch == fresh for epoch, _ in found) if self._epochs is None else not epochs <= self._epochs
            self._epochs = epochs
            return lost


def _ms(ttl_s: float) -> int:
    return max(1, round(ttl_s * 1000))


def _run_id(info: object) -> str:
    text = info.decode() if isinstance(info, bytes) else str(info)
    return next((line[7:].strip() for line in text.splitlines() if line.startswith("run_id:")), "")
