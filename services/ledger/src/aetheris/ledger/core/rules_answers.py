"""A partition's barrier of later rules, and its answer to who ordered them (ADR 9)."""

from aetheris.ledger.core.decisions import Barrier, RulesTaken
from aetheris.ledger.core.live_jobs import LiveJobs
from aetheris.protocol.messages import event_base
from aetheris.protocol.messages.commands import RulesAnswer, RulesBarrier, RulesOrder
from aetheris.protocol.tables.rules_orders import PartitionRules


class RulesAnswers:
    """Of one partition; what is owed follows from the topic and from the barriers that were read."""

    def __init__(self, live_jobs: LiveJobs, rules: PartitionRules) -> None:
        self._live_jobs = live_jobs
        self._rules = rules
        self._raised = event_base.FIRST_RULES
        """The highest version of which this process has written a barrier."""
        self._told: set[int] = set()
        """The versions that it has answered."""

    @property
    def is_due(self) -> bool:
        """Whether something is to be written now."""
        return self._live_jobs.is_restored and (self._lacking is not None or bool(self._owed))

    def decided(self) -> list[Barrier | RulesTaken]:
        """The barrier, and when it was read the answer, each once."""
        if not self._live_jobs.is_restored:
            return []
        decided: list[Barrier | RulesTaken] = []
        order = self._lacking
        if order is not None:
            self._raised = order.number
            decided.append(Barrier(RulesBarrier(number=order.number, order=order.line)))
        for version, offset in self._owed:
            self._told.add(version)
            decided.append(RulesTaken(RulesAnswer(number=version, partition=self._live_jobs.number, barrier=offset)))
        return decided

    @property
    def _lacking(self) -> RulesOrder | None:
        """The order that has no barrier here; one that this version doesn't know waits for who does."""
        order = self._rules.orders.active
        if order is None or order.number <= self._raised or order.number not in event_base.KNOWN_RULES:
            return None
        return None if order.number in self._rules.barred else order

    @property
    def _owed(self) -> list[tuple[int, int]]:
        """Barriers that were read, of what is known to be ordered, and that the topic lacks."""
        known = self._rules.orders
        return [one for one in self._rules.unanswered() if one[0] not in self._told and known.is_ordered(one[0])]
