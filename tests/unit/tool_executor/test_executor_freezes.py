"""What an executor keeps to of a freeze: nothing is declared that is ordered, nothing is made behind a barrier."""

import asyncio
import dataclasses
from pathlib import Path
from typing import cast

import pytest

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import FreezeBarrier, FreezeOrder
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import ToolInvocationStarted
from aetheris.protocol.plan.graph import EffectKind
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.log.order_table import OrderTable
from aetheris.sdk.workflows import WorkflowContext, workflow
from aetheris.tool_executor.core.partition import Drop, Partition
from aetheris.tool_executor.core.tries import Worker
from aetheris.tool_executor.handlers import ExecutorHandler
from tests.testkit.body_bench import BodyBench, do
from tests.testkit.executor_bench import HandlerBench
from tests.testkit.histories import TENANT, created, graph, planned
from tests.unit.tool_executor.test_executor_core import CoreBench

ALL = FreezeScope(tenant=TENANT)
PLAN = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]})


def order(number: int = 1, *, begins: bool = True, scope: FreezeScope = ALL) -> FreezeOrder:
    return FreezeOrder(scope=scope, number=number, frozen=begins, by="bob", at="then")


class FrozenBench(CoreBench):
    """A partition that reads orders, too."""

    def __init__(self, *orders: FreezeOrder) -> None:
        super().__init__()
        self.orders = FreezeOrders()
        for one in orders:
            self.orders.take(one)
        self.core = Partition(Worker("w-1", "i-1"), lambda _: None, lambda _: EffectKind.TOOL, freezes=self.orders)
        self.log(created(), planned(PLAN))

    def barrier(self, number: int = 1, *, scope: FreezeScope = ALL) -> None:
        self.offset += 1
        self.core.passed(FreezeBarrier(order=order(number, scope=scope)), self.offset)


def test_nothing_is_declared_that_is_ordered() -> None:
    bench = FrozenBench()
    bench.orders.take(order())
    assert bench.judge("a") == Drop("it is frozen")
    bench.orders.take(order(begins=False))
    bench.declared("a")


def test_what_was_declared_before_the_order_was_read_is_not_made_behind_the_barrier() -> None:
    bench = FrozenBench()
    invocation = bench.declared("a")
    bench.barrier()
    reported = bench.log(invocation.started)
    assert reported.won, "its job has not the freeze yet: the fold takes it"
    assert bench.core.why_not(invocation) == "it is frozen"


def test_what_started_before_the_barrier_is_made_though_the_order_was_read() -> None:
    bench = FrozenBench()
    invocation = bench.declared("a")
    bench.orders.take(order())
    assert bench.log(invocation.started).won
    assert bench.core.why_not(invocation) is None


def test_a_barrier_of_a_freeze_that_is_over_or_of_another_holds_nothing() -> None:
    bench = FrozenBench(order(), order(begins=False))
    bench.barrier()
    bench.barrier(scope=FreezeScope(tool="other"))
    invocation = bench.declared("a")
    bench.log(invocation.started)
    assert bench.core.why_not(invocation) is None


def test_who_starts_behind_a_barrier_knows_it_from_the_orders() -> None:
    bench = FrozenBench(order())
    assert bench.judge("a") == Drop("it is frozen")
    bench.orders.take(order(begins=False))
    invocation = bench.declared("a")
    bench.orders.take(order(2))
    bench.core.orders_known()
    bench.log(invocation.started)
    assert bench.core.why_not(invocation) == "it is frozen"


def test_a_barrier_of_what_nobody_ordered_holds_until_the_orders_are_known_and_hides_no_other() -> None:
    bench = FrozenBench()
    bench.barrier(7)
    assert bench.judge("a") == Drop("it is frozen")
    bench.core.orders_known()
    invocation = bench.declared("a")
    bench.barrier(7)
    bench.orders.take(order())
    bench.barrier()
    bench.core.orders_known()
    bench.log(invocation.started)
    assert bench.core.why_not(invocation) == "it is frozen"
    bench.orders.take(order(begins=False))
    assert bench.core.why_not(invocation) is None


