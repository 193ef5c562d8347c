"""A job is one, however many partitions there come to be while it is submitted again and again, whoever dies meanwhile.

Planners as they are, on logs in memory. Each believes of its own that there are so many partitions; their tables of
jobs are behind; they die between any two appends, and who is taken for dead goes on for a while.
"""

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aetheris.planner.core.behind import Behinds
from aetheris.planner.core.placements import JobPlaces
from aetheris.planner.handlers import PlannerHandler
from aetheris.protocol.base.records import Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.provenance import Standing
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import PLACED_KEY, Cancel, JobCommand, JobPlaced, PlacementOver, Submit
from aetheris.protocol.messages.envelope import Envelope, decode_event, decode_message, draft, read_barrier
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.keys.records import UNSIGNED, PartitionRecords
from aetheris.runtime.log.job_lines import JobLine, read_line
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.withheld import Withheld
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.memory import MemoryAppender, MemoryLog
from tests.testkit.histories import TENANT, graph

FIRST, MOST = 2, 8
SEEDS = range(60)
EVENTS, COMMANDS = str(Topic.JOBS_EVENTS), str(Topic.JOBS_COMMANDS)


class PlannerKilled(Exception):
    """Of one that appends."""


class DyingAppender:
    """Writes a part of what it is given, at times, and dies."""

    def __init__(self, writer: MemoryAppender, chance: random.Random) -> None:
        self._writer = writer
        self._chance = chance
        self.dies = 0.0

    async def append(self, groups: Sequence[Group]) -> None:
        for group in groups:
            if self._chance.random() < self.dies:
                raise PlannerKilled
            await self._writer.append([group])


class PlannerLife:
    """A planner of one partition, from where the last one has committed."""

    def __init__(self, world: "GrowingWorld", number: int, data: Path) -> None:
        self.world, self.number = world, number
        self.count = world.count if world.chance.random() < 0.5 else world.believed[number]
        self.rows = dict(world.index())
        self.read = dict(world.committed[number])
        self.quarantined: list[int] = []
        writer = world.log.appender()
        self._writer = writer
        self.appender = DyingAppender(writer, world.chance)
        clock, metrics = VirtualClock(), Metrics("planner")
        self.handler = PlannerHandler(
            partition=number,
            taken=lambda: -1,
            appender=self.appender,
            withheld=Withheld(writer, clock, metrics),
            indexed=self.rows.get,
            behind=Behinds(),
            quarantine=lambda record, _reason: self.quarantined.append(record.offset),
            traffic=BlobTraffic(FolderBlobs(data), clock),
            telemetry=Telemetry("planner", 0),
            metrics=metrics,
            clock=clock,
            again=self._again,
            look_up=lambda job_id: pytest.fail(f"{job_id} is not asked for"),
            call_at=lambda _at: None,
            places=JobPlaces(lambda job: partition_of(job, FIRST), lambda job: partition_of(job, self.count)),
        )

    async def start(self) -> None:
        await self._writer.start()
        self.handler.fold(self._new(EVENTS, MOST * 1000))
        await self.handler.restored()

    async def turn(self, at_most: int = 1000, events_at_most: int = 1000) -> bool:
        """Take what has come; whether anything had."""
        events = self._new(EVENTS, events_at_most)
        commands = self._new(COMMANDS, at_most)
        batch = {topic: records for topic, records in ((EVENTS, events), (COMMANDS, commands)) if records}
        await self.handler.handle(batch)
        await self.handler.tick()
        return bool(batch)

    def commit(self) -> None:
        births = [offset for _, offset in self.handler.live()]
        low = self.handler.low_water(Topic.JOBS_COMMANDS)
        self.world.committed[self.number] = {
            EVENTS: min([*births, self.read[EVENTS]]),
            COMMANDS: self.read[COMMANDS] if low is None else min(low, self.read[COMMANDS]),
        }
        self.world.believed[self.number] = self.count  # brokers never show fewer than they did

    def look(self) -> None:
        """Its table comes to where the index is; it may hear that there are more partitions."""
        self.rows.update(self.world.index())
        self.count = max(self.count, self.world.count)

    def _new(self, topic: str, at_most: int) -> list[Record]:
        found = self.world.log.records(topic, self.number)[self.read[topic] :][:at_most]
        self.read[topic] += len(found)
        return found

    async def _again(self, start: int, end: int) -> AsyncIterator[Sequence[Record]]:
        async for records in replay(self.world.log, (COMMANDS, self.number), start, end):
            yield records


