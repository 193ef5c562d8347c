"""What the planner asks for: taken up when the fold has come to where it was, discharged when the log says enough."""

import heapq
from collections.abc import Container
from dataclasses import dataclass

from aetheris.ledger.core.adjudication import is_closed
from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs, Pending
from aetheris.ledger.core.timer_queue import Item
from aetheris.protocol.messages.commands import ToolRequest


@dataclass(slots=True)
class _Ahead:
    """A request that the fold has not caught up with."""

    request: ToolRequest
    parent: bytes | None
    at_s: float | None


class NodeRequests:
    """The requests of one partition, by their offsets."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes, unread: Container[str]) -> None:
        """`unread`: the jobs whose creation this version can't read."""
        self._live_jobs = live_jobs
        self._unread = unread
        self._due = due
        self._ahead: list[tuple[int, int, _Ahead]] = []
        self._open: dict[int, None] = {}

    @property
    def waits_for_fold(self) -> bool:
        """Whether one is here that the fold has not caught up with."""
        return bool(self._ahead)

    def take(self, request: ToolRequest, offset: int, parent: bytes | None, at_s: float | None = None) -> None:
        """It is judged when the fold has come to where its writer was; appended at `at_s`, in seconds since 1970."""
        self._open[offset] = None
        heapq.heappush(self._ahead, (max(request.as_of, request.birth), offset, _Ahead(request, parent, at_s)))

    def admit(self, now: Now) -> None:
        """What the fold has caught up with is due."""
        while self._ahead and self._ahead[0][0] <= self._live_jobs.folded:
            _, offset, ahead = heapq.heappop(self._ahead)
            self._admit(ahead, offset, now)

    def discharge(self, job: LiveJob, node_id: str) -> None:
        """The log says what became of the node, or waits for it by itself."""
        pending = job.pending.pop(node_id, None)
        if pending is not None and pending.offset is not None:
            self._open.pop(pending.offset, None)

    def discharge_all(self, job: LiveJob) -> None:
        """Nothing of the job is asked for any more."""
        for node_id in tuple(job.pending):
            self.discharge(job, node_id)

    def waits_for_upgrade(self, job_id: str, job: LiveJob | None) -> bool:
        """Whether this version can't read all of the job."""
        return job_id in self._unread or (job is not None and job.state.needs_upgrade)

    def oldest(self) -> int | None:
        """The offset of the oldest one that is not discharged."""
        return min(self._open, default=None)

    def _admit(self, ahead: _Ahead, offset: int, now: Now) -> None:
        request = ahead.request
        job = self._live_jobs.jobs.get(request.job_id)
        if self.waits_for_upgrade(request.job_id, job):
            return  # it is open for whoever can read the job: nobody asks him again
        if job is None or not _in_force(job, request):
            del self._open[offset]
            return
        node_id = request.nodes[0]
        known = job.pending.get(node_id)
        delay_s = now.seconds_until(request.not_before)
        asked_s = None if ahead.at_s is None else ahead.at_s + max(delay_s, 0.0)
        pending = Pending(request.nodes, offset, ahead.parent, now.mono_s + delay_s, asked_s)
        if known is not None:
            pending.asked_s = known.asked_s or asked_s
            pending.grants, pending.due_s, pending.offered = known.grants, known.due_s, known.offered
            self.discharge(job, node_id)
        job.pending[node_id] = pending
        self._due.put(pending.due_s, Item("node", request.job_id, node_id))


def _in_force(job: LiveJob, request: ToolRequest) -> bool:
    state = job.state
    return (
        (state.creation_offset, state.revision) == (request.birth, request.revision)
        and state.plan_hash == request.plan_hash
        and not is_closed(state, state.entry(request.nodes[0]))
    )
