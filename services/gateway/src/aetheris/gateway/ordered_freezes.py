"""A person's word that calls are frozen, or may go on: into `freezes`, which every partition's ledger answers there."""

from aetheris.gateway.awaited import Awaited
from aetheris.gateway.command_writer import SOURCE
from aetheris.gateway.commands import Reply
from aetheris.gateway.core import bodies, frozen
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem
from aetheris.gateway.operator_gate import OperatorGate
from aetheris.gateway.order_writer import OrderWriter
from aetheris.protocol.api_operations import FreezeBody, FreezeView
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import FreezeOrder
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.planning.gate import HumanAction
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.log.order_table import OrderTable


class OrderedFreezes:
    """What is frozen, as far as this gateway has read."""

    def __init__(
        self,
        table: OrderTable[FreezeOrders],
        writer: OrderWriter,
        operators: OperatorGate,
    ) -> None:
        self._table = table
        self._orders = table.orders
        self._writer = writer
        self._operators = operators
        self._awaited = Awaited()
        table.listen(self._awaited.changed)

    async def all(self, caller: Principal) -> list[FreezeView]:
        """Those in force that concern the caller's tenant; all of them, for who administers.

        Raises:
            Unavailable.
        """
        count = await self._writer.count()
        return [frozen.shown(order, self._orders, count, caller) for order in frozen.visible(self._orders, caller)]

    async def freeze(self, caller: Principal, raw: bytes) -> Reply[FreezeView]:
        """Take an order; answered where every partition's ledger has. What is frozen already stays so.

        Raises:
            BadRequest, Forbidden, Conflict (somebody ended it meanwhile), Unavailable.
        """
        wanted = bodies.read(FreezeBody, raw)
        scope = frozen.scope_of(wanted, caller)
        last = await self._last(scope)
        if last is None or not last.frozen:
            frozen.check_room(self._orders)
            number = 1 if last is None else last.number + 1
            last = await self._write(
                frozen.order(scope, number, wanted.reason, caller, self._writer.now(), begins=True)
            )
        return await self._answered(last, caller)

    async def unfreeze(self, caller: Principal, raw: bytes) -> Reply[FreezeView]:
        """Let go on what is frozen; answered where every partition's ledger has.

        Raises:
            BadRequest, Conflict (it is not frozen, or is again), Unavailable.
            Forbidden: it is not his to end, or the policy names others.
        """
        wanted = bodies.read(FreezeBody, raw)
        scope = frozen.scope_of(wanted, caller)
        last = await self._last(scope)
        if last is None or not last.frozen:
            raise ConflictProblem("not_frozen", f"{scope} is not frozen")
        frozen.check_end(last, caller)
        activation = await self._operators.check(caller, HumanAction.UNFREEZE)
        ending = frozen.order(scope, last.number, wanted.reason, caller, self._writer.now(), begins=False)
        ending = ending.model_copy(update={"activation": activation})
        return await self._answered(await self._write(ending), caller)

    async def _write(self, order: FreezeOrder) -> FreezeOrder:
        record = draft(Topic.FREEZES, order, key=order.key, id=fresh_id(), source=SOURCE, time=order.at)
        async with self._writer.deadlines.deadline():
            await self._writer.append(record)
            await self._table.caught_up()
        return order

    async def _last(self, scope: FreezeScope) -> FreezeOrder | None:
        """The scope's last order in the topic as of now: another gateway may have written it."""
        async with self._writer.deadlines.deadline():
            await self._table.caught_up()
        return self._orders.last(scope.key)

    async def _answered(self, order: FreezeOrder, caller: Principal) -> Reply[FreezeView]:
        """Of two who order the same at once the first is recorded, and both are told so.

        Raises:
            Conflict: it is not as ordered; the order came too late and is void, or another came behind it.
        """
        count = await self._writer.count()
        is_answered = await self._awaited.until(lambda: self._is_answered(order, count), self._writer.answer_s)
        last = self._in_force(order)
        return Reply(is_answered, frozen.shown(last, self._orders, count, caller))

    def _is_answered(self, order: FreezeOrder, count: int) -> bool:
        self._in_force(order)
        return len(self._orders.answers(order.key)) >= count

    def _in_force(self, order: FreezeOrder) -> FreezeOrder:
        """The scope's last order, which says what `order` does; raises Conflict where it does not."""
        last = self._orders.last(order.key)
        if last is None or last.frozen != order.frozen or last.number < order.number:
            code, words = ("not_frozen", "was let go") if order.frozen else ("frozen_again", "was frozen again")
            raise ConflictProblem(code, f"{order.scope} {words} meanwhile")
        return last
