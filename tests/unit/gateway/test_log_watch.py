"""What services had read of jobs.events is held against the log; an old leader is not believed."""

from collections.abc import Collection

import pytest

from aetheris.gateway.log_watch import LOOK_EVERY_S, LogWatch
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.interface import GAP_BELIEVED_S, LogUnreachable, Place
from aetheris.runtime.log.replay import replay
from aetheris.runtime.worker.reached import LastRead
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.memory import MemoryLog

PLACE: Place = (str(Topic.JOBS_EVENTS), 1)


class OldLeader(MemoryLog):
    """`lag`: so many records less than there are it says that a partition has; or nothing at all."""

    lag = 0
    silent = False

    async def end_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:
        if self.silent:
            raise LogUnreachable("nobody leads")
        return {place: end - self.lag for place, end in (await super().end_offsets(places, deadline_s)).items()}


@pytest.fixture
def log() -> OldLeader:
    return OldLeader(2)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def watch(log: OldLeader, clock: VirtualClock) -> LogWatch:
    return LogWatch(log, lambda: ["main", "gpu"], clock)


async def written(log: MemoryLog, *values: bytes) -> None:
    appender = log.appender()
    await appender.start()
    for value in values:
        await appender.append([(Draft(Topic.JOBS_EVENTS, b"k", value, (), PLACE[1]),)])


async def read_by(log: MemoryLog, service: str, at: int, *, as_it_was: bytes | None = None) -> None:
    """A service of that name says that it has read so far; `as_it_was`: and that this stood there."""
    (records,) = [records async for records in replay(log, PLACE, at, at + 1)]
    record = records[0] if as_it_was is None else records[0].replaced(value=as_it_was)
    group = f"aetheris.{service}"
    member = log.membership(group, f"{service}-{at}", (Topic.JOBS_EVENTS,))
    await member.start(_nothing, _nothing)
    await log.assign(group, {f"{service}-{at}": [PLACE[1]]})
    await member.commit({PLACE: 0}, notes={PLACE: LastRead.at(record).note()})


async def looked(watch: LogWatch, clock: VirtualClock, *, times: int = 2) -> list[tuple[str, int, str]]:
    for _ in range(times):
        await watch.look()
        await clock.advance(GAP_BELIEVED_S)
    await watch.look()
    return [(one.service, one.partition, one.why) for one in watch.cut]


async def test_a_log_that_has_what_was_read_is_whole(log: OldLeader, clock: VirtualClock, watch: LogWatch) -> None:
    await written(log, b"0", b"1", b"2")
    await read_by(log, "ledger", 2)
    await read_by(log, "planner", 0)
    assert await looked(watch, clock) == []
    assert watch.partitions == 0


async def test_one_that_ends_below_is_told_and_so_is_another_record(
    log: OldLeader, clock: VirtualClock, watch: LogWatch
) -> None:
    await written(log, b"0", b"1", b"2")
    await read_by(log, "ledger", 2)
    await read_by(log, "tool_executor.gpu", 0, as_it_was=b"another")
    log.lag = 1
    assert await looked(watch, clock) == [
        ("ledger", 1, "the log ends at 2; it was read to 2"),
        ("tool_executor.gpu", 1, "the log has another record at 0 than was read there"),
    ]
    assert watch.partitions == 1


async def test_who_tells_an_old_end_for_a_moment_is_not_believed(
    log: OldLeader, clock: VirtualClock, watch: LogWatch
) -> None:
    await written(log, b"0", b"1")
    await read_by(log, "verifier", 1)
    log.lag = 1
    await watch.look()
    log.lag = 0
    assert await looked(watch, clock) == []


async def test_what_cannot_be_known_stays_as_it_was(log: OldLeader, clock: VirtualClock, watch: LogWatch) -> None:
    await written(log, b"0", b"1")
    await read_by(log, "verifier", 1)
    log.lag = 1
    found = await looked(watch, clock)
    log.silent = True
    assert await looked(watch, clock) == found != []


async def test_who_reads_on_looks_himself(log: OldLeader, clock: VirtualClock, watch: LogWatch) -> None:
    """What is restored has marks of its own: nothing is said of what was read before."""
    await written(log, b"0", b"1")
    await read_by(log, "verifier", 1)
    log.lag = 1
    assert await looked(watch, clock) != []
    log.lag = 0
    await written(log, b"2")
    await read_by(log, "verifier", 2)
    assert await looked(watch, clock) == []
    assert LOOK_EVERY_S > GAP_BELIEVED_S


async def _nothing(_partitions: Collection[int]) -> None:
    """Nobody waits for partitions."""