class GrowingWorld:
    """The logs, and what of them is committed."""

    def __init__(self, seed: int, data: Path) -> None:
        self.chance = random.Random(seed)  # noqa: S311  replayable
        self.data = data
        self.log = MemoryLog(partitions=MOST)
        self.count = FIRST
        self.believed = dict.fromkeys(range(MOST), FIRST)
        self.committed = {number: {EVENTS: 0, COMMANDS: 0} for number in range(MOST)}
        self.lives: dict[int, PlannerLife] = {}
        self.asleep: list[PlannerLife] = []
        self.submitted: dict[str, Submit] = {}
        self.cancelled: set[str] = set()

    def index(self) -> dict[str, JobLine]:
        found: dict[str, JobLine] = {}
        for record in self.log.records(Topic.JOBS_INDEX):
            found[(record.key or b"").decode()] = read_line(record.value)
        return found

    async def life(self, number: int) -> PlannerLife:
        if number not in self.lives:
            one = PlannerLife(self, number, self.data)
            await one.start()
            self.lives[number] = one
        return self.lives[number]

    async def say(self, command: JobCommand, place: int) -> None:
        appender = self.log.appender()
        await appender.start()
        made = draft(
            COMMANDS, command, key=command.job_id, id=str(self.chance.random()), source="t", time="t", partition=place
        )
        await appender.append([(made,)])

    async def submit(self, job_id: str, plan: dict[str, Any]) -> None:
        command = self.submitted.setdefault(
            job_id, Submit(job_id=job_id, by="ann", tenant=TENANT, request_hash="r", plan=plan)
        )
        await self.say(command, partition_of(job_id, FIRST))

    async def cancel(self, job_id: str) -> None:
        """By a gateway that may know where the job lies."""
        self.cancelled.add(job_id)
        line, named = self.index().get(job_id), partition_of(job_id, FIRST)
        knows = line is not None and self.chance.random() < 0.5
        await self.say(
            Cancel(job_id=job_id, by="ann", tenant=TENANT),
            line.lies_in(job_id, FIRST) if line is not None and knows else named,
        )

    async def step(self, number: int) -> None:
        """Something happens in a partition."""
        one, chance = await self.life(number), self.chance
        one.appender.dies = 0.1
        try:
            await one.turn(chance.randint(1, 3), chance.choice((0, 2, 100)))
            if chance.random() < 0.5:
                one.look()
            if chance.random() < 0.5:
                one.commit()
        except PlannerKilled:
            del self.lives[number]
            return
        if chance.random() < 0.1:  # others take its place, and it does not know
            self.asleep.append(self.lives.pop(number))

    async def wake(self) -> None:
        """Somebody whose partition is another's by now goes on, once."""
        one = self.asleep.pop(self.chance.randrange(len(self.asleep)))
        one.appender.dies = 0.0
        await one.turn(self.chance.randint(1, 3), self.chance.choice((0, 2, 100)))

    async def settle(self) -> None:
        """All go on, and nobody dies, until nothing is left to do."""
        moves = True
        while moves:
            moves = False
            for number in range(self.count):
                one = await self.life(number)
                one.appender.dies = 0.0
                one.look()
                moves = await one.turn() or moves
                one.commit()

    def births(self) -> dict[str, list[int]]:
        """Job → the partitions in which it was created, as everybody judges who reads these."""
        found: dict[str, list[int]] = defaultdict(list)
        for number in range(MOST):
            for job_id in self._born_in(number):
                found[job_id].append(number)
        return found

    def _born_in(self, number: int) -> Iterator[str]:
        judge, known = PartitionRecords(UNSIGNED, number), set[str]()
        for record in self.log.records(EVENTS, number):
            barrier = read_barrier(record)
            if isinstance(barrier, JobPlaced):
                judge.rules.placed(barrier)
                continue
            found = decode_event(record)
            if not isinstance(found, Envelope) or not isinstance(found.body, ev.JobCreated):
                continue
            if found.body.job_id not in known and judge.judge(record, found.body) is Standing.COUNTS:
                known.add(found.body.job_id)
                yield found.body.job_id

    def stopped(self) -> set[str]:
        found = (decode_event(record) for record in self.log.records(EVENTS))
        return {one.body.job_id for one in found if isinstance(one, Envelope) and isinstance(one.body, ev.JobStopping)}


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_job_is_one_while_partitions_are_added(seed: int, tmp_path: Path) -> None:
    world = GrowingWorld(seed, tmp_path)
    chance, growths = world.chance, [4, 5, 8]
    for turn in range(120):
        happens = chance.random()
        if happens < 0.25:
            await world.submit(f"job-{chance.randrange(25)}", graph({"id": "a"}))
        elif happens < 0.3 and world.submitted:
            await world.cancel(chance.choice(sorted(world.submitted)))
        elif happens < 0.35 and world.asleep:
            await world.wake()
        elif turn >= 20 and happens < 0.4 and growths:
            world.count = growths.pop(0)
        else:
            await world.step(chance.randrange(world.count))
    world.lives.clear()
    await world.settle()
    births = world.births()
    assert births.keys() == world.submitted.keys(), f"seed {seed}"
    assert {job_id: where for job_id, where in births.items() if len(where) > 1} == {}, f"seed {seed}"
    lines = world.index()
    assert {job_id: [lines[job_id].lies_in(job_id, FIRST)] for job_id in births} == births, f"seed {seed}"
    assert world.stopped() == world.cancelled, f"seed {seed}"
    held = [one.handler.low_water(Topic.JOBS_COMMANDS) for one in world.lives.values()]
    assert (set(held), _needed(world)) == ({None}, set()), f"seed {seed}"


