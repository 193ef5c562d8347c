"""A person's word that jobs are created under later rules: into `policies`, which every partition's ledger answers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from aetheris.gateway.awaited import Awaited
from aetheris.gateway.command_writer import SOURCE
from aetheris.gateway.commands import Reply
from aetheris.gateway.core import bodies, rules_versions
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem
from aetheris.gateway.order_writer import OrderWriter
from aetheris.protocol.api_operations import RulesBody, RulesOrderView, RulesView
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import RULES_KEY
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.registry_lines import DEFAULT_POOL
from aetheris.protocol.tables.attendants import Attendant
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.log.order_table import OrderTable

SERVICES = ("planner", "ledger", "prober", "verifier", rules_versions.GATEWAY)
"""Beside executors, whose processes say which rules they know, each when it joins the group of its service."""

EXECUTORS = "tool_executor"

AttendantsOf = Callable[[str], Awaitable[Mapping[str, Attendant]]]


class OrderedRules:
    """What is ordered, as far as this gateway has read."""

    def __init__(
        self,
        table: OrderTable[RulesOrders],
        writer: OrderWriter,
        known: AttendantsOf,
        pools: Callable[[], Iterable[str]],
    ) -> None:
        """`known`: the live members of a consumer group, and what each knows; raises LogUnreachable.

        `pools`: of executors, each a group of its own.
        """
        self._table = table
        self._orders = table.orders
        self._writer = writer
        self._ask = known
        self._pools = pools
        self._awaited = Awaited()
        table.listen(self._awaited.changed)

    async def view(self) -> RulesView:
        """Under which version jobs are created, and who knows which; raises Unavailable."""
        await self._caught_up()
        return rules_versions.view(self._orders, await self._writer.count(), await self._known())

    async def order(self, caller: Principal, raw: bytes) -> Reply[RulesOrderView]:
        """Have jobs created under a later version; answered where every partition's ledger has.

        Raises:
            BadRequest, Conflict (a live process doesn't know it; nothing was written), Unavailable.
        """
        wanted = bodies.read(RulesBody, raw)
        await self._caught_up()
        rules_versions.check(wanted.version, self._orders, await self._known())
        if wanted.version > self._orders.version:
            made = rules_versions.order(wanted, caller, self._writer.now())
            record = draft(Topic.POLICIES, made, key=made.key, id=fresh_id(), source=SOURCE, time=made.at)
            async with self._writer.deadlines.deadline():
                await self._writer.append(record)
                await self._table.caught_up()
        return await self._answered(wanted.version)

    async def _caught_up(self) -> None:
        async with self._writer.deadlines.deadline():
            await self._table.caught_up()

    async def _known(self) -> rules_versions.Known:
        executors = (EXECUTORS if pool == DEFAULT_POOL else f"{EXECUTORS}.{pool}" for pool in self._pools())
        services = (*SERVICES, *executors)
        async with self._writer.deadlines.deadline():
            found = await asyncio.gather(*(self._ask(f"aetheris.{service}") for service in services))
        return dict(zip(services, found, strict=True))

    async def _answered(self, version: int) -> Reply[RulesOrderView]:
        count = await self._writer.count()
        is_answered = await self._awaited.until(lambda: self._is_answered(version, count), self._writer.answer_s)
        last = self._orders.active
        if last is None or last.number != version:
            raise ConflictProblem("ordered_meanwhile", "other rules were ordered meanwhile")
        return Reply(is_answered, rules_versions.shown(last, self._orders, count))

    def _is_answered(self, version: int, count: int) -> bool:
        is_over = self._orders.version != version
        return is_over or len(self._orders.answers(RULES_KEY)) >= count
