"""Orders and answers as their topic has them: what is neither, or lies under another key, counts for nothing."""

import hashlib
from typing import Any

import pytest

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import FreezeAnswer, FreezeOrder, PolicyActivation, PolicyAnswer
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.numbered_orders import NumberedOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.runtime.log.order_table import Ordered, OrderTable
from aetheris.runtime.log.table import Table
from aetheris.testkit.memory import MemoryLog

SCOPE = FreezeScope(tenant="t")
ORDER = FreezeOrder(scope=SCOPE, number=1, frozen=True, by="ann", at="now")
ANSWER = FreezeAnswer(scope=SCOPE, number=1, frozen=True, partition=3)
ACTIVATION = PolicyActivation(number=1, policy="", policy_hash=hashlib.sha256(b"").hexdigest(), by="ann", at="now")
TAKEN = PolicyAnswer(number=1, partition=3)


def drafted(topic: Topic, one: Ordered, key: str | None = None) -> Draft:
    return Draft(topic, (key or one.key).encode(), one.model_dump_json().encode(), ())


@pytest.mark.parametrize(
    ("topic", "orders", "order", "answer"),
    [
        (Topic.FREEZES, FreezeOrders(), ORDER, ANSWER),
        (Topic.POLICIES, PolicyActivations(), ACTIVATION, TAKEN),
    ],
)
async def test_the_order_and_its_answer_count_once_and_nothing_else(
    topic: Topic, orders: NumberedOrders[Any, Any], order: Ordered, answer: Ordered
) -> None:
    log = MemoryLog(1)
    appender = log.appender()
    await appender.start()
    table = Table(log, topic)
    heard: list[Ordered] = []
    OrderTable(table, orders).listen(heard.append)
    elsewhere = answer.model_copy(update={"partition": -1})
    said = [
        drafted(topic, answer),  # before there is an order
        drafted(topic, order, key="freeze:tenant:u"),
        Draft(topic, order.key.encode(), b"{}", ()),
        Draft(topic, order.key.encode(), b"\xff", ()),
        drafted(topic, order.model_copy(update={"number": 2})),
        drafted(topic, order),
        drafted(topic, order.model_copy(update={"by": "eve"})),
        drafted(topic, elsewhere),
        drafted(topic, answer.model_copy(update={"number": 2})),
        drafted(topic, answer),
    ]
    await appender.append([(one,) for one in said])
    await table.load()
    assert heard == [order, answer]
    assert (orders.last(order.key), dict(orders.answers(order.key))) == (order, {3: answer})
    assert (orders.last("other"), dict(orders.answers("other"))) == (None, {})
