"""Which tools are in quarantine, for people to see: written by ledgers, read by gateways; nothing rests on it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from aetheris.runtime.redis.client import Redis

_LASTS_MS = 24 * 3600 * 1000
"""A partition that nobody writes of any more is forgotten."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A tool whose calls wait, as one partition's ledger sees it."""

    tenant: str
    tool: str
    until: str
    """RFC 3339: when the next call is let through."""
    failures: int
    """In a row."""

    @property
    def reported(self) -> str:
        """In words, for who waits for it."""
        return f"tool {self.tool} is in quarantine until {self.until}: its last {self.failures} calls failed"


_SHOWN = TypeAdapter(tuple[Quarantined, ...])


class QuarantineStore:
    """A line for each partition: all of its tools that are in quarantine."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._names = redis.named("aetheris:quarantine:")

    async def show(self, partition: int, found: Sequence[Quarantined]) -> None:
        """What is so in a partition from now on.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        name, value = f"{self._names}{partition}", _SHOWN.dump_json(tuple(found))
        await self._redis.pipeline([("SET", name, value, "PX", _LASTS_MS) if found else ("DEL", name)])

    async def shown(self, partitions: Iterable[int], now: str) -> list[Quarantined]:
        """What was said of these partitions and is not over at `now`.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        held = await self._redis.pipeline([("GET", f"{self._names}{partition}") for partition in partitions])
        return [one for value in held if value is not None for one in _parsed(value) if one.until > now]


def _parsed(value: bytes) -> Sequence[Quarantined]:
    try:
        return _SHOWN.validate_json(value)
    except ValidationError:
        return ()
