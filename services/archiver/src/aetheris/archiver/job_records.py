"""The records of a sealed job: from the log, or, where that has let go of them, from the archive."""

from collections.abc import Sequence
from dataclasses import replace

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import ArchiveUnusable, Log, LogError
from aetheris.runtime.log.job_lines import JobLine, line_of
from aetheris.runtime.log.table import Table

READERS = 4
WHOLE_WITHIN_S = 300.0
"""For a job that is looked for in all of its partition, from its birth on."""
_PASSES = frozenset({"archive_missing", "blobs_unreachable"})
"""What a store may come to have; what else is wrong with a bundle stays so."""


class RecordsAway(Exception):
    """They can't be had now, and may be later; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class NoRecords(Exception):
    """They will not be had; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class SealedJobReader:
    """By jobs.index, which is read whole."""

    def __init__(self, log: Log, index: Table, history: JobLogReader) -> None:
        self._log = log
        self._index = index
        self._history = history

    async def of(self, job_id: str, at_least: int = 0) -> Sequence[Record]:
        """All records of a job, in log order; of those behind its seal, at least as many as make it so many.

        Raises:
            RecordsAway, NoRecords.
        """
        try:
            line = line_of(self._index.get, job_id)
            if line is None:
                await self._index.caught_up()
                line = line_of(self._index.get, job_id)
            if line is None:
                raise NoRecords("unknown_job")
            return await self._read(job_id, line, at_least)
        except ArchiveUnusable as error:
            raise (RecordsAway if error.code in _PASSES else NoRecords)(error.code) from None
        except LogError as error:
            raise RecordsAway(error.code) from None
        except ValueError:
            raise NoRecords("bad_index_line") from None

    async def _read(self, job_id: str, line: JobLine, at_least: int) -> Sequence[Record]:
        partition = line.lies_in(job_id, await self._log.partitions(Topic.JOBS_INDEX))
        found = await self._history.read_all(job_id, partition, line)
        if len(found) >= at_least:
            return found
        place = (str(Topic.JOBS_EVENTS), partition)
        if line.birth < (await self._log.beginning_offsets([place]))[place]:
            raise RecordsAway("behind_untold")  # of what no bundle has yet the index comes to tell
        return await self._history.read_all(job_id, partition, replace(line, stretches=()), WHOLE_WITHIN_S)
