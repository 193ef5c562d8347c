"""What people have frozen, as far as an executor of a partition must keep to it (docs/freeze.md); pure."""

from collections.abc import Sequence

from aetheris.protocol.base.freeze_scope import ScopeNames, names_holding
from aetheris.protocol.fold.start import tools_held
from aetheris.protocol.fold.state import JobState, PlanEntry
from aetheris.protocol.messages.commands import FreezeBarrier, FreezeOrder
from aetheris.protocol.tables.freeze_orders import FreezeOrders, is_frozen


class PartitionFreezes:
    """`orders` is what this process has read; what lies behind a barrier of the partition keeps the order in it."""

    def __init__(self, orders: FreezeOrders) -> None:
        self._orders = orders
        self._barred: dict[ScopeNames, FreezeOrder] = {}
        """The last freeze that lies behind a barrier of this partition, as far as it is known here, of each scope."""
        self.known()

    def known(self) -> None:
        """The order of every barrier that was heard is among the orders: else it is forged, and holds nothing.

        Whatever was answered below what is read from now on is among them, too.
        """
        self._barred = {names: one for names, one in self._barred.items() if self._orders.has(one.scope, one.number)}
        for order in self._orders.in_force():
            self.hear(FreezeBarrier(order=order))

    def hear(self, barrier: FreezeBarrier) -> None:
        """A barrier was read; the order may not have been. That a freeze is over only the orders say."""
        order, known = barrier.order, self._barred.get(barrier.order.scope.names)
        if order.frozen and (known is None or known.number < order.number):
            self._barred[order.scope.names] = order

    def is_known(self, barrier: FreezeBarrier) -> bool:
        """Whether the order of a barrier was read."""
        return self._orders.has(barrier.order.scope, barrier.order.number)

    def may_begin(self, job: JobState, entry: PlanEntry) -> bool:
        """Whether a call may be declared."""
        tools = tools_held(job, entry)
        return self._holding(job, tools) is None and not is_frozen(job, tools, self._orders)

    def may_call(self, job: JobState, entry: PlanEntry) -> bool:
        """Whether one that was declared may be made: behind an order it may, behind its barrier it may not."""
        return self._holding(job, tools_held(job, entry)) is None

    def _holding(self, job: JobState, tools: Sequence[str | None]) -> FreezeOrder | None:
        if not self._barred:
            return None
        names = names_holding(job.created.tenant, job.created.submitted_by, tools)
        barred = (self._barred[one] for one in names if one in self._barred)
        return next((one for one in barred if not self._orders.is_over(one)), None)
