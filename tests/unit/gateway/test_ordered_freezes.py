"""An order is answered by what the topic says, not by what this gateway happens to have read of it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from aetheris.gateway.core import frozen
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.index import JobIndex
from aetheris.gateway.operator_gate import OperatorGate
from aetheris.gateway.order_writer import OrderWriter
from aetheris.gateway.ordered_freezes import OrderedFreezes
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Draft, Group
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import FreezeAnswer, FreezeOrder
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.table import Table
from aetheris.runtime.process import policy_file
from aetheris.testkit.memory import MemoryAppender, MemoryLog

BOB = Principal("bob", "acme", PrincipalKind.PERSON, frozenset({Role.OPERATE}))
TOOL = FreezeScope(tenant="acme", tool="t")
BODY = json.dumps({"tool": "t"}).encode()


def order(number: int, *, begins: bool) -> FreezeOrder:
    return frozen.order(TOOL, number, None, BOB, "now", begins=begins)


def line(record: FreezeOrder | FreezeAnswer) -> Draft:
    return draft(Topic.FREEZES, record, key=record.key, id="i", source="s", time="now")


class Others:
    """The topic's other writers: the one partition's ledger answers every order, and somebody may be quicker."""

    def __init__(self, log: MemoryLog) -> None:
        self.appender: MemoryAppender = log.appender()
        self.before: list[FreezeOrder] = []
        """What another gateway writes just before the next order."""

    async def put(self, *orders: FreezeOrder) -> None:
        for one in orders:
            answer = FreezeAnswer(scope=one.scope, number=one.number, frozen=one.frozen, partition=0)
            await self.appender.append([(line(one),), (line(answer),)])

    async def append(self, groups: Sequence[Group]) -> None:
        await self.put(*self.before)
        self.before.clear()
        for (record,) in groups:
            await self.put(FreezeOrder.model_validate_json(record.value))


@asynccontextmanager
async def gateway(*read: FreezeOrder, unread: Sequence[FreezeOrder]) -> AsyncGenerator[tuple[OrderedFreezes, Others]]:
    """One that has read some orders, and others not yet."""
    log = MemoryLog(1)
    others = Others(log)
    await others.appender.start()
    await others.put(*read)
    table = Table(log, Topic.FREEZES)
    activated, deadlines = Table(log, Topic.POLICIES), Deadlines(cast("JobIndex", None), 20.0)
    freezes = OrderedFreezes(
        OrderTable(table, FreezeOrders()),
        OrderWriter(
            partitions=lambda: log.partitions(Topic.JOBS_EVENTS),
            appender=cast("MemoryAppender", others),
            deadlines=deadlines,
            clock=SystemClock(),
            answer_s=20.0,
        ),
        OperatorGate(OrderTable(activated, PolicyActivations()), policy_file.load(None), deadlines),
    )
    await table.load()
    await activated.load()
    await others.put(*unread)
    running = asyncio.gather(table.run(), activated.run())
    try:
        yield freezes, others
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_what_another_gateway_has_ended_is_frozen_anew() -> None:
    async with gateway(order(1, begins=True), unread=[order(1, begins=False)]) as (freezes, _):
        reply = await freezes.freeze(BOB, BODY)
        assert (reply.answered, reply.answer.number, reply.answer.frozen) == (True, 2, True)


async def test_the_number_is_the_one_behind_all_that_others_have_ordered() -> None:
    past = [order(1, begins=True), order(1, begins=False)]
    async with gateway(*past, unread=[order(2, begins=True), order(2, begins=False)]) as (freezes, _):
        reply = await freezes.freeze(BOB, BODY)
        assert (reply.answered, reply.answer.number, reply.answer.frozen) == (True, 3, True)


async def test_a_freeze_that_comes_to_nothing_is_not_answered_as_done() -> None:
    async with gateway(unread=[]) as (freezes, others):
        others.before += [order(1, begins=True), order(1, begins=False)]
        with pytest.raises(ConflictProblem) as refused:
            await freezes.freeze(BOB, BODY)
        assert refused.value.code == "not_frozen"


async def test_what_another_gateway_has_frozen_is_let_go() -> None:
    async with gateway(unread=[order(1, begins=True)]) as (freezes, _):
        reply = await freezes.unfreeze(BOB, BODY)
        assert (reply.answered, reply.answer.number, reply.answer.frozen) == (True, 1, False)


async def test_what_was_frozen_again_is_not_answered_as_let_go() -> None:
    async with gateway(order(1, begins=True), unread=[]) as (freezes, others):
        others.before += [order(1, begins=False), order(2, begins=True)]
        with pytest.raises(ConflictProblem) as refused:
            await freezes.unfreeze(BOB, BODY)
        assert refused.value.code == "frozen_again"
