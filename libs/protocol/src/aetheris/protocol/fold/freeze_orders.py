"""What has been ordered frozen, and who has answered, as the topic `freezes` says in its order (docs/freeze.md)."""

from collections.abc import Iterable, Mapping

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.fold.start import frozen_by
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import FreezeAnswer, FreezeOrder

_NOTHING: Mapping[int, FreezeAnswer] = {}


class FreezeOrders:
    """The last order of each scope; all who have read the topic as far say the same."""

    def __init__(self) -> None:
        self._last: dict[FreezeScope, FreezeOrder] = {}
        self._in_force: dict[FreezeScope, FreezeOrder] = {}
        self._answers: dict[FreezeScope, dict[int, FreezeAnswer]] = {}

    def take(self, order: FreezeOrder) -> bool:
        """Take the next order; whether it counts: it begins the scope's next freeze, or ends the one in force."""
        last = self._last.get(order.scope)
        if order.frozen:
            counts = order.number == 1 if last is None else not last.frozen and order.number == last.number + 1
        else:
            counts = last is not None and last.frozen and order.number == last.number
        if not counts:
            return False
        self._last[order.scope] = order
        self._answers.pop(order.scope, None)
        if order.frozen:
            self._in_force[order.scope] = order
        else:
            self._in_force.pop(order.scope, None)
        return True

    def answer(self, answer: FreezeAnswer) -> bool:
        """Take a partition's answer; whether it is one to the last order of its scope."""
        last = self._last.get(answer.scope)
        if last is None or (last.number, last.frozen) != (answer.number, answer.frozen):
            return False
        self._answers.setdefault(answer.scope, {})[answer.partition] = answer
        return True

    def answers(self, scope: FreezeScope) -> Mapping[int, FreezeAnswer]:
        """The answers to its last order, by partition."""
        return self._answers.get(scope, _NOTHING)

    def last(self, scope: FreezeScope) -> FreezeOrder | None:
        """The last order that counts."""
        return self._last.get(scope)

    def all(self) -> Iterable[FreezeOrder]:
        """The last order of each scope."""
        return tuple(self._last.values())

    def in_force(self) -> Iterable[FreezeOrder]:
        """The freezes in force."""
        return self._in_force.values()

    def has(self, scope: FreezeScope, number: int) -> bool:
        """Whether a freeze of that number was ordered, as far as was read."""
        last = self._last.get(scope)
        return last is not None and number <= last.number

    def is_over(self, order: FreezeOrder) -> bool:
        """Whether this reader has read that a freeze is over."""
        last = self._last.get(order.scope)
        return last is not None and (last.number > order.number or (last.number == order.number and not last.frozen))

    def holding(self, tenant: str, agent: str, tool: str | None) -> FreezeOrder | None:
        """The freeze that holds a call of a tool, or of none, in such a job; the first of several."""
        if not self._in_force:
            return None
        return next((one for one in self._in_force.values() if one.scope.holds(tenant, agent, tool)), None)


def is_frozen(job: JobState, tool: str | None, orders: FreezeOrders) -> bool:
    """Whether a call of a tool, or of none, is held: the job carries a freeze of it, or one is ordered."""
    if job.frozen and frozen_by(job, tool) is not None:
        return True
    return orders.holding(job.created.tenant, job.created.submitted_by, tool) is not None