async def test_the_executor_looks_for_the_order_of_a_barrier_that_it_does_not_know(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    asked = Asked()
    bench.parts = dataclasses.replace(bench.parts, freezes=cast("OrderTable[FreezeOrders]", asked))
    bench.handler = ExecutorHandler(bench.parts)
    forged = FreezeBarrier(order=order(7))
    barrier = draft(Topic.JOBS_EVENTS, forged, key=forged.order.key, id="b", source="s", time="t")
    record = Record(Topic.JOBS_EVENTS, 0, 0, 0, barrier.key, barrier.headers, barrier.value)
    await bench.handler.handle({Topic.JOBS_EVENTS: [record]})
    await asyncio.gather(*bench.tasks)
    assert asked.times == 2, "the log did not answer at first"
    await bench.grant("act")
    assert await bench.declared(), "nobody has ordered that"


async def test_a_freeze_whose_barrier_lies_below_what_is_read_is_known_before_the_partition_is_restored(
    tmp_path: Path,
) -> None:
    """The log of freezes is asked, until it answers; nothing that this partition reads would tell of it."""
    bench = HandlerBench(tmp_path)
    told = ToldFreezes()
    bench.parts = dataclasses.replace(bench.parts, freezes=cast("OrderTable[FreezeOrders]", told))
    bench.handler = ExecutorHandler(bench.parts)
    with pytest.raises(LogUnreachable):
        await bench.handler.learn()
    await bench.handler.learn()
    await bench.handler.restored()
    await bench.grant("act")
    await asyncio.gather(*bench.tasks)
    assert not [event for event in bench.events() if isinstance(event, ToolInvocationStarted)]


async def test_a_barrier_that_no_ledger_signed_holds_nothing_where_a_root_is_known(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.parts = dataclasses.replace(bench.parts, installation=("0" * 64,))
    bench.handler = ExecutorHandler(bench.parts)
    forged = FreezeBarrier(order=order(7))
    barrier = draft(Topic.JOBS_EVENTS, forged, key=forged.order.key, id="b", source="s", time="t")
    await bench.handler.handle(
        {Topic.JOBS_EVENTS: [Record(Topic.JOBS_EVENTS, 0, 0, 0, barrier.key, barrier.headers, barrier.value)]}
    )
    assert not bench.tasks, "nobody has to look for its order"


class ToldFreezes:
    """Has an order that it reads when the log answers, at the second time."""

    def __init__(self) -> None:
        self.orders = FreezeOrders()
        self._asked = 0

    async def caught_up(self) -> None:
        self._asked += 1
        if self._asked == 1:
            raise LogUnreachable("no answer")
        self.orders.take(order())


class Asked:
    """Has no orders; the log answers at the second time."""

    def __init__(self) -> None:
        self.orders = FreezeOrders()
        self.times = 0

    async def caught_up(self) -> None:
        self.times += 1
        if self.times == 1:
            raise LogUnreachable("no answer")


async def test_a_body_of_a_frozen_workflow_plans_and_begins_no_call(tmp_path: Path) -> None:
    @workflow(name="flow", tools=[do])
    async def flow(ctx: WorkflowContext) -> int:
        return await ctx.call(do, n=await ctx.call(do, n=1) + 1)

    bench = BodyBench(tmp_path, flow)
    await bench.born()
    bench.parts.freezes.orders.take(order(scope=FreezeScope(tool="do")))
    await bench.until_still()
    assert [one.node_id for one in bench.events() if isinstance(one, ToolInvocationStarted)] == ["p"]
    bench = BodyBench(tmp_path, flow)
    await bench.born()
    await bench.grants()
    bench.parts.freezes.orders.take(order(scope=FreezeScope(tool="flow")))
    await bench.until_still()
    assert [one.node_id for one in bench.events() if isinstance(one, ToolInvocationStarted)] == ["p"]
