"""What has been ordered frozen, and who has answered, as the topic `freezes` says in its order (docs/freeze.md)."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from aetheris.protocol.base.freeze_scope import FreezeScope, ScopeNames, names_holding
from aetheris.protocol.fold.start import frozen_by
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import FreezeAnswer, FreezeOrder
from aetheris.protocol.tables.numbered_orders import NumberedOrders


class FreezeOrders(NumberedOrders[FreezeOrder, FreezeAnswer]):
    """The last order of each scope."""

    def __init__(self) -> None:
        super().__init__(FreezeOrder, FreezeAnswer)
        self._in_force: dict[ScopeNames, FreezeOrder] = {}

    def take(self, order: FreezeOrder) -> bool:
        """Take the next order; whether it counts: it begins the scope's next freeze, or ends the one in force."""
        if not super().take(order):
            return False
        if order.frozen:
            self._in_force[order.scope.names] = order
        else:
            self._in_force.pop(order.scope.names, None)
        return True

    def in_force(self) -> Collection[FreezeOrder]:
        """The freezes in force."""
        return self._in_force.values()

    def has(self, scope: FreezeScope, number: int) -> bool:
        """Whether a freeze of that number was ordered, as far as was read."""
        last = self.last(scope.key)
        return last is not None and number <= last.number

    def is_over(self, order: FreezeOrder) -> bool:
        """Whether this reader has read that a freeze is over."""
        last = self.last(order.key)
        return last is not None and (last.number > order.number or (last.number == order.number and not last.frozen))

    def holding(self, tenant: str, agent: str, tools: Iterable[str | None]) -> Iterator[FreezeOrder]:
        """The freezes in force of calls of these tools, or of none, in such a job; each is looked up."""
        if not self._in_force:
            return
        for names in names_holding(tenant, agent, tools):
            order = self._in_force.get(names)
            if order is not None:
                yield order

    def _follows(self, order: FreezeOrder, last: FreezeOrder | None) -> bool:
        if order.frozen:
            return order.number == 1 if last is None else not last.frozen and order.number == last.number + 1
        return last is not None and last.frozen and order.number == last.number

    def _is_to(self, answer: FreezeAnswer, order: FreezeOrder) -> bool:
        return (answer.number, answer.frozen) == (order.number, order.frozen)


def is_frozen(job: JobState, tools: Sequence[str | None], orders: FreezeOrders) -> bool:
    """Whether a call is held: the job carries a freeze of one of the tools that hold it, or one is ordered."""
    if job.frozen and frozen_by(job, *tools) is not None:
        return True
    return next(orders.holding(job.created.tenant, job.created.submitted_by, tools), None) is not None
