"""Jobs that come to rest while a ledger reads its history: it starts with them as they are, and misses nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from aetheris.ledger.core import settled_lines
from aetheris.ledger.core.decisions import Decision, DuplicateLine, Emit, Facts, Now, View
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.partition import Partition
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.keys import args_hash, external_key, idempotency_key
from aetheris.protocol.fold.workers import Ended
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import FreezeOrder
from aetheris.protocol.messages.events import Event
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from tests.testkit.histories import TENANT, about, created, finished, graph, planned, sealed, started
from tests.testkit.ledgers import START, limits, load

NOW = Now(1000.0, START)
JOBS = 3
PLAN = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}, act={})
GUARDED = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}, act={"irreversible": True, "duplicate_scope": "tenant"})


def partition(orders: FreezeOrders | None = None, ended: dict[Any, Ended] | None = None) -> Partition:
    context = DecisionContext(load(None), limits(), lambda: "id", lambda: 1.0, freezes=orders or FreezeOrders())
    return Partition(context, ended or {})


def histories(*events: Event, plan: dict[str, Any] = PLAN) -> list[Event]:
    """Of so many jobs, one event of each at a time."""
    every = (created(), planned(plan), *events)
    return [_of(f"job-{job}", event) for event in every for job in range(JOBS)]


def _of(job: str, event: Event) -> Event:
    node: str = getattr(event, "node_id", "a")
    named = {"idempotency_key": idempotency_key(job, node, "act", None), "external_key": external_key(job, node, 0)}
    known = {name: value for name, value in named.items() if getattr(event, name, None)}
    return event.model_copy(update={"job_id": job, **known})


def read(core: Partition, log: Sequence[Event]) -> Partition:
    """All of a history, with every job at rest as soon as it may be."""
    for offset, event in enumerate(log):
        core.evolve(event, offset, NOW)
        core.jobs.rest_on_the_way(0, above=0)
    core.restored(NOW)
    return core


def decided(core: Partition, now: Now = NOW) -> Iterator[Decision]:
    for _ in range(10):
        core.next_due()
        core.to_fetch(now)
        found = core.decide(Facts(), now)
        if not found:
            return
        yield from found


DONE = (started("a", "n1"), finished("a", "n1"))


def test_they_are_at_rest_when_it_is_read_and_their_lines_wake_nobody() -> None:
    core = read(partition(), histories(*DONE))
    assert core.jobs.at_rest == JOBS
    lines = [one.record for one in decided(core) if isinstance(one, View)]
    assert [(line.job_id, line.status) for line in lines] == [(f"job-{job}", "success") for job in range(JOBS)]
    assert core.jobs.at_rest == JOBS


def test_lines_that_were_written_are_not_written_again() -> None:
    log = histories(*DONE)
    core = partition()
    core.handled_before(len(log) - 2)
    assert [type(one) for one in decided(read(core, log))] == [View], "the last settlement was not handled before"


def test_what_others_are_held_against_is_said_again_all_the_same() -> None:
    let = about(ev.PolicyAllowed, "a", args_hash=args_hash(None), tool_version="1", rule="all")
    log = histories(let, *DONE, plan=GUARDED)
    core = partition()
    core.handled_before(len(log))
    assert sum(isinstance(one, DuplicateLine) for one in decided(read(core, log))) == JOBS


def test_a_job_that_was_sealed_meanwhile_has_its_lines_but_for_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    log = histories(*DONE, ev.JobCompleted(job_id="any"), sealed())
    core = read(partition(), log)
    assert not list(core.jobs)
    assert sum(isinstance(one, View) for one in decided(core)) == JOBS
    monkeypatch.setattr(settled_lines, "VIEWS_AFTER_RESTART", 1)
    (line,) = [one.record for one in decided(read(partition(), log)) if isinstance(one, View)]
    assert line.job_id == f"job-{JOBS - 1}"


def test_a_timer_wakes_each_when_its_time_has_come() -> None:
    plan = {"tools": {}, "nodes": [{"id": "t", "kind": "timer", "wait": {"for_s": 60}}]}
    waiting = ev.JobWaiting(
        job_id="any", node_id="t", idempotency_key="key", wait_type="timer", due_at="2030-01-01T00:01:00Z"
    )
    core = read(partition(), histories(waiting, plan=plan))
    assert core.jobs.at_rest == JOBS
    assert not list(decided(core))
    assert core.next_due() == NOW.mono_s + 60
    later = Now(NOW.mono_s + 61, START.replace(minute=1, second=1))
    ended = [one.job_id for one in decided_once(core, later) if isinstance(one, Emit)]
    assert ended == [f"job-{job}" for job in range(JOBS)]


def decided_once(core: Partition, now: Now) -> list[Decision]:
    core.to_fetch(now)
    return core.decide(Facts(), now)


def test_what_is_frozen_reaches_those_whom_it_concerns() -> None:
    orders = FreezeOrders()
    for scope in (FreezeScope(tenant=TENANT), FreezeScope(tenant="another")):
        assert orders.take(FreezeOrder(scope=scope, number=1, frozen=True, by="bob", at="then"))
    core = read(partition(orders), histories())
    said = [one for one in decided_once(core, NOW) if isinstance(one, Emit)]
    assert [(one.job_id, one.events[0].event.event_type) for one in said] == [
        (f"job-{job}", "job_frozen") for job in range(JOBS)
    ]


def test_of_who_rests_and_who_does_not_a_freeze_is_said_in_the_order_of_their_births() -> None:
    orders = FreezeOrders()
    core = read(partition(orders), histories())
    core.jobs.get("job-1")
    order = FreezeOrder(scope=FreezeScope(tenant=TENANT), number=1, frozen=True, by="bob", at="then")
    assert orders.take(order)
    core.ordered(order, NOW)
    assert [one.job_id for one in decided_once(core, NOW) if isinstance(one, Emit)] == ["job-0", "job-1", "job-2"]


def test_the_end_of_a_freeze_that_is_still_on_its_way_is_said_in_that_order_too() -> None:
    """It is read before the freeze that the jobs are to carry."""
    orders = FreezeOrders()
    log = histories()
    core = read(partition(orders), log)
    order = FreezeOrder(scope=FreezeScope(tenant=TENANT), number=1, frozen=True, by="bob", at="then")
    over = order.model_copy(update={"frozen": False})
    assert orders.take(order)
    core.ordered(order, NOW)
    said = [one.events[0].event for one in decided_once(core, NOW) if isinstance(one, Emit)]
    core.jobs.rest(0)
    core.jobs.get("job-1")
    assert core.jobs.at_rest == JOBS - 1
    assert orders.take(over)
    core.ordered(over, NOW)
    for offset, event in enumerate(said, len(log)):
        core.evolve(event, offset, NOW)
    assert [one.job_id for one in decided_once(core, NOW) if isinstance(one, Emit)] == ["job-0", "job-1", "job-2"]
