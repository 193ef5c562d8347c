"""PutEffect, in groups: while one pipeline is under way further effects gather, then go as one."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aetheris.streams.clock import Clock
from aetheris.streams.effects import Effect, EffectStore
from aetheris.streams.redis import RedisUnavailable


@dataclass(slots=True)
class _Waiting:
    """An effect whose writer waits: for what came of it, or for its turn, with the others to write beside its own."""

    effect: Effect
    turn: "asyncio.Future[bool | list[_Waiting]]"


class EffectWriter:
    """Writes effects with a deadline; past it, or without Redis, the caller goes on: the log is the truth."""

    def __init__(self, store: EffectStore, clock: Clock, deadline_s: float, pause_s: float) -> None:
        self._store = store
        self._clock = clock
        self._deadline_s = deadline_s
        self._pause_s = pause_s
        self._resting_until = clock.monotonic()
        self._gathered: list[_Waiting] = []
        self._busy = False

    async def put(self, effect: Effect) -> bool:
        """Whether the effect was kept."""
        if self._clock.monotonic() < self._resting_until:
            return False
        waiting = _Waiting(effect, asyncio.get_running_loop().create_future())
        self._gathered.append(waiting)
        if not self._busy:
            self._busy = True
            try:
                await asyncio.sleep(0)  # calls that ended together are written together
            except asyncio.CancelledError:
                waiting.turn.cancel()
                raise
            finally:
                self._hand_over()
        told = await waiting.turn
        return told if isinstance(told, bool) else await self._lead(effect, told)

    async def _lead(self, effect: Effect, others: Sequence[_Waiting]) -> bool:
        kept = False
        try:
            kept = await self._write([effect, *(other.effect for other in others)])
        finally:
            for other in others:
                if not other.turn.done():
                    other.turn.set_result(kept)
            self._hand_over()
        return kept

    def _hand_over(self) -> None:
        """The first of those who gathered writes for all of them."""
        group = [one for one in self._gathered if not one.turn.done()]
        self._gathered = []
        self._busy = bool(group)
        if group:
            group[0].turn.set_result(group[1:])  # without itself: a ring would stay until the collector looks

    async def _write(self, effects: Sequence[Effect]) -> bool:
        try:
            await self._store.put(effects, self._deadline_s)
        except RedisUnavailable:
            self._resting_until = self._clock.monotonic() + self._pause_s
            return False
        return True
