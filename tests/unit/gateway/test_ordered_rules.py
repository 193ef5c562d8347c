"""An order of later rules: refused while somebody lives who does not know them, and answered by what the topic says."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.index import JobIndex
from aetheris.gateway.order_writer import OrderWriter
from aetheris.gateway.ordered_rules import SERVICES, OrderedRules
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Group
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import RulesAnswer, RulesOrder
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.registry_lines import DEFAULT_POOL
from aetheris.protocol.tables.attendants import Attendant
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.table import Table
from aetheris.testkit.memory import MemoryAppender, MemoryLog
from tests.testkit.rules_orders import both_known

OLGA = Principal("olga", "acme", PrincipalKind.PERSON, frozenset({Role.ADMINISTER}))
BOTH = Attendant(frozenset({1, 2}))


GROUPS = (*SERVICES, "tool_executor", "tool_executor.gpu")


class RulesGroups:
    """Which processes live, and what each knows."""

    def __init__(self) -> None:
        self.known = {f"aetheris.{service}": {f"{service}-0": BOTH} for service in GROUPS}

    async def ask(self, group: str) -> Mapping[str, Attendant]:
        return self.known[group]


class AnsweringLedgers:
    """They answer what is ordered; `meanwhile` is what another gateway orders just before."""

    def __init__(self, log: MemoryLog) -> None:
        self.appender: MemoryAppender = log.appender()
        self.written: list[RulesOrder] = []
        self.meanwhile: list[RulesOrder] = []

    async def append(self, groups: Sequence[Group]) -> None:
        orders = [RulesOrder.model_validate_json(record.value) for (record,) in groups]
        self.written += orders
        for one in (*self.meanwhile, *orders):
            answer = RulesAnswer(number=one.number, partition=0, barrier=7)
            lines = [draft(Topic.POLICIES, said, key="rules", id="i", source="s", time="") for said in (one, answer)]
            await self.appender.append([(line,) for line in lines])


@asynccontextmanager
async def gateway() -> AsyncGenerator[tuple[OrderedRules, AnsweringLedgers, RulesGroups]]:
    log, groups = MemoryLog(1), RulesGroups()
    ledgers = AnsweringLedgers(log)
    await ledgers.appender.start()
    table = Table(log, Topic.POLICIES)
    writer = OrderWriter(
        partitions=lambda: log.partitions(Topic.JOBS_EVENTS),
        appender=cast("MemoryAppender", ledgers),
        deadlines=Deadlines(cast("JobIndex", None), 20.0),
        clock=SystemClock(),
        answer_s=20.0,
    )
    rules = OrderedRules(OrderTable(table, RulesOrders()), writer, groups.ask, lambda: (DEFAULT_POOL, "gpu"))
    await table.load()
    following = asyncio.create_task(table.run())
    try:
        yield rules, ledgers, groups
    finally:
        following.cancel()


@pytest.fixture(autouse=True)
def later() -> Iterator[None]:
    with both_known():
        yield


def body(version: object) -> bytes:
    return json.dumps({"version": version, "reason": "it is time"}).encode()


async def test_it_is_written_and_answered_and_again_it_is_the_same_order() -> None:
    async with gateway() as (rules, ledgers, _):
        assert (await rules.view()).version == 1
        for _ in range(2):
            reply = await rules.order(OLGA, body(2))
            assert (reply.answered, reply.answer.version, reply.answer.by) == (True, 2, "olga")
            assert (reply.answer.answered, reply.answer.partitions) == (1, 1)
        assert [one.number for one in ledgers.written] == [2]
        assert (await rules.view()).version == 2


@pytest.mark.parametrize("service", GROUPS)
@pytest.mark.parametrize("known", [frozenset({1}), frozenset[int]()])
async def test_who_lives_and_does_not_know_them_is_named_and_nothing_is_written(
    service: str, known: frozenset[int]
) -> None:
    async with gateway() as (rules, ledgers, groups):
        groups.known[f"aetheris.{service}"]["old"] = Attendant(known)
        with pytest.raises(ConflictProblem) as refused:
            await rules.order(OLGA, body(2))
        assert refused.value.code == "rules_unknown"
        assert refused.value.details == {"processes": [f"{service}/old"]}
        assert ledgers.written == []
        shown = [one for one in (await rules.view()).services if one.name == "old"]
        assert [(one.service, one.known) for one in shown] == [(service, tuple(sorted(known)))]


async def test_where_no_gateway_is_seen_who_lives_is_not_known() -> None:
    async with gateway() as (rules, ledgers, groups):
        groups.known["aetheris.gateway"] = {}
        with pytest.raises(Unavailable) as refused:
            await rules.order(OLGA, body(2))
        assert (refused.value.code, ledgers.written) == ("gateways_unseen", [])


async def test_the_gateway_that_is_asked_knows_them_too() -> None:
    async with gateway() as (rules, ledgers, groups):
        for names in groups.known.values():
            names.update(dict.fromkeys(names, Attendant(frozenset({1, 2, 3}))))
        with pytest.raises(ConflictProblem, match="this gateway"):
            await rules.order(OLGA, body(3))
        assert ledgers.written == []


@pytest.mark.parametrize("version", [0, 1, -1, "x", None, 1.5])
async def test_what_is_no_later_version_is_refused(version: object) -> None:
    async with gateway() as (rules, ledgers, _):
        with pytest.raises(BadRequestProblem):
            await rules.order(OLGA, body(version))
        assert ledgers.written == []


async def test_whose_order_another_has_overtaken_is_told_so() -> None:
    async with gateway() as (rules, ledgers, _):
        ledgers.meanwhile = [RulesOrder(number=3, by="otto", at="now")]
        with pytest.raises(ConflictProblem) as refused:
            await rules.order(OLGA, body(2))
        assert refused.value.code == "ordered_meanwhile"
        with pytest.raises(ConflictProblem) as refused:
            await rules.order(OLGA, body(2))
        assert refused.value.code == "rules_go_back"
