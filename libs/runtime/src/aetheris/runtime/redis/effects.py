"""The effect store: what a try returned, kept beside the log so that a crash between effect and append is bridged."""

from collections.abc import Sequence
from typing import NamedTuple

from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.resp import Command


class EffectEntry(NamedTuple):
    """What one invocation of a key returned, as JSON bytes."""

    job_id: str
    idempotency_key: str
    invocation_id: str
    value: bytes


class EffectStore:
    """Effects by (job_id, idempotency_key), each with the invocation_id that had it."""

    def __init__(self, redis: Redis, ttl_s: float) -> None:
        self._redis = redis
        self._names = redis.named("aetheris:effect:")
        self._ttl_ms = round(ttl_s * 1000)

    async def put(self, effects: Sequence[EffectEntry], deadline_s: float | None = None) -> None:
        """Keep all of them, in one pipeline.

        Raises:
            RedisUnavailable: not within the deadline; the caller goes on (the log is the truth).
        """
        commands: list[Command] = []
        for effect in effects:
            name = self._name(effect.job_id, effect.idempotency_key)
            commands.append(("HSET", name, effect.invocation_id, effect.value))
            commands.append(("PEXPIRE", name, self._ttl_ms))
        await self._redis.pipeline(commands, deadline_s)

    async def find(self, keys: Sequence[tuple[str, str]]) -> list[dict[str, bytes]]:
        """The effects of each (job_id, idempotency_key): invocation_id → JSON bytes; {} where there is none.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        replies = await self._redis.pipeline(
            [("HGETALL", self._name(job_id, key)) for job_id, key in keys], refusals=True
        )
        return [_by_invocation(reply) for reply in replies]

    async def drop(self, keys: Sequence[tuple[str, str]]) -> None:
        """Forget the effects of these keys: they are settled in the log.

        Raises:
            RedisUnavailable: not within the deadline; they expire by themselves.
        """
        if keys:
            await self._redis.pipeline([("UNLINK", self._name(job_id, key)) for job_id, key in keys])

    def _name(self, job_id: str, key: str) -> str:
        return f"{self._names}{job_id}:{key}"


def _by_invocation(reply: list[bytes] | Exception) -> dict[str, bytes]:
    """HGETALL's flat reply, ids and values in turn; refused where the name holds something else."""
    if isinstance(reply, Exception):
        return {}
    return {
        invocation_id.decode(errors="replace"): value
        for invocation_id, value in zip(reply[::2], reply[1::2], strict=True)
    }
