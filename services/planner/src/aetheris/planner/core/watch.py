"""Jobs that go on no more and wait for nobody: what nothing in the log, and no call under way, explains; pure."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from aetheris.planner.core.decisions import Output
from aetheris.planner.core.progress import JobProgress
from aetheris.planner.core.steps import is_untouched
from aetheris.protocol.fold.start import frozen_by
from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.plan.graph import Kind, Retry

STUCK_AFTER_S = 60.0
UNPINNED_TIMEOUT_S = 30.0
"""The longest that a kind without a tool may run."""
ANSWER_TIMEOUT_S = 120.0
"""The longest that a model takes, unless its configuration says otherwise."""

MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class StuckJob:
    """A job that nothing has happened to for `quiet_s`, and its requests, said again."""

    job_id: str
    waits_for: str
    quiet_s: float
    outputs: tuple[Output, ...]


@dataclass(slots=True)
class _Quiet:
    since_s: float
    looked_s: float


@dataclass(slots=True)
class StuckJobWatch:
    """The jobs that should go on by themselves, in the order in which they are to be looked at: O(1) an event.

    Times are seconds of one monotonic clock.
    """

    after_s: float = STUCK_AFTER_S
    stuck: set[str] = field(default_factory=set)
    """Reported, and nothing has happened since."""
    _quiet: OrderedDict[str, _Quiet] = field(default_factory=OrderedDict)

    def follow(self, progress: JobProgress, now_s: float) -> bool:
        """Something has happened to a job just now; whether it goes on by itself."""
        job_id = progress.job.job_id
        self.stuck.discard(job_id)
        self._quiet.pop(job_id, None)
        if rests(progress):
            return False
        self._quiet[job_id] = _Quiet(now_s, now_s)
        return True

    def clear(self) -> None:
        """Somebody else has the jobs now."""
        self.stuck.clear()
        self._quiet.clear()

    @property
    def moving(self) -> int:
        """How many jobs should go on by themselves."""
        return len(self._quiet)

    def next_due(self) -> float | None:
        """When the next job is to be looked at; None if none is."""
        first = next(iter(self._quiet.values()), None)
        return first.looked_s + self.after_s if first is not None else None

    def due(self, now_s: float) -> Iterator[tuple[str, float]]:
        """The jobs to look at now, each with how long it has been quiet; each comes again after `after_s`."""
        while (due_s := self.next_due()) is not None and due_s <= now_s:
            job_id, quiet = self._quiet.popitem(last=False)
            self._quiet[job_id] = _Quiet(quiet.since_s, now_s)
            yield job_id, now_s - quiet.since_s


def explained_s(progress: JobProgress) -> float:
    """For how long the calls under way may be silent: the longest timeout, or pause between two tries."""
    return max((_silence_s(progress, key) for key in progress.running), default=0.0)


def waits_for(progress: JobProgress) -> str:
    """What a job that should go on lacks, by node."""
    keys = [progress.job.keys[key] for key in progress.running]
    lacks = [
        ("the outcome of", [state.node_id for state in keys if state.status is KeyStatus.STARTED]),
        ("another try of", [state.node_id for state in keys if state.status is KeyStatus.REOPENED]),
        ("the start of", unstarted(progress)),
    ]
    reported = [f"{what} {_names(nodes)}" for what, nodes in lacks if nodes]
    return " and ".join(reported) or ("its plan" if progress.job.revision < 0 else "its own end")


def unstarted(progress: JobProgress) -> list[str]:
    """The nodes that were asked for and that nobody has taken up."""
    if progress.is_stopping:
        return []
    asking = {progress.job.keys[key].node_id for key in progress.asking}
    asked = progress.sent.requests - progress.ended - asking - _without_executor(progress)
    return sorted(node_id for node_id in asked if is_untouched(progress, node_id))


def waits_for_tries(progress: JobProgress) -> bool:
    """Whether all that is left to do is another try, each after a long pause."""
    if not progress.running or not progress.running <= progress.long_pauses:
        return False
    keys = (progress.job.keys[key] for key in progress.running)
    return all(state.status is KeyStatus.REOPENED for state in keys) and not unstarted(progress)


def rests(progress: JobProgress) -> bool:
    """Whether the job has ended, or goes on only when a human, a signal, a time or an upgrade comes.

    One that is paused or frozen goes on when that is over; what is under way ends by itself.
    """
    job = progress.job
    if job.terminal is not None or job.sealed or job.needs_upgrade:
        return True
    if job.paused is not None or frozen_by(job, None) is not None:
        return not any(job.keys[key].status is KeyStatus.STARTED for key in progress.running)
    if not progress.waits:
        return False
    as_a_whole = any(node_id is None for _, node_id in job.open_waits)
    return as_a_whole or (not _at_work(progress) and not unstarted(progress))


def may_rest(progress: JobProgress) -> bool:
    """Whether it goes on only when a human, a signal or a time comes, and nothing of it is to be decided before."""
    job = progress.job
    if job.terminal is not None or job.needs_upgrade or job.stopping is not None or job.paused is not None:
        return False
    is_asked_for = all(not is_untouched(progress, node_id) for node_id in progress.ready)  # in history they pile up
    return is_asked_for and rests(progress)


def _without_executor(progress: JobProgress) -> set[str]:
    """The nodes whose calls wait for an executor that serves them: the log says so, and asks for them."""
    open_waits = progress.job.open_waits
    return (
        {node_id for kind, node_id in open_waits if kind == "executor" and node_id is not None} if open_waits else set()
    )


def _at_work(progress: JobProgress) -> set[str]:
    """The keys of calls, but for those that wait for an executor to be tried again."""
    held, keys = _without_executor(progress), progress.job.keys
    if not held:
        return progress.at_work
    return {
        key for key in progress.at_work if not (keys[key].status is KeyStatus.REOPENED and keys[key].node_id in held)
    }


def _silence_s(progress: JobProgress, key: str) -> float:
    state = progress.job.keys[key]
    entry = progress.job.entry(state.node_id)
    if entry is None:
        return 0.0
    if state.status is KeyStatus.REOPENED:
        return (entry.node.retry or Retry()).max_backoff_s if state.retry_due is not None else 0.0
    if entry.pin is None:
        return ANSWER_TIMEOUT_S if entry.node.kind is Kind.LLM else UNPINNED_TIMEOUT_S
    return (entry.timeout_s or entry.pin.timeout_s) + entry.pin.settles_s


def _names(nodes: list[str]) -> str:
    more = f" and {len(nodes) - MAX_NAMES} more" if len(nodes) > MAX_NAMES else ""
    return ", ".join(sorted(nodes)[:MAX_NAMES]) + more
