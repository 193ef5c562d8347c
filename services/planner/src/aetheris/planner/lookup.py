"""Reads jobs that submissions continue from the log: what these say is held against that (docs/continue.md)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import structlog

from aetheris.protocol.base.records import Record
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.planning.continuation import EndedJob, ended
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import LogError
from aetheris.runtime.log.job_lines import JobLine

KNOWN_WITHIN_S = 5.0
"""A job's line comes into its index a moment after its first events: this long it may be waited for."""
_AGAIN_S = 0.05
_READ_AGAIN_S = 1.0
"""After which what could not be read is tried again; twice as long after each further time, at most so:"""
_LONGEST_AGAIN_S = 60.0
_SAID_AFTER = 5
"""So often it is tried before the log has it."""

_log = structlog.get_logger(__name__)

ReadEnded = Callable[[str], Awaitable[EndedJob | None]]
"""A job of any partition as its stream has it now; None where there is none. Raises LogError."""


@dataclass(frozen=True)
class Jobs:
    """The jobs of all partitions."""

    line: Callable[[str], JobLine | None]
    history: JobLogReader
    first_partitions: int
    """How many the installation began with."""
    clock: Clock

    async def look_up(self, job_id: str) -> EndedJob | None:
        """A job and its first seal, as the log has them now; None where there is no such job.

        Raises:
            LogUnreachable, LogGap.
        """
        until_s = self.clock.monotonic() + KNOWN_WITHIN_S
        while (line := self.line(job_id)) is None:
            if self.clock.monotonic() >= until_s:
                return None
            await self.clock.sleep(_AGAIN_S)
        records = await self.history.read_all(job_id, line.lies_in(job_id, self.first_partitions), line)
        return await asyncio.to_thread(ended, records)


@dataclass(frozen=True, slots=True)
class LookUp:
    """A submission, the id of its command, and its record."""

    command: Submit
    command_id: str
    record: Record


class LookUps:
    """Of one partition; `wake` is called when one has been read."""

    def __init__(self, read: ReadEnded, clock: Clock, wake: Callable[[], None]) -> None:
        self._read = read
        self._clock = clock
        self._wake = wake
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._done: list[tuple[LookUp, EndedJob | None]] = []
        self._vain: set[int] = set()

    @property
    def unread(self) -> int:
        """How many of the jobs that are continued could not be read when they were looked at last."""
        return len(self._vain)

    @property
    def offsets(self) -> Iterable[int]:
        """Where the submissions lie that have not been taken yet."""
        return self._reading.keys()

    def begin(self, one: LookUp) -> None:
        """Read the job that a submission continues, as often as it takes."""
        self._reading[one.record.offset] = asyncio.create_task(self._look(one))

    def take(self) -> list[tuple[LookUp, EndedJob | None]]:
        """Those whose continued job has been read since the last call, with that job; None where there is none."""
        done, self._done = self._done, []
        for one, _ in done:
            del self._reading[one.record.offset]
        return done

    async def close(self) -> None:
        """They are somebody else's now."""
        self._vain.clear()
        for task in self._reading.values():
            task.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)

    async def _look(self, one: LookUp) -> None:
        continued = one.command.continues.job_id if one.command.continues is not None else ""
        tries, offset = 0, one.record.offset
        while True:
            try:
                found = await self._read(continued)
            except LogError as error:
                tries += 1
                self._vain.add(offset)
                if tries == _SAID_AFTER:
                    _log.warning("a continuation waits", job_id=continued, code=error.code, reason=str(error))
                await self._clock.sleep(min(_READ_AGAIN_S * 2 ** min(tries - 1, 10), _LONGEST_AGAIN_S))
                continue
            except Exception as error:  # noqa: BLE001 - it concerns this submission alone
                _log.error("a continued job can't be judged", job_id=continued, error=type(error).__name__)
                found = None
            self._vain.discard(offset)
            self._done.append((one, found))
            self._wake()
            return
