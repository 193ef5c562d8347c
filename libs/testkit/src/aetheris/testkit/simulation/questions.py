"""Which calls a human is asked about, and which tries were declared while that was so."""

from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.messages.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    InvocationReopened,
    ToolInvocationStarted,
)


class QuestionWatch:
    """Of all jobs."""

    def __init__(self) -> None:
        self._asked: set[str] = set()
        self._unanswered: set[str] = set()

    def note(self, event: Event, *, counts: bool) -> None:
        """The next record: a question that counts, a yes, a retry by hand, which is asked about anew, or a try."""
        match event:
            case ApprovalRequested(idempotency_key=key) if counts:
                self._asked.add(key)
            case ApprovalDecided(decision=Decision.APPROVE, idempotency_key=key) if counts:
                self._asked.discard(key)
            case InvocationReopened(by="human", idempotency_key=key) if counts:
                self._asked.discard(key)
            case ToolInvocationStarted(idempotency_key=key) if key in self._asked:
                self._unanswered.add(event.invocation_id)
            case _:
                pass

    def is_behind_one(self, invocation_id: str) -> bool:
        """Whether a try was declared behind a question that had no yes."""
        return invocation_id in self._unanswered
