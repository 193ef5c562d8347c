"""Reads a job of any partition from the log: what a continuation says of it is held against this (docs/continue.md)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aetheris.protocol.planning.continuation import EndedJob, ended
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.job_lines import JobLine
from aetheris.runtime.log.partitioning import partition_of

KNOWN_WITHIN_S = 5.0
"""A job's line comes into its index a moment after its first events: this long it may be waited for."""
_AGAIN_S = 0.05


@dataclass(frozen=True)
class Jobs:
    """The jobs of all partitions."""

    line: Callable[[str], JobLine | None]
    history: JobLogReader
    partitions: int
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
        partition = partition_of(job_id, self.partitions)
        records = await self.history.read_all(job_id, partition, line)
        return await asyncio.to_thread(ended, records)
