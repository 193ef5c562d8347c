"""Behind a barrier of later rules jobs are created under them: one that was under way, too; who can't, holds them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RULES_BARRIER_KEY, RULES_KEY, RulesOrder
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.keys.records import BirthPlace
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.table import Table
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.worker.unsigned import HeardMessages
from aetheris.testkit.memory import MemoryLog
from tests.testkit.histories import JOB, created
from tests.testkit.rules_orders import RulesWriters, both_known
from tests.unit.planner.test_planner_backlog import PlannerOnLog, events, submit


class RulesPlanner:
    """A planner of an installation, on a log of one partition."""

    def __init__(self, folder: Path) -> None:
        self.log, self.folder, self.writers = MemoryLog(partitions=1), folder, RulesWriters(folder)
        self.table = Table(self.log, Topic.POLICIES)
        heard = HeardMessages(self.writers.keys[Party.PLANNER].messages, Metrics("planner"))
        self.rules = OrderTable(self.table, RulesOrders(), heard.line_counts)
        self.planner = self.another()

    def another(self) -> PlannerOnLog:
        return PlannerOnLog(self.log, self.folder, keys=self.writers.keys[Party.PLANNER], rules=self.rules)

    async def write(self, *drafts: Draft) -> None:
        appender = self.log.appender()
        await appender.start()
        await appender.append([(one,) for one in drafts])

    async def submit(self, number: int) -> None:
        made = draft(Topic.JOBS_COMMANDS, submit(number), key=f"job-{number}", id=f"c{number}", source="s", time="")
        await self.write(self.writers.keys[Party.GATEWAY].message(made))

    def births(self) -> list[tuple[str, int]]:
        return [(one.job_id, one.rules) for one in events(self.log) if isinstance(one, ev.JobCreated)]

    def live(self) -> list[str]:
        return [job_id for job_id, _ in self.planner.handler.live()]


@pytest.fixture
def case(tmp_path: Path) -> Iterator[RulesPlanner]:
    with both_known():
        yield RulesPlanner(tmp_path)


async def test_behind_the_barrier_jobs_are_created_under_later_rules(case: RulesPlanner) -> None:
    await case.planner.start()
    await case.submit(0)
    await case.planner.round()
    await case.write(case.writers.barrier())
    await case.planner.round()
    await case.submit(1)
    await case.planner.round()
    assert case.births() == [("job-0", 1), ("job-1", 2)]
    assert case.live() == ["job-0", "job-1", RULES_BARRIER_KEY], "which is answered by nobody yet"


async def test_a_birth_that_comes_to_lie_behind_it_is_written_again_under_them(case: RulesPlanner) -> None:
    await case.planner.start()
    await case.write(case.writers.barrier())
    await case.submit(0)
    commands = case.log.records(Topic.JOBS_COMMANDS)
    case.planner.seen[Topic.JOBS_COMMANDS] = len(commands)
    await case.planner.handler.handle({str(Topic.JOBS_COMMANDS): commands})
    assert case.births() == [("job-0", 1)], "it has not read the barrier"
    assert case.planner.handler.low_water(Topic.JOBS_COMMANDS) == 0
    await case.planner.round()
    assert case.births() == [("job-0", 1), ("job-0", 2)]
    successor = case.another()
    await successor.start()
    for one in (case.planner, successor):
        assert [job_id for job_id, _ in one.handler.live()] == ["job-0", RULES_BARRIER_KEY]
        assert one.handler.low_water(Topic.JOBS_COMMANDS) is None


@pytest.mark.parametrize(
    "forged", ["unsigned", "the planner's", "an order that is nobody's", "another version's order"]
)
async def test_a_barrier_that_is_not_the_ledgers_or_has_no_order_in_it_is_none(case: RulesPlanner, forged: str) -> None:
    writers = case.writers
    made = {
        "unsigned": writers.barrier(by=None),
        "the planner's": writers.barrier(by=Party.PLANNER),
        "an order that is nobody's": writers.barrier(order=writers.order(by=Party.LEDGER)),
        "another version's order": writers.barrier(2, order=writers.order(3)),
    }[forged]
    await case.planner.start()
    await case.write(made)
    await case.planner.round()
    await case.submit(0)
    await case.planner.round()
    assert case.births() == [("job-0", 1)]
    assert case.live() == ["job-0"]


async def test_who_does_not_know_them_creates_nothing_and_keeps_the_submissions(case: RulesPlanner) -> None:
    await case.planner.start()
    await case.write(case.writers.barrier(3))
    await case.planner.round()
    await case.submit(0)
    await case.submit(1)
    await case.planner.round()
    await case.planner.round()
    assert case.births() == []
    assert case.planner.handler.waits_for_upgrade == 3
    assert case.planner.handler.low_water(Topic.JOBS_COMMANDS) == 0
    assert case.planner.read_again == [], "not again and again"


class UnsignedPlanner(RulesPlanner):
    """The same where nobody signs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.rules = OrderTable(self.table, RulesOrders())
        self.planner = self.another()

    def another(self) -> PlannerOnLog:
        return PlannerOnLog(self.log, self.folder, rules=self.rules)

    async def submit(self, number: int) -> None:
        await self.write(
            draft(Topic.JOBS_COMMANDS, submit(number), key=f"job-{number}", id=f"c{number}", source="s", time="")
        )


def unsigned_order(number: int, at: str) -> Draft:
    return draft(
        Topic.POLICIES, RulesOrder(number=number, by="olga", at=at), key=RULES_KEY, id="o", source="s", time=""
    )


async def test_where_nobody_signs_a_barrier_of_what_nobody_has_ordered_is_none(tmp_path: Path) -> None:
    """Whoever may append to jobs.events may not write to `policies`: he holds up no partition for ever."""
    with both_known():
        case = UnsignedPlanner(tmp_path)
        await case.table.load()
        tables = asyncio.create_task(case.table.run())
        await case.planner.start()
        forged = case.writers.barrier(999, by=None, order=unsigned_order(999, "then"))
        other_key = Draft(forged.topic, b"job-9", forged.value, forged.headers, 0)
        await case.write(forged, other_key)
        await case.planner.round()
        await case.submit(0)
        await case.planner.round()
        assert case.births() == [("job-0", 1)]
        assert case.planner.handler.waits_for_upgrade is None
        order = unsigned_order(2, "now")
        await case.write(case.writers.barrier(2, by=None, order=unsigned_order(2, "foreseen")), order)
        await case.planner.round()
        await case.submit(1)
        await case.planner.round()
        assert case.births()[1:] == [("job-1", 1)], "an order of this number, in other words"
        await case.write(case.writers.barrier(2, by=None, order=order))
        await case.planner.round()
        await case.submit(2)
        await case.planner.round()
        assert case.births()[2:] == [("job-2", 2)]
        tables.cancel()


async def test_a_restart_behind_the_barrier_knows_it_by_the_answer(case: RulesPlanner) -> None:
    await case.write(case.writers.order(), case.writers.answer(0))
    await case.table.load()
    signed = case.writers.keys[Party.PLANNER]
    old = draft(Topic.JOBS_EVENTS, created(), key=JOB, id="e", source="s", time="")
    (group,) = signed.signed([(old,)], signed.provenance(), BirthPlace(0, 0))
    await case.write(case.writers.barrier(), group[0])
    case.planner.seen[Topic.JOBS_EVENTS] = 1
    await case.planner.start()
    assert case.live() == [], "a birth under earlier rules"
    await case.submit(0)
    await case.planner.round()
    assert case.births()[1:] == [("job-0", 2)]
