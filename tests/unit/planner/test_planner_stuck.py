"""Which jobs are stuck: silence that nothing explains, told once a period; the time is data."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from aetheris.planner.core.behind import Behinds
from aetheris.planner.core.decisions import NodesRequest
from aetheris.planner.core.partition import Partition
from aetheris.planner.core.watch import STUCK_AFTER_S, StuckJob
from aetheris.planner.handlers import PlannerHandler
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import Envelope, draft
from aetheris.protocol.messages.events import Event
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.process.withheld import Withheld
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.memory import MemoryLog
from tests.testkit.histories import JOB, about, created, finished, graph, planned, sealed, started

AFTER_S = STUCK_AFTER_S
TIMEOUT_S = 500.0
CHAIN = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}, act={"timeout_s": TIMEOUT_S})
WIDE = graph({"id": "a"}, {"id": "b"}, act={"timeout_s": TIMEOUT_S})
APPROVAL = about(ev.ApprovalRequested, "a", args_hash="h", tool_version="1", rule="r", form={})

NOW = "2026-01-01T00:00:00Z"


class PlannerInTime:
    """A partition, and where in the log and in time it is."""

    def __init__(self, *history: Event) -> None:
        self.core = Partition(lambda _job_id: None)
        self.offset = 0
        self.happens(0.0, *history)

    def happens(self, now_s: float, *events: Event) -> None:
        for event in events:
            headers = (("ce_time", NOW.encode()),)
            at = Record("t", 0, self.offset, 0, event.job_id.encode(), headers, b"")
            self.core.evolve(Envelope(f"event-{self.offset}", event, at))
            self.offset += 1
        self.core.decide(now_s)

    def stuck(self, now_s: float) -> list[StuckJob]:
        return self.core.stuck(now_s)


def started_planner(plan: dict[str, Any], *more: Event) -> PlannerInTime:
    return PlannerInTime(created(), planned(plan), *more)


def asked(found: Iterable[StuckJob]) -> list[tuple[str, ...]]:
    return [one.body.nodes for stuck in found for one in stuck.outputs if isinstance(one, NodesRequest)]


def test_a_request_that_nobody_answers_is_reported_and_made_again() -> None:
    planner = started_planner(CHAIN)
    assert planner.core.watch.next_due() == AFTER_S
    assert planner.stuck(AFTER_S - 0.1) == []
    (found,) = planner.stuck(AFTER_S)
    assert (found.job_id, found.waits_for, found.quiet_s) == (JOB, "the start of a", AFTER_S)
    assert asked([found]) == [("a", "b")]
    assert planner.core.watch.stuck == {JOB}


def test_it_is_reported_once_a_period_and_no_more_once_it_goes_on() -> None:
    planner = started_planner(CHAIN)
    assert len(planner.stuck(AFTER_S)) == 1
    assert planner.stuck(2 * AFTER_S - 0.1) == []
    assert asked(planner.stuck(2 * AFTER_S)) == [("a", "b")]
    planner.happens(2 * AFTER_S + 1, started("a", "n1"))
    assert planner.core.watch.stuck == set()
    assert planner.stuck(3 * AFTER_S + 1) == []


def test_a_call_under_way_explains_silence_for_as_long_as_it_may_take() -> None:
    planner = started_planner(CHAIN, started("a", "n1"))
    assert planner.stuck(TIMEOUT_S) == []
    (found,) = planner.stuck(TIMEOUT_S + 2 * AFTER_S)
    assert found.waits_for == "the outcome of a"
    assert asked([found]) == []


def test_a_pause_between_two_tries_explains_silence() -> None:
    due = about(ev.RetryScheduled, "a", invocation_id="n1", attempt=2, due_at="2026-01-01T00:00:00Z")
    plan = graph({"id": "a", "retry": {"max_backoff_s": TIMEOUT_S}})
    planner = started_planner(plan, started("a", "n1"), finished("a", "n1", "retryable_failure"), due)
    assert planner.stuck(TIMEOUT_S) == []
    (found,) = planner.stuck(TIMEOUT_S + 2 * AFTER_S)
    assert found.waits_for == "another try of a"


def test_every_lack_is_named() -> None:
    (found,) = started_planner(WIDE, started("a", "n1")).stuck(TIMEOUT_S + AFTER_S)
    assert found.waits_for == "the outcome of a and the start of b"
    assert asked([found]) == [("b",)]


@pytest.mark.parametrize(
    "last",
    [
        (started("a", "n1"), about(ev.InvocationParked, "a", invocation_id="n1", reason="r")),
        (APPROVAL,),
        (ev.JobWaiting(job_id=JOB, wait_type="signal"),),
        (ev.JobFailed(job_id=JOB, error="e"),),
        (ev.JobFailed(job_id=JOB, error="e"), sealed()),
        (sealed(),),
    ],
    ids=["parked", "approval", "waiting", "ended", "sealed", "sealed before its end"],
)
def test_who_waits_for_somebody_else_is_not_stuck(last: tuple[Event, ...]) -> None:
    planner = started_planner(CHAIN, *last)
    assert planner.core.watch.next_due() is None
    assert planner.stuck(1e9) == []


def test_who_needs_an_upgrade_is_not_stuck() -> None:
    planner = started_planner(CHAIN)
    planner.core.needs_upgrade(JOB, planner.offset)
    planner.happens(1.0)
    assert planner.stuck(1e9) == []


def test_a_stopping_job_asks_for_nothing_and_waits_for_its_end() -> None:
    stop = ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0)
    (found,) = started_planner(CHAIN, stop).stuck(AFTER_S)
    assert found.waits_for == "its own end"
    assert asked([found]) == []


def test_after_a_restore_silence_counts_from_anew() -> None:
    planner = started_planner(CHAIN)
    planner.core.recover(1000.0)
    assert planner.stuck(1000.0 + AFTER_S - 0.1) == []
    assert asked(planner.stuck(1000.0 + AFTER_S)) == [("a", "b")]


def test_the_watch_looks_only_at_who_is_due() -> None:
    planner = started_planner(CHAIN)
    other = created().model_copy(update={"job_id": "other"})
    planner.happens(10.0, other, planned(CHAIN).model_copy(update={"job_id": "other"}))
    assert [found.job_id for found in planner.stuck(AFTER_S)] == [JOB]
    assert planner.core.watch.next_due() == AFTER_S + 10.0
    assert [found.job_id for found in planner.stuck(AFTER_S + 10.0)] == ["other"]
    planner.core.watch.clear()
    assert planner.stuck(1e9) == []


async def test_the_service_says_so_in_its_log_asks_again_and_looks_again_later(tmp_path: Path) -> None:
    log, clock, calls = MemoryLog(partitions=1), VirtualClock(), list[float]()
    appender = log.appender()
    await appender.start()
    handler = PlannerHandler(
        partition=0,
        taken=lambda: -1,
        appender=appender,
        withheld=Withheld(appender, clock, Metrics("planner")),
        indexed=lambda _job_id: None,
        behind=Behinds(),
        quarantine=lambda _record, _reason: None,
        traffic=BlobTraffic(FolderBlobs(tmp_path), clock),
        telemetry=Telemetry("planner", 0),
        metrics=Metrics("planner"),
        clock=clock,
        again=lambda _start, _end: pytest.fail("nothing waits"),
        look_up=lambda job_id: pytest.fail(f"{job_id} is not asked for"),
        call_at=calls.append,
    )
    for event in (created(), planned(CHAIN)):
        await appender.append([(draft(Topic.JOBS_EVENTS, event, key=JOB, id="1", source="test", time=""),)])
    handler.fold(log.records(Topic.JOBS_EVENTS))
    await handler.restored()
    assert calls == [AFTER_S]
    assert len(log.records(Topic.TOOLS_REQUESTS)) == 1
    await clock.advance(AFTER_S)
    with capture_logs() as reported:
        await handler.tick()
    [line] = [one for one in reported if one["event"] == "job stuck"]
    assert (line["job_id"], line["waits_for"], line["log_level"]) == (JOB, "the start of a", "warning")
    first, again = log.records(Topic.TOOLS_REQUESTS)
    assert first.value == again.value
    assert handler.stuck == 1
    assert calls == [AFTER_S, 2 * AFTER_S]
    await handler.close()
    assert handler.stuck == 0


def retry(due_at: str, node: str = "a", attempt: int = 2) -> Event:
    return about(ev.RetryScheduled, node, invocation_id="i1", attempt=attempt, due_at=due_at)


RETRYABLE = (started("a", "i1"), finished("a", "i1", "retryable_failure"))
LONG, SHORT = "2026-01-01T00:00:10Z", "2026-01-01T00:00:09Z"


@pytest.mark.parametrize(
    ("plan", "due_at", "at_work"),
    [(CHAIN, LONG, 0), (CHAIN, SHORT, 1), (CHAIN, "soon", 1), (CHAIN, "2026-01-01T00:01:00", 1), (WIDE, LONG, 1)],
)
def test_a_job_takes_no_room_while_it_only_waits_long_for_another_try(
    plan: dict[str, Any], due_at: str, at_work: int
) -> None:
    planner = started_planner(plan, *RETRYABLE)
    assert len(planner.core.in_flight) == 1
    planner.happens(0.0, retry(due_at))
    assert len(planner.core.in_flight) == at_work
    assert planner.core.watch.next_due() == AFTER_S  # a try that never comes is told all the same
    planner.happens(10.0, started("a", "i2", token=2, attempt=1))
    assert len(planner.core.in_flight) == 1
