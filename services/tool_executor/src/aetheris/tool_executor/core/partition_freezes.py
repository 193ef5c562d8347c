"""What people have frozen, as far as an executor of a partition must keep to it (docs/freeze.md); pure."""

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.fold.freeze_orders import FreezeOrders, is_frozen
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import FreezeMark, FreezeOrder


class PartitionFreezes:
    """`orders` is what this process has read; the partition's marks say which of them what lies behind them keeps."""

    def __init__(self, orders: FreezeOrders) -> None:
        self._orders = orders
        self._marked: dict[FreezeScope, FreezeOrder] = {}
        """The last freeze that lies behind a mark of this partition, as far as it is known here, of each scope."""
        self.known()

    def known(self) -> None:
        """Every order below a mark that was heard is among the orders: a mark of none is forged, and holds nothing.

        Whatever was answered below what is read from now on is among them, too.
        """
        self._marked = {scope: one for scope, one in self._marked.items() if self._orders.has(scope, one.number)}
        for order in self._orders.in_force():
            self.hear(FreezeMark(order=order))

    def hear(self, mark: FreezeMark) -> None:
        """A mark was read; the order may not have been. That a freeze is over only the orders say."""
        order, known = mark.order, self._marked.get(mark.order.scope)
        if order.frozen and (known is None or known.number < order.number):
            self._marked[order.scope] = order

    def is_known(self, mark: FreezeMark) -> bool:
        """Whether the order of a mark was read."""
        return self._orders.has(mark.order.scope, mark.order.number)

    def may_begin(self, job: JobState, tool: str | None) -> bool:
        """Whether a call of a tool, or of none, may be declared."""
        return self._holding(job, tool) is None and not is_frozen(job, tool, self._orders)

    def may_call(self, job: JobState, tool: str | None) -> bool:
        """Whether one that was declared may be made: what was ordered may still act, what is marked may not."""
        return self._holding(job, tool) is None

    def _holding(self, job: JobState, tool: str | None) -> FreezeOrder | None:
        if not self._marked:
            return None
        created = job.created
        marked = (one for one in self._marked.values() if not self._orders.is_over(one))
        return next((one for one in marked if one.scope.holds(created.tenant, created.submitted_by, tool)), None)
