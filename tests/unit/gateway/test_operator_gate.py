"""Whom the policy names in [operate]: the file before the first activation, what is activated from then on."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ForbiddenProblem
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.operator_gate import OperatorGate
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import PolicyActivation
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.planning.gate import HumanAction
from aetheris.protocol.planning.policy import parse
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.table import Table
from aetheris.testkit.memory import MemoryAppender, MemoryLog
from tests.testkit.policies import ALLOW_ALL

if TYPE_CHECKING:
    from aetheris.gateway.index import JobIndex

BOB = Principal("bob", "acme", PrincipalKind.PERSON, frozenset({Role.OPERATE}))


def unfreezes(name: str) -> str:
    return f'{ALLOW_ALL}[operate]\nunfreeze = {{by = ["{name}"]}}\n'


async def activate(appender: MemoryAppender, number: int, policy: str) -> None:
    policy_hash = hashlib.sha256(policy.encode()).hexdigest()
    said = PolicyActivation(number=number, policy=policy, policy_hash=policy_hash, by="ann", at="now")
    await appender.append([(draft(Topic.POLICIES, said, key=said.key, id="i", source="s", time="now"),)])


@asynccontextmanager
async def gate(configured: str) -> AsyncGenerator[tuple[OperatorGate, MemoryAppender]]:
    log = MemoryLog(1)
    appender: MemoryAppender = log.appender()
    await appender.start()
    table = Table(log, Topic.POLICIES)
    orders = OrderTable(table, PolicyActivations())
    await table.load()
    running = asyncio.create_task(table.run())
    try:
        yield OperatorGate(orders, parse(configured), Deadlines(cast("JobIndex", None), 20.0)), appender
    finally:
        running.cancel()


async def refused(gate: OperatorGate) -> str:
    with pytest.raises(ForbiddenProblem) as problem:
        await gate.check(BOB, HumanAction.UNFREEZE)
    assert problem.value.code == "not_named"
    return str(problem.value)


async def test_who_is_named_is_read_in_what_decides_now() -> None:
    async with gate(unfreezes("b*")) as (asked, appender):
        assert await asked.check(BOB, HumanAction.UNFREEZE) == 0
        await activate(appender, 1, unfreezes("carol"))
        await refused(asked)
        assert await asked.check(BOB, HumanAction.RELEASE, "acme") == 1
        await activate(appender, 2, ALLOW_ALL)
        assert await asked.check(BOB, HumanAction.UNFREEZE) == 2


async def test_by_the_configured_file_until_another_is_activated() -> None:
    async with gate(unfreezes("carol")) as (asked, _):
        await refused(asked)


async def test_by_a_policy_that_this_gateway_cannot_read_nobody_may() -> None:
    async with gate(ALLOW_ALL) as (asked, appender):
        await activate(appender, 1, ALLOW_ALL + "something_new = 1\n")
        await refused(asked)
