"""The records of a sealed job: from the log, or, where that has let go of them, from the archive."""

from collections.abc import Sequence

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import ArchiveUnusable, Log, LogError
from aetheris.runtime.log.job_lines import line_of
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.table import Table

READERS = 4
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
        self._partitions = 0

    async def of(self, job_id: str) -> Sequence[Record]:
        """All records of a job, in log order.

        Raises:
            RecordsAway, NoRecords.
        """
        try:
            self._partitions = self._partitions or await self._log.partitions(Topic.JOBS_EVENTS)
            line = line_of(self._index.get, job_id)
            if line is None:
                await self._index.caught_up()
                line = line_of(self._index.get, job_id)
            if line is None:
                raise NoRecords("unknown_job")
            return await self._history.read_all(job_id, partition_of(job_id, self._partitions), line)
        except ArchiveUnusable as error:
            raise (RecordsAway if error.code in _PASSES else NoRecords)(error.code) from None
        except LogError as error:
            raise RecordsAway(error.code) from None
        except ValueError:
            raise NoRecords("bad_index_line") from None
