"""Large values beside a partition's turn: a store that is away holds up nobody but who needs it."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import structlog

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import BlobError, BlobName, Blobs, BlobsUnreachable

_log = structlog.get_logger(__name__)

PATIENCE_S = 0.2
"""For so long a turn waits for a store that answered the last time; for one that didn't it doesn't wait at all."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
KEPT_S = 60.0

Wake = Callable[[], None]


class BlobTraffic:
    """Loads and puts that go on by themselves, again and again; one for a process."""

    def __init__(self, blobs: Blobs, clock: Clock) -> None:
        self._blobs = blobs
        self._clock = clock
        self._loads: dict[str, tuple[asyncio.Task[Any], float]] = {}
        """By sha256, and when it was last asked for."""
        self._wakes: dict[str, list[Wake]] = {}
        self._away: str | None = None
        self._away_since_s = 0.0

    def reported(self) -> Mapping[str, object]:
        """Why the store can't be reached, and for how long; empty where it answers."""
        if self._away is None:
            return {}
        return {"reason": self._away, "for_s": round(self._clock.monotonic() - self._away_since_s, 1)}

    async def values(self, refs: Mapping[str, int], wake: Wake) -> dict[str, Any]:
        """The JSON values (sha256 → size) that are there; `wake` is called when another one is."""
        self._forget()
        asked = {sha256: self._asked(BlobName(sha256, size)) for sha256, size in refs.items()}
        await self._patiently(asked.values())
        if all(load.done() for load in asked.values()):
            for sha256 in asked:
                self._loads.pop(sha256, None)
        for sha256, load in asked.items():
            if not load.done() and wake not in self._wakes.setdefault(sha256, []):
                self._wakes[sha256].append(wake)
        ended = {sha256: load.result() for sha256, load in asked.items() if load.done()}
        return {sha256: held[0] for sha256, held in ended.items() if held is not None}

    async def kept(self, values: Sequence[bytes]) -> "asyncio.Task[None] | None":
        """Put them all; None where they are kept, else the task that ends when they are."""
        putting = asyncio.create_task(self._put_all(values))
        await self._patiently([putting])
        if not putting.done():
            return putting
        putting.result()
        return None

    async def insist(self, ask: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The answer of a store that is asked until it gives one.

        Raises:
            BlobMissing, BlobCorrupt.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                answer = await ask()
            except BlobsUnreachable as error:
                self._lost(str(error))
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self._found()
                return answer

    def _asked(self, ref: BlobName) -> "asyncio.Task[Any]":
        load, _ = self._loads.get(ref.sha256, (None, 0.0))
        if load is None:
            load = asyncio.create_task(self._load(ref))
        self._loads[ref.sha256] = load, self._clock.monotonic()
        return load

    def _forget(self) -> None:
        """Values that came, and that nobody has asked for since."""
        before_s = self._clock.monotonic() - KEPT_S
        for sha256 in [name for name, (load, at_s) in self._loads.items() if load.done() and at_s < before_s]:
            del self._loads[sha256]

    async def _patiently(self, tasks: Iterable["asyncio.Task[Any]"]) -> None:
        waited = [task for task in tasks if not task.done()]
        if waited:
            await asyncio.wait(waited, timeout=PATIENCE_S if self._away is None else 0.0)
            if self._away is None and any(not task.done() for task in waited):
                self._lost("it does not answer")

    async def _load(self, ref: BlobName) -> tuple[Any] | None:
        try:
            return (json.loads(await self.insist(lambda: self._blobs.get(ref))),)
        except BlobError as error:
            _log.warning("a result can't be read", sha256=ref.sha256, error=type(error).__name__)
            await self._clock.sleep(FIRST_PAUSE_S)
            return None
        finally:
            for wake in self._wakes.pop(ref.sha256, ()):
                asyncio.get_running_loop().call_soon(wake)

    async def _put_all(self, values: Sequence[bytes]) -> None:
        await asyncio.gather(*(self.insist(lambda data=data: self._blobs.put(data)) for data in values))

    def _lost(self, reason: str) -> None:
        if self._away is None:
            self._away_since_s = self._clock.monotonic()
            _log.warning("the store of blobs is away: only what needs it waits", reason=reason)
        self._away = reason

    def _found(self) -> None:
        if self._away is not None:
            _log.info("the store of blobs answers again")
        self._away = None
