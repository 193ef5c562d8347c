"""Effects that a question to the external system has found: each settles the try that sent its key."""

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Decision, Emit
from aetheris.ledger.core.live_jobs import LiveJobs
from aetheris.ledger.core.settlement import JobKey
from aetheris.protocol.fold.state import KeyState, KeyStatus
from aetheris.protocol.messages import events as ev


class ProbeFindings:
    """Of one partition; `unsettled` holds those that the next `decide` settles, with their jobs."""

    def __init__(self, live_jobs: LiveJobs) -> None:
        self._live_jobs = live_jobs
        self.unsettled: list[tuple[str, ev.InvocationProbed]] = []

    def take(self, job_id: str, probed: ev.InvocationProbed) -> None:
        """An effect was found."""
        self.unsettled.append((job_id, probed))

    def decided(self) -> list[Decision]:
        """What they settle."""
        found, self.unsettled = self.unsettled, []
        return [emit for job_id, probed in found if (emit := self._settle(job_id, probed)) is not None]

    def _settle(self, job_id: str, probed: ev.InvocationProbed) -> Emit | None:
        job = self._live_jobs.jobs.get(job_id)
        state = job.state.keys.get(probed.idempotency_key) if job is not None else None
        if (
            job is None
            or state is None
            or state.status is KeyStatus.SETTLED
            or probed.invocation_id not in state.unresolved
        ):
            return None
        if probed.external_key != state.invocations[probed.invocation_id].external_key:
            return None
        return settlement.found(JobKey(job.state, probed.idempotency_key, state), _sender(state, probed), probed)


def _sender(state: KeyState, probed: ev.InvocationProbed) -> str:
    """A late answer: where the try in charge sends the same key, it is that one's effect that may have been found."""
    sender = state.current_invocation if state.current_invocation in state.unresolved else None
    same = sender is not None and state.invocations[sender].external_key == probed.external_key
    return sender if sender is not None and same else probed.invocation_id
