"""Jobs that begin others, while planners die at random: who comes next says again what was said."""

import random

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import BeginJob, JobEnded
from aetheris.testing import NODE, JobUnderTest, MemorySystem
from aetheris.testing.roles.planner import InMemoryPlanner
from tests.unit.testing.test_child_jobs import awaits, pay, refuses, repay, rounds, ship, shop

pytestmark = pytest.mark.timeout(300)
SEEDS = range(24)
MOST_DEATHS = 12


class DyingPlanners:
    """One after another: each dies before any of its turns, and the next reads everything from the beginning."""

    def __init__(self, system: MemorySystem, chance: random.Random) -> None:
        self._system = system
        self._chance = chance
        self._planner = self._next()
        self.deaths = 0

    def turn(self) -> bool:
        """Of whoever lives."""
        if self.deaths < MOST_DEATHS and self._chance.random() < 0.3:
            self.deaths += 1
            self._planner = self._next()
        return self._planner.turn()

    def _next(self) -> InMemoryPlanner:
        return InMemoryPlanner(self._system._topics)  # pyright: ignore[reportPrivateUsage]


def run(seed: int) -> tuple[MemorySystem, JobUnderTest, DyingPlanners]:
    chance = random.Random(seed)  # noqa: S311  a repeatable order
    system = MemorySystem(awaits, rounds, shop, ship, pay, repay, refuses)
    planners = DyingPlanners(system, chance)
    system._planner = planners  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    system.shuffle(chance)
    plan = chance.choice([awaits.plan(left=2), shop.plan(orders=["a", "b"])])
    return system, system.run(plan), planners


@pytest.mark.parametrize("seed", SEEDS)
def test_each_is_born_once_and_told_once_whoever_dies(seed: int) -> None:
    system, job, planners = run(seed)
    assert job.result(NODE) in ("over", ["paid a", "paid b", "paid last", "paid last"])
    assert planners.deaths > 0
    assert all(one.status == "completed" for one in system.jobs)
    told = [(one.job_id, event.correlation_key) for one in system.jobs for event in one.state.signals.values()]
    assert len(told) == len(system.jobs) - 1
    assert all(one.calls("pay") == (job.result(NODE) != "over" or one is not job) for one in system.jobs)
    said = system._topics.read(Topic.JOBS_COMMANDS, 0)  # pyright: ignore[reportPrivateUsage]
    for kind in (BeginJob, JobEnded):
        words = [(one.body.job_id, one.id) for one in said if isinstance(one.body, kind)]
        assert len(set(words)) == len(system.jobs) - 1, "said again it is the same word"
