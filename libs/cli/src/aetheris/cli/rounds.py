"""Work that is done again and again until it is told to stop, and says on /readyz whether it was done the last time."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress

from aetheris.cli.console import CommandError, progress
from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.runtime.process.health import Health
from aetheris.runtime.process.settings import RuntimeSettings, load
from aetheris.runtime.telemetry.metrics import Metrics

_NONE_YET = "no round is over yet"
_NOT_DONE = "the last round is not done: the log says what is missing"


class Rounds:
    """`turn` does it once, and says whether it is done: of a relay, whether the quorum has seen the log; it blocks."""

    def __init__(self, turn: Callable[[], bool]) -> None:
        self._turn = turn
        self._missing: str | None = _NONE_YET

    def unready(self) -> str | None:
        """What the last round has missed; None where nothing."""
        return self._missing

    async def run(self, every_s: float, health_port: int | None) -> None:
        """Until SIGINT or SIGTERM, which a process that is the first of its container must ask for."""
        stop = asyncio.Event()
        for told in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(told, stop.set)
        metrics = Metrics("relay")
        health = Health(metrics.exposition)
        health.add("rounds", self.unready)
        if health_port is not None:
            await health.start(load(RuntimeSettings).listen, health_port)
        try:
            while not stop.is_set():
                self._missing = await asyncio.to_thread(self._round)
                with suppress(TimeoutError):
                    async with asyncio.timeout(every_s):
                        await stop.wait()
        finally:
            await health.stop()
            metrics.close()

    def _round(self) -> str | None:
        try:
            return None if self._turn() else _NOT_DONE
        except (CommandError, EmbeddedError) as error:
            progress("no checkpoint", str(error))
            return str(error)
