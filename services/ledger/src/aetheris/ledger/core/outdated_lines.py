"""Lines of ledger.contents that say a call is under way, and came when it was not any more.

A ledger that has lost its partition, or has died, may leave one behind the end of its call, or of its whole job:
whatever means the same would wait for it for ever. The owner of the job's partition says again how the call stands.
"""

from aetheris.ledger.core.decisions import Decision, DuplicateLine, Now
from aetheris.ledger.core.duplicate_index import released, settled
from aetheris.ledger.core.live_jobs import LiveJobs
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.sealed import UnreadCreations
from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages.commands import ContentRecord


class OutdatedLines:
    """Of one partition: the open lines of its jobs' calls that were read since the last `decide`."""

    def __init__(self, live_jobs: LiveJobs, unread: UnreadCreations) -> None:
        self._live_jobs = live_jobs
        self._unread = unread
        self._read: dict[str, ContentRecord] = {}
        """By execution_id; one whose job's creation is not read yet waits for that."""

    def take(self, line: ContentRecord) -> bool:
        """A line of this partition was read; whether it can be judged now."""
        if line.state != "open":
            self._read.pop(line.execution_id, None)
            return False
        self._read[line.execution_id] = line
        return self._is_judged(line)

    @property
    def unwritten(self) -> bool:
        """Whether there is one to be judged."""
        return any(map(self._is_judged, self._read.values()))

    def decided(self, now: Now) -> list[Decision]:
        """What is said again."""
        judged = [line for line in self._read.values() if self._is_judged(line)]
        decisions: list[Decision] = []
        for line in judged:
            del self._read[line.execution_id]
            if (again := self._corrected(line, now)) is not None:
                self._live_jobs.context.duplicates.take(again)
                decisions.append(DuplicateLine(again))
        return decisions

    def _is_judged(self, line: ContentRecord) -> bool:
        return line.creation_offset <= self._live_jobs.folded and line.job_id not in self._unread

    def _corrected(self, line: ContentRecord, now: Now) -> ContentRecord | None:
        """How the call stands, where it is not under way; None where it is, or another line says so already."""
        duplicates = self._live_jobs.context.duplicates
        held = duplicates.line(line.job_id, line.execution_id)
        if held is None or held.state != "open":
            return held
        live = self._live_jobs.jobs.get(line.job_id)
        if live is None:
            return held.model_copy(update={"state": "void"})
        job = live.state
        key = next((key for key in job.node_keys.get(line.node_id, ()) if _is_of(line, key)), None)
        if key is not None and job.keys[key].status is KeyStatus.SETTLED:
            return settled(job, key, duplicates, now)
        if job.terminal is None:
            return None
        return next((void for void in released(job, duplicates) if void.execution_id == line.execution_id), None)


def _is_of(line: ContentRecord, key: str) -> bool:
    return line.execution_id == execution_id(line.job_id, line.node_id, key)
