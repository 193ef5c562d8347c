"""What real brokers refuse: a group too large for its topic, a wrong clock, a missing permission; others go on."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Generator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aetheris.cli.embedded.kafka import Tuning, broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.protocol.base.records import Draft, Group
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.appender import KafkaAppender
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.log.interface import Appender, AppendRefused
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.withheld import Withheld
from aetheris.runtime.telemetry.metrics import Metrics
from tests.testkit.brokers import AUTHORIZED, allow_writing, configure, forbid_writing

pytestmark = pytest.mark.real

DEADLINE_S = 60.0
ACROSS_S = 5.0
"""For so long others write while one thing is refused."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    data = tmp_path_factory.mktemp("authorized")
    made = broker_in(install(lambda _part, _state: None), data, Ports(data), Tuning(properties=AUTHORIZED))
    with running_broker(made, data / "kafka.log") as address:
        yield address


@pytest.fixture
async def log(broker: str) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(broker)
    await log.start()
    yield log
    await log.stop()


@pytest.fixture
async def appender(log: KafkaLog) -> AsyncIterator[Appender]:
    appender = log.appender()
    await appender.start()
    yield appender
    await appender.stop()


async def topic(broker: str, partitions: int = 2, settings: dict[str, str] | None = None) -> str:
    """With these settings from its first moment: one that is set later holds a while later."""
    name = f"refused-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(**client_options(broker))
    await admin.start()
    await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
    await admin.close()
    return name


async def test_a_group_too_large_for_its_topic_fails_alone_and_nobody_is_written_twice(
    broker: str, log: KafkaLog, appender: Appender
) -> None:
    small, others = await topic(broker, settings={"max.message.bytes": "20000"}), await topic(broker)
    large = _group(small, "large", size=30_000)

    async def write(name: str, at: str) -> None:
        await appender.append([_group(at, f"{name}/{turn}", size=3_000) for turn in range(10)])

    async with asyncio.timeout(DEADLINE_S):
        writing = [write(f"{at}-{n}", at) for n in range(10) for at in (small, others)]
        refusing = [asyncio.create_task(_refused(appender, large)) for _ in range(2)]
        await asyncio.gather(*writing, *refusing)
    for refused in refusing:
        assert [(one.group, one.why) for one in refused.result().refusals] == [(large, "MessageSizeTooLargeError")]
    for at in (small, others):
        found = Counter(await _values(log, at))
        assert set(found.values()) == {1}
        assert len(found) == 10 * 10
    assert not appender.refusals()


async def test_a_topic_that_may_not_be_written_makes_no_copy_elsewhere_and_goes_on_when_it_may(
    broker: str, log: KafkaLog, appender: Appender
) -> None:
    closed, others = await topic(broker), await topic(broker)
    await appender.append([_group(closed, "first")])
    await forbid_writing(broker, closed)
    waiting = asyncio.create_task(appender.append([_group(closed, "second")]))
    written = await _write_for(appender, others, ACROSS_S)
    assert dict(appender.refusals()) == {closed: "TopicAuthorizationFailedError"}
    assert Counter(await _values(log, others)) == Counter(written)
    assert not waiting.done()
    await allow_writing(broker, closed)
    await asyncio.wait_for(waiting, DEADLINE_S)
    assert not appender.refusals()
    assert await _values(log, closed) == ["first", "second"]


async def test_a_clock_an_hour_ahead_writes_nothing_and_once_when_it_is_set(broker: str, log: KafkaLog) -> None:
    name = await topic(broker)
    ahead_s = 2 * 3600.0
    appender = KafkaAppender(log._brokers, log.partitions, wall=lambda: time.time() + ahead_s)  # pyright: ignore[reportPrivateUsage]
    await appender.start()
    waiting = asyncio.create_task(appender.append([_group(name, "a")]))
    async with asyncio.timeout(DEADLINE_S):
        while dict(appender.refusals()) != {name: "InvalidTimestampError"}:  # noqa: ASYNC110  as a probe of readiness asks
            await asyncio.sleep(0.05)
        ahead_s = 0.0
        await waiting
    assert await _values(log, name) == ["a"]
    await appender.stop()


async def test_what_is_withheld_is_told_and_goes_on_when_the_topic_takes_it(
    broker: str, log: KafkaLog, appender: Appender
) -> None:
    name = await topic(broker, settings={"max.message.bytes": "20000"})
    withheld = Withheld(appender, SystemClock(), Metrics("test"))
    async with asyncio.timeout(DEADLINE_S):
        await withheld.append([_group(name, "large", size=30_000), _group(name, "small")])
        assert withheld.reported() == {
            "count": 1,
            "groups": [{"job_id": "k", "topic": name, "reason": "MessageSizeTooLargeError"}],
        }
        assert await _values(log, name) == ["small"]
        await configure(broker, name, {})
        while withheld.reported()["count"]:  # noqa: ASYNC110  as a probe of readiness asks
            await asyncio.sleep(0.05)
    assert [value[:5] for value in await _values(log, name)] == ["small", "large"]
    await withheld.close()


def _group(topic: str, name: str, size: int = 0) -> Group:
    return (Draft(topic, b"k", name.ljust(size, "x").encode()),)


async def _refused(appender: Appender, group: Group) -> AppendRefused:
    with pytest.raises(AppendRefused) as refused:
        await appender.append([group])
    return refused.value


async def _write_for(appender: Appender, topic: str, seconds: float) -> list[str]:
    """Appends one after the other for so long; what was acknowledged."""
    written: list[str] = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        written.append(str(len(written)))
        await appender.append([_group(topic, written[-1])])
    return written


async def _values(log: KafkaLog, topic: str) -> list[str]:
    ends = await log.end_offsets([(topic, number) for number in range(await log.partitions(topic))])
    found: list[str] = []
    for place, end in ends.items():
        async for records in replay(log, place, 0, end):
            found += [record.value.decode() for record in records]
    return found
