"""Effects that a question to the outside has found: each settles the try that sent its key."""

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Decision, Emit
from aetheris.ledger.core.memory import PartitionMemory
from aetheris.ledger.core.settlement import Key
from aetheris.protocol.fold.state import KeyState, St
from aetheris.protocol.messages import events as ev


class ProbeFindings:
    """Of one partition; `unsettled` holds those that the next `decide` settles, with their jobs."""

    def __init__(self, memory: PartitionMemory) -> None:
        self._memory = memory
        self.unsettled: list[tuple[str, ev.InvocationProbed]] = []

    def take(self, job_id: str, probed: ev.InvocationProbed) -> None:
        """An effect was found."""
        self.unsettled.append((job_id, probed))

    def decided(self) -> list[Decision]:
        """What they settle."""
        found, self.unsettled = self.unsettled, []
        return [emit for job_id, probed in found if (emit := self._settle(job_id, probed)) is not None]

    def _settle(self, job_id: str, probed: ev.InvocationProbed) -> Emit | None:
        job = self._memory.jobs.get(job_id)
        state = job.state.keys.get(probed.idempotency_key) if job is not None else None
        if job is None or state is None or state.st is St.SETTLED or probed.invocation_id not in state.live:
            return None
        if probed.external_key != state.tries[probed.invocation_id].external_key:
            return None
        return settlement.found(Key(job.state, probed.idempotency_key, state), _sender(state, probed), probed)


def _sender(state: KeyState, probed: ev.InvocationProbed) -> str:
    """A late answer: where the try in charge sends the same key, it is that one's effect that may have been found."""
    sender = state.n if state.n in state.live else None
    same = sender is not None and state.tries[sender].external_key == probed.external_key
    return sender if sender is not None and same else probed.invocation_id
