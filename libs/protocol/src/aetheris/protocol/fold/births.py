"""Where a signed birth counts, and which may be a copy of one that nobody has read here (ADR 9).

Stands before whoever judges records by their signatures: an offset, and what a birth says of its place, decide.
"""

from collections.abc import Collection

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.messages.events import JobCreated


class BirthJudge:
    """Judges births in log order, each as it is read.

    `of_any`: of whichever partition; for who shows one job, read from where it lies.
    """

    def __init__(self, *, of_any: bool = False) -> None:
        self._of_any = of_any
        self._since = 0
        self._live: Collection[tuple[str, int]] = ()
        self._over: set[str] = set()

    def begin(self, since: int, live: Collection[tuple[str, int]] = ()) -> None:
        """From here on records are read from offset `since` on; nothing is known of what lies below.

        `live`: jobs of which it is known otherwise that they live, each with the offset of its birth.
        """
        self._since, self._live = since, live

    def lies_where_written(self, record: Record, event: JobCreated) -> bool:
        """A signed birth that lies elsewhere, or far behind, is one that was laid there once more."""
        if event.as_of is None or not event.as_of < record.offset <= event.as_of + REACH:
            return False
        return self._of_any or event.partition == record.partition

    def takes(self, job_id: str, offset: int, as_of: int | None) -> bool:
        """Whether a birth that counts by all else is the first of its job, for all that is known here.

        If another may lie below, written by who had read less, then its job is over. `as_of` None: it is not signed.
        """
        if as_of is None or as_of >= self._since - 1 or (job_id, offset) in self._live:
            return True
        self._over.add(job_id)
        return False

    def is_over(self, job_id: str) -> bool:
        """Whether a job was created before what is read here; of such there are no more than are within reach."""
        return job_id in self._over
