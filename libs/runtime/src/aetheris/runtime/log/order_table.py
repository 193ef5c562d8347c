"""What people have ordered of all partitions, from a topic of its own, and who wants to know: one for a process."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from aetheris.protocol.messages.commands import NumberedOrder, PartitionAnswer
from aetheris.protocol.tables.numbered_orders import NumberedOrders
from aetheris.protocol.tables.signed_messages import IsTheirs
from aetheris.runtime.log.table import Table

OrdersT = TypeVar("OrdersT", bound=NumberedOrders[Any, Any])
Ordered = NumberedOrder | PartitionAnswer
Listener = Callable[[Ordered], None]


class OrderTable(Generic[OrdersT]):
    """All orders in their order, and the answers to the last of each key."""

    def __init__(self, table: Table, orders: OrdersT, is_theirs: IsTheirs | None = None) -> None:
        """Before the table is loaded: which record counts is said by those before it."""
        self.orders = orders
        self._is_theirs = is_theirs
        self._listeners: set[Listener] = set()
        self._table = table
        table.on_change(self._take)

    async def caught_up(self) -> None:
        """Everything that is ordered now is known here.

        Raises:
            LogUnreachable: no answer from the brokers.
        """
        await self._table.caught_up()

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every order and every answer that counts from now on."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Call it no longer."""
        self._listeners.discard(listener)

    def _take(self, key: str, value: bytes | None) -> None:
        record: Ordered | None = self.orders.read(value or b"")
        if record is None or record.key != key or not self._counts(record, value or b""):
            return
        if self.orders.hear(record):
            for listener in tuple(self._listeners):
                listener(record)

    def _counts(self, record: Ordered, value: bytes) -> bool:
        """The gateway orders, the ledger answers, and nobody else."""
        if self._is_theirs is None:
            return True
        return self._is_theirs(self._table.topic, record.type_name, record.key.encode(), value)
