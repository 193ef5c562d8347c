"""Workflows asleep, as services read them from history: each packs them on its way, and wakes them for what comes."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from aetheris.ledger.core.decisions import Decision, Emit, Facts, Grant, Now
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.partition import Partition as LedgerPartition
from aetheris.planner.core.partition import Partition as PlannerPartition
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import Envelope, decode_event
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind
from aetheris.sdk import tool
from aetheris.sdk.workflows import WorkflowContext, workflow
from aetheris.testing import NODE, MemorySystem
from aetheris.tool_executor.core.partition import Partition as ExecutorPartition
from aetheris.tool_executor.core.tries import Worker
from aetheris.verifier.core.partition import Partition as VerifierPartition
from tests.testkit.ledgers import limits, load

JOBS = 4


@tool(effect_class="pure")
def look() -> int:
    return 1


@workflow(tools=[look])
async def sleeps(ctx: WorkflowContext) -> str:
    await ctx.call(look)
    return str(await ctx.signal("go", within=86_400))


@pytest.fixture(scope="module")
def log() -> list[Envelope[Event]]:
    """The records of so many, one of each at a time."""
    system = MemorySystem(sleeps, look)
    for _ in range(JOBS):
        system.run(sleeps.plan())
    found = [decode_event(one.record) for one in system._topics.read(Topic.JOBS_EVENTS, 0)]  # pyright: ignore[reportPrivateUsage]
    events = [one for one in found if isinstance(one, Envelope)]
    assert len(events) == len(found)
    return events


def now(log: list[Envelope[Event]]) -> Now:
    """As they have come to sleep."""
    due = max(one.body.due_at or "" for one in log if isinstance(one.body, ev.JobWaiting))
    return Now(1000.0, datetime.fromisoformat(due) - timedelta(hours=2))


def test_planner_executor_and_verifier_have_all_of_them_at_rest_when_it_is_read(log: list[Envelope[Event]]) -> None:
    planner = PlannerPartition(lambda _: None)
    executor = ExecutorPartition(Worker("w", "i"), lambda _: None, lambda call: EffectKind(call.entry.node.kind))
    verifier = VerifierPartition()
    for one in log:
        planner.evolve(one)
        executor.evolve(one.body, one.record.offset)
        verifier.evolve(one.record, one.body.event_type)
        for jobs in (planner.jobs, executor.jobs, verifier.jobs):
            jobs.rest_on_the_way(0, above=0)
    assert [jobs.at_rest for jobs in (planner.jobs, executor.jobs, verifier.jobs)] == [JOBS] * 3
    planner.recover()
    assert planner.jobs.at_rest == JOBS, "each is looked at, and rests again"


def test_a_ledger_has_all_of_them_at_rest_and_runs_the_one_whose_signal_comes(log: list[Envelope[Event]]) -> None:
    core = LedgerPartition(DecisionContext(load(None), limits(), lambda: "id", lambda: 1.0), {})
    when = now(log)
    for offset, one in enumerate(log):
        core.evolve(one.body, offset, when)
        core.jobs.rest_on_the_way(0, above=0)
    core.restored(when)
    assert core.jobs.at_rest == JOBS
    assert not [one for one in decided(core, len(log), when) if isinstance(one, Emit | Grant)]
    first = log[0].body.job_id
    core.evolve(ev.SignalReceived(job_id=first, correlation_key="go", payload=7, command_id="c"), len(log), when)
    (granted,) = [one for one in decided(core, len(log) + 1, when) if isinstance(one, Grant)]
    assert (granted.message.job_id, granted.message.nodes) == (first, (NODE,))
    assert core.jobs.at_rest >= JOBS - 2, "it, and the one whose timer is next"


def decided(core: LedgerPartition, offset: int, when: Now) -> Iterator[Decision]:
    """What it decides until nothing more follows, each of its words read."""
    while True:
        core.next_due()
        core.to_fetch(when)
        found = core.decide(Facts({}, {}), when)
        yield from found
        said = [written.event for one in found if isinstance(one, Emit) for written in one.events]
        for event in said:
            core.evolve(event, offset, when)
            offset += 1
        if not said:
            return
