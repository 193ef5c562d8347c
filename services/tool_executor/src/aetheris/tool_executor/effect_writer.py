"""PutEffect, in groups: while one pipeline is under way further effects gather, then go as one."""

import asyncio
from collections.abc import Sequence

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.redis.client import RedisUnavailable
from aetheris.runtime.redis.effects import EffectEntry, EffectStore

Keeping = asyncio.Future[bool]
"""Whether an effect was kept."""


class EffectWriter:
    """Writes effects with a deadline; past it, or without Redis, the caller goes on: the log is the truth."""

    def __init__(self, store: EffectStore, clock: Clock, deadline_s: float, pause_s: float) -> None:
        self._store = store
        self._clock = clock
        self._deadline_s = deadline_s
        self._pause_s = pause_s
        self._resting_until = clock.monotonic()
        self._gathered: list[tuple[EffectEntry, Keeping]] = []
        self._writing: asyncio.Task[None] | None = None

    def put(self, effect: EffectEntry) -> Keeping:
        """Begin to write; it is sent when the caller next waits, with those of other calls that ended together."""
        keeping: Keeping = asyncio.get_running_loop().create_future()
        if self._clock.monotonic() < self._resting_until:
            keeping.set_result(False)
            return keeping
        self._gathered.append((effect, keeping))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return keeping

    async def _write(self) -> None:
        group: list[tuple[EffectEntry, Keeping]] = []
        try:
            while self._gathered:
                group, self._gathered = self._gathered, []
                kept = await self._kept([effect for effect, _ in group])
                for _, keeping in group:
                    if not keeping.done():
                        keeping.set_result(kept)
        except Exception as error:  # noqa: BLE001  a bug here must reach whoever waits, and end the process
            for _, keeping in (*group, *self._gathered):
                if not keeping.done():
                    keeping.set_exception(error)
            self._gathered = []
        finally:
            self._writing = None

    async def _kept(self, effects: Sequence[EffectEntry]) -> bool:
        try:
            await self._store.put(effects, self._deadline_s)
        except RedisUnavailable:
            self._resting_until = self._clock.monotonic() + self._pause_s
            return False
        return True
