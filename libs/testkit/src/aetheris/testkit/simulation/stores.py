"""The simulated Redis: leases and effects, which may vanish or not answer at any time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aetheris.protocol.messages.events import Event
from aetheris.tool_executor.core.reports import effect_value

Holders = Callable[[str], bool]
"""Whether a running executor renews the lease of a key."""


@dataclass(slots=True)
class SimRedis:
    """Leases in virtual time. Heartbeats are not simulated one by one: a lease is there while its holder runs."""

    ttl_s: float
    up: bool = True
    epoch: int = 0
    flushed_s: float = float("-inf")
    _leases: dict[str, float] = field(default_factory=dict[str, float])
    _locks: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    _effects: dict[str, dict[str, tuple[Event, ...]]] = field(default_factory=dict[str, dict[str, tuple[Event, ...]]])

    _spoilt: dict[tuple[str, str], bytes] = field(default_factory=dict[tuple[str, str], bytes])

    def flush(self, now_s: float) -> None:
        """FLUSHALL."""
        self._leases.clear()
        self._locks.clear()
        self._effects.clear()
        self.epoch += 1
        self.flushed_s = now_s

    def lease(self, key: str, now_s: float) -> None:
        """A lease for one TTL, as a grant or a last heartbeat leaves it."""
        self._leases[key] = now_s + self.ttl_s

    def held(self, key: str, now_s: float, holders: Holders) -> bool:
        """Whether somebody has a lease."""
        if self._leases.get(key, 0.0) > now_s:
            return True
        return now_s - self.flushed_s >= self.ttl_s / 3 and holders(key)

    def lock(self, key: str, owner: str, now_s: float) -> bool:
        """SET NX PX: what a system without a log would trust (an ablation does)."""
        held = self._locks.get(key)
        if held is not None and held[1] > now_s and held[0] != owner:
            return False
        self._locks[key] = (owner, now_s + self.ttl_s)
        return True

    def put(self, key: str, invocation_id: str, events: Sequence[Event]) -> None:
        """Keep what a try returned."""
        if self.up:
            self._effects.setdefault(key, {})[invocation_id] = tuple(events)

    def find(self, key: str) -> Mapping[str, bytes]:
        """invocation_id → what was kept, as JSON."""
        held = self._effects.get(key, {})
        return {
            invocation_id: self._spoilt.get((key, invocation_id)) or effect_bytes(events)
            for invocation_id, events in held.items()
        }

    def spoil(self, key: str, invocation_id: str, value: bytes) -> None:
        """Somebody has written something else in the place of an effect."""
        self._spoilt[key, invocation_id] = value

    def stored(self) -> list[tuple[str, str, tuple[Event, ...]]]:
        """Key, invocation_id and events of every effect."""
        return [
            (key, invocation_id, events)
            for key, held in self._effects.items()
            for invocation_id, events in held.items()
        ]

    def drop(self, key: str) -> None:
        """Forget the effects of a key."""
        if self.up:
            self._effects.pop(key, None)


def effect_bytes(events: Sequence[Event]) -> bytes:
    """An effect as its executor keeps it."""
    return effect_value([event.model_dump_json(exclude_none=True, by_alias=True).encode() for event in events])
