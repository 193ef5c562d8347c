"""Who has said yes to what, counted from the records alone, by no code of the ledger."""

from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.messages.events import ApprovalDecided, ApprovalRequested, ApprovalVoted, Event
from aetheris.testkit.simulation.scenario import TENANT


class Ballots:
    """Of every key: what its newest request asks for, and who might say yes and did, up to the first decision."""

    def __init__(self) -> None:
        self._asked: dict[str, ApprovalRequested] = {}
        self._yes: dict[str, set[str]] = {}
        self._approved: dict[str, bool] = {}

    def note(self, event: Event, submitted_by: str) -> None:
        """The next record of a job that `submitted_by` asked for."""
        match event:
            case ApprovalRequested(idempotency_key=key):
                known = self._asked.get(key)
                if known is None or event.generation > known.generation:
                    self._asked[key], self._yes[key] = event, set()
                    self._approved.pop(key, None)
            case ApprovalVoted(idempotency_key=key) if key in self._asked:
                if self._may(event, submitted_by) and event.generation == self._asked[key].generation:
                    self._yes[key].add(event.approver)
            case ApprovalDecided(idempotency_key=key, decision=Decision.APPROVE) if key in self._asked:
                if event.generation == self._asked[key].generation:
                    needed = self._asked[key].approvals or 0
                    self._approved.setdefault(key, len(self._yes[key]) >= needed)
            case _:
                pass

    def enough(self, key: str) -> bool:
        """Whether what was decided about a key first had the votes that its request asks for."""
        return self._approved.get(key, True)

    def _may(self, vote: ApprovalVoted, submitted_by: str) -> bool:
        who, asked = vote.principal, self._asked[vote.idempotency_key]
        is_person = who is not None and (who.id, who.kind, who.tenant) == (vote.approver, "person", TENANT)
        return is_person and vote.approver not in (submitted_by, asked.edited_by)