async def test_a_repeat_behind_a_second_growth_goes_where_the_first_one_was_placed(tmp_path: Path) -> None:
    """Whoever has that partition has not taken it up yet, and who placed it there is another process by now."""
    world, job_id = GrowingWorld(1, tmp_path), _moving(FIRST, 4, MOST)
    named, home = partition_of(job_id, FIRST), partition_of(job_id, 4)
    world.count = 4
    await world.submit(job_id, graph({"id": "a"}))
    one = await world.life(named)
    one.look()
    while await one.turn():
        one.commit()
    assert world.log.records(COMMANDS, home)
    del world.lives[named]
    world.count = MOST
    await world.submit(job_id, graph({"id": "a"}))
    again = await world.life(named)
    again.look()
    while await again.turn():
        pass
    await world.settle()
    assert (world.births(), _needed(world)) == ({job_id: [home]}, set())


async def test_of_two_planners_that_differ_the_first_in_the_log_is_right(tmp_path: Path) -> None:
    world, job_id = GrowingWorld(1, tmp_path), _moving(FIRST, 4, MOST)
    named = partition_of(job_id, FIRST)
    lives = [PlannerLife(world, named, tmp_path) for _ in range(2)]
    for one, count in zip(lives, (4, MOST), strict=True):
        await one.start()
        one.count = count
    world.count = MOST
    await world.submit(job_id, graph({"id": "a"}))
    for one in lives:
        await one.turn(events_at_most=0)
    placed = [read_barrier(record) for record in world.log.records(EVENTS, named)]
    assert [one.partition for one in placed if isinstance(one, JobPlaced)] == [
        partition_of(job_id, 4),
        partition_of(job_id, MOST),
    ]
    for one in lives:
        while await one.turn():
            pass
    await world.settle()
    assert world.births() == {job_id: [partition_of(job_id, 4)]}


async def test_a_job_that_is_refused_where_it_was_placed_is_forgotten(tmp_path: Path) -> None:
    """Also by who reads the placement again, because a job that lives holds the mark."""
    world, bad = GrowingWorld(1, tmp_path), _moving(FIRST, MOST)
    named = partition_of(bad, FIRST)
    lives = next(name for name in map("job-{}".format, range(99)) if {*_homes(name, FIRST, MOST)} == {named})
    await world.submit(lives, graph({"id": "a"}))
    await world.settle()
    world.count = MOST
    await world.submit(bad, graph({"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}))
    await world.settle()
    assert (world.births(), _needed(world)) == ({lives: [named]}, set())
    assert [len(one.quarantined) for one in world.lives.values() if one.quarantined] == [1]
    world.lives.clear()
    await world.settle()
    assert (world.births(), _needed(world)) == ({lives: [named]}, set())


async def test_a_word_of_a_placement_that_nobody_knows_does_nothing(tmp_path: Path) -> None:
    world = GrowingWorld(1, tmp_path)
    await world.say(PlacementOver(job_id="job-1", by="ann", tenant=TENANT), partition_of("job-1", FIRST))
    await world.submit("job-1", graph({"id": "a"}))
    await world.settle()
    assert world.births() == {"job-1": [partition_of("job-1", FIRST)]}


async def test_nothing_is_placed_as_long_as_there_are_as_many_as_at_first(tmp_path: Path) -> None:
    world = GrowingWorld(1, tmp_path)
    for number in range(20):
        await world.submit(f"job-{number}", graph({"id": "a"}))
    await world.settle()
    assert all(read_barrier(record) is None for record in world.log.records(EVENTS))
    passed_on = [decode_message(record) for record in world.log.records(COMMANDS)]
    assert len(passed_on) == 20
    assert all(line.partition is None for line in world.index().values())


def _homes(job_id: str, *counts: int) -> list[int]:
    return [partition_of(job_id, count) for count in counts]


def _moving(*counts: int) -> str:
    """A job that lies in another partition for each of these numbers of them."""
    return next(name for name in map("job-{}".format, range(999)) if len({*_homes(name, *counts)}) == len(counts))


def _needed(world: GrowingWorld) -> set[str]:
    """What holds marks for the sake of placements."""
    return {name for one in world.lives.values() for name, _ in one.handler.live() if name == PLACED_KEY}
