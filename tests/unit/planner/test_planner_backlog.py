"""Back-pressure: beyond the jobs in flight, submissions stay in the log and are read again when there is room."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aetheris.planner.core.backlog import Backlog, JobsInFlight
from aetheris.planner.core.behind import Behinds
from aetheris.planner.handlers import PlannerHandler
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, Submit
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.events import Event
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.withheld import Withheld
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.memory import MemoryLog
from tests.testkit.histories import TENANT, graph

IN_FLIGHT = 4
COMMANDS = (str(Topic.JOBS_COMMANDS), 0)


class PlannerOnLog:
    """A planner on a log of one partition; `round` gives it what has come since the last one."""

    def __init__(
        self,
        log: MemoryLog,
        data: Path,
        seen: int = 0,
        keys: RecordKeys = UNSIGNED,
        rules: OrderTable[RulesOrders] | None = None,
    ) -> None:
        self.log = log
        self.read_again: list[tuple[int, int]] = []
        self.wake_ups = 0
        self.calls: list[float] = []
        self.taken = -1
        self.seen = {Topic.JOBS_EVENTS: 0, Topic.JOBS_COMMANDS: seen}
        self.appender = log.appender()
        self.handler = PlannerHandler(
            partition=0,
            taken=lambda: self.taken,
            appender=self.appender,
            withheld=Withheld(self.appender, VirtualClock(), Metrics("planner")),
            indexed=lambda _job_id: None,
            behind=Behinds(),
            quarantine=lambda record, reason: pytest.fail(f"{record.offset}: {reason}"),
            traffic=BlobTraffic(FolderBlobs(data), VirtualClock()),
            telemetry=Telemetry("planner", 0),
            metrics=Metrics("planner"),
            clock=VirtualClock(),
            again=self._again,
            look_up=lambda job_id: pytest.fail(f"{job_id} is not asked for"),
            jobs_in_flight=IN_FLIGHT,
            keys=keys,
            rules=rules,
            wake_up=self._wake_up,
            call_at=self.calls.append,
        )

    async def start(self) -> None:
        await self.appender.start()
        history = self._new(Topic.JOBS_EVENTS)
        self.handler.fold(history)
        await self.handler.restored()

    async def round(self) -> None:
        """Until nothing new comes of it."""
        while batch := {str(topic): new for topic in self.seen if (new := self._new(topic))}:
            await self.handler.handle(batch)

    def _wake_up(self) -> None:
        self.wake_ups += 1

    def _new(self, topic: Topic) -> Sequence[Record]:
        records = self.log.records(topic)
        new = [record for record in records if record.offset >= self.seen[topic]]
        self.seen[topic] += len(new)
        return new

    async def _again(self, start: int, end: int) -> AsyncIterator[Sequence[Record]]:
        self.read_again.append((start, end))
        async for records in replay(self.log, COMMANDS, start, end):
            yield records


async def write(log: MemoryLog, topic: Topic, *bodies: Any) -> None:
    appender = log.appender()
    await appender.start()
    for body in bodies:
        await appender.append([(draft(topic, body, key=body.job_id, id=f"id-{id(body)}", source="test", time=""),)])


def submit(number: int, tenant: str = TENANT) -> Submit:
    plan = graph({"id": "a"})
    return Submit(job_id=f"job-{number}", by="ann", tenant=tenant, request_hash="r", plan=plan)


def events(log: MemoryLog) -> list[Event]:
    found = [decode_event(record) for record in log.records(Topic.JOBS_EVENTS)]
    return [one.body for one in found if isinstance(one, Envelope)]


def born(log: MemoryLog) -> list[str]:
    return [event.job_id for event in events(log) if isinstance(event, ev.JobCreated)]


def ended(*numbers: int) -> list[Event]:
    return [ev.JobCompleted(job_id=f"job-{number}") for number in numbers]


jobs = partial(map, "job-{}".format)


async def test_what_has_no_room_is_read_again_in_its_order_when_half_of_it_is_free(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    planner = PlannerOnLog(log, tmp_path)
    await planner.start()
    await write(log, Topic.JOBS_COMMANDS, *(submit(number) for number in range(10)))
    await planner.round()
    assert born(log) == [*jobs(range(4))]
    assert planner.handler.low_water(Topic.JOBS_COMMANDS) == 4
    await write(log, Topic.JOBS_EVENTS, *ended(0))
    await planner.round()
    assert born(log) == [*jobs(range(4))]
    await write(log, Topic.JOBS_EVENTS, *ended(1))
    await write(log, Topic.JOBS_COMMANDS, submit(10))  # overtakes nobody
    await planner.round()
    assert born(log) == [*jobs(range(6))]
    assert planner.read_again == [(4, 6)]
    for first in (2, 4, 6, 8):
        await write(log, Topic.JOBS_EVENTS, *ended(first, first + 1))
        await planner.round()
    assert born(log) == [*jobs(range(11))]
    assert planner.handler.low_water(Topic.JOBS_COMMANDS) is None


async def test_a_cancel_of_a_job_that_waits_is_carried_out_at_its_birth(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    planner = PlannerOnLog(log, tmp_path)
    await planner.start()
    wanted, unknown = (Cancel(job_id=f"job-{n}", by="bob", tenant=TENANT) for n in (5, 77))
    await write(log, Topic.JOBS_COMMANDS, *(submit(number) for number in range(6)), wanted, unknown)
    await planner.round()
    assert not [event for event in events(log) if isinstance(event, ev.CancelRequested)]
    await write(log, Topic.JOBS_EVENTS, *ended(0, 1))
    await planner.round()
    assert [event.job_id for event in events(log) if isinstance(event, ev.CancelRequested)] == ["job-5"]
    assert planner.handler.low_water(Topic.JOBS_COMMANDS) is None


async def test_who_waits_outlives_the_planner(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    first = PlannerOnLog(log, tmp_path)
    await first.start()
    await write(log, Topic.JOBS_COMMANDS, *(submit(number) for number in range(6)))
    await first.round()
    committed = first.handler.low_water(Topic.JOBS_COMMANDS)
    assert committed == 4
    await write(log, Topic.JOBS_EVENTS, *ended(0, 1, 2))
    successor = PlannerOnLog(log, tmp_path, seen=committed)
    await successor.start()
    await successor.round()
    assert born(log) == [*jobs(range(6))]


async def test_who_waits_for_the_end_of_a_job_is_rung(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    planner = PlannerOnLog(log, tmp_path)
    await planner.start()
    await write(log, Topic.JOBS_COMMANDS, submit(0))
    await planner.round()
    assert planner.wake_ups == 0
    await write(log, Topic.JOBS_COMMANDS, Cancel(job_id="job-0", by="bob", tenant=TENANT))
    await planner.round()
    assert [event for event in events(log) if isinstance(event, ev.JobCancelled)]
    assert planner.wake_ups == 1


async def test_a_tenant_that_has_filled_the_room_takes_no_others_share(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    planner = PlannerOnLog(log, tmp_path)
    await planner.start()
    await write(log, Topic.JOBS_COMMANDS, *(submit(number) for number in range(50)))
    await planner.round()
    await write(log, Topic.JOBS_COMMANDS, submit(50, "other"), submit(51, "other"), submit(52, "third"))
    await planner.round()
    assert born(log) == [*jobs(range(4)), "job-50", "job-52"]
    await write(log, Topic.JOBS_EVENTS, *ended(50))
    await planner.round()
    assert born(log)[-1] == "job-51"
    assert planner.read_again == [(51, 52)]


def test_shares_are_given_to_who_has_the_fewest() -> None:
    in_flight, backlog = JobsInFlight(), Backlog(limit=20)
    for number in range(20):
        in_flight.put(f"job-{number}", "big")
    assert backlog.must_wait("big", in_flight)
    assert not backlog.must_wait("small", in_flight)
    for offset in range(100):
        backlog.put("big", offset)
    for offset, tenant in enumerate(("small", "small", "small", "tiny"), 100):
        backlog.put(tenant, offset)
    assert backlog.take(in_flight) == [100, 101, 103]  # a share is two of twenty
    for number in range(10):
        in_flight.drop(f"job-{number}")
    assert backlog.take(in_flight) == [*range(9), 102]
    assert (backlog.oldest, len(backlog)) == (9, 91)
