"""Members of a group, on real brokers: a connection breaks as they write, a coordinator hangs, brokers refuse them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaError

from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.kafka.members import members
from aetheris.runtime.kafka.membership import KafkaMembership
from aetheris.runtime.kafka.topics import BrokerRefused
from aetheris.runtime.log.interface import LogUnreachable, MembershipLost
from tests.testkit.altered_answers import AlteringProxy, altering_proxy, broker_elsewhere
from tests.testkit.attempts import fresh
from tests.testkit.cluster import Cluster, running_cluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DEADLINE_S = 60.0
MOVES_ON_S = 20.0
"""From when others coordinate; a client that waits as long as aiokafka's do by default needs 40."""
LONG_REBALANCE_S = 120.0


@dataclass
class Member:
    """A member, and what it was told."""

    part: KafkaMembership
    keeping: asyncio.Task[None] | None = None
    assigned: asyncio.Event = field(default_factory=asyncio.Event)
    revoked: list[frozenset[int]] = field(default_factory=list[frozenset[int]])
    may_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def _gained(self, _numbers: frozenset[int]) -> None:
        self.assigned.set()

    async def _lost(self, numbers: frozenset[int]) -> None:
        self.revoked.append(numbers)
        await self.may_go.wait()

    async def join(self) -> None:
        """Start, and stay."""
        await self.part.start(self._gained, self._lost)
        self.keeping = asyncio.create_task(self.part.keep())

    async def go(self) -> None:
        """Stop."""
        self.may_go.set()
        if self.keeping is not None:
            self.keeping.cancel()
        await self.part.stop(1.0)


@asynccontextmanager
async def joined(log: KafkaLog, group: str, name: str, topic: str) -> AsyncGenerator[Member]:
    member = Member(log.membership(group, name, (topic,)))
    await member.join()
    try:
        yield member
    finally:
        await member.go()


async def topic_at(bootstrap: str, replicas: int = 1) -> str:
    """A new one of two partitions."""
    name = fresh("coordinated")
    admin = AIOKafkaAdminClient(**client_options(bootstrap))
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 2, replicas)])
    finally:
        await admin.close()
    return name


async def commits(member: Member, topic: str, offset: int) -> None:
    """Until it does, as a service tries again and again."""
    while True:
        with suppress(LogUnreachable):
            await member.part.commit({(topic, 0): offset}, 5.0)
            return


async def within(seconds: float, what: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(seconds):
        await what


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[int, int]]:
    """Where a broker says that it is, and where it is."""
    with broker_elsewhere(tmp_path_factory.mktemp("reset")) as ports:
        yield ports


def breaking(monkeypatch: pytest.MonkeyPatch, proxy: AlteringProxy, request: str) -> asyncio.Event:
    """The next connection to a coordinator over which such a request is to be written is reset: its transport has
    closed, and aiokafka is not told before the next pass of the loop. Set once that was so."""
    send: Any = AIOKafkaClient.send
    broke = asyncio.Event()

    async def send_over_broken(client: Any, node: int, asked: Any, *, group: Any = ConnectionGroup.DEFAULT) -> Any:
        if type(asked).__name__ == request and not broke.is_set() and await client.ready(node, group=group):
            connection = client._conns[node, group]
            proxy.reset()
            while connection._writer is not None and "closed=True" not in repr(connection._writer.transport):  # noqa: ASYNC110  it is told at the next pass
                await asyncio.sleep(0)
            if connection._writer is not None:
                broke.set()
        return await send(client, node, asked, group=group)

    monkeypatch.setattr(AIOKafkaClient, "send", send_over_broken)
    return broke


@asynccontextmanager
async def behind(ports: tuple[int, int]) -> AsyncGenerator[tuple[AlteringProxy, KafkaLog, str]]:
    """A proxy before a real broker, a log that goes through it, and a topic there."""
    address = f"127.0.0.1:{ports[0]}"
    async with altering_proxy(*ports) as proxy:
        topic = await topic_at(address)
        log = KafkaLog(address)
        await log.start()
        try:
            yield proxy, log, topic
        finally:
            await log.stop()


@pytest.mark.parametrize("request_name", ["HeartbeatRequest", "OffsetCommitRequest", "OffsetFetchRequest"])
def test_a_connection_that_breaks_as_something_is_written_ends_no_membership(
    request_name: str, ports: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop raises RuntimeError there, which aiokafka takes for nothing that a connection does."""

    async def main() -> None:
        group = fresh("group")
        async with behind(ports) as (proxy, log, topic), joined(log, group, "one", topic) as member:
            await asyncio.wait_for(member.assigned.wait(), DEADLINE_S)
            before = await log.members(group)
            broken = breaking(monkeypatch, proxy, request_name)
            await within(DEADLINE_S, commits(member, topic, 7))
            assert await member.part.committed([(topic, 0)]) == {(topic, 0): 7}
            await asyncio.wait_for(broken.wait(), DEADLINE_S)
            await within(DEADLINE_S, commits(member, topic, 8))
            assert await member.part.committed([(topic, 0)]) == {(topic, 0): 8}
            await asyncio.sleep(2 * log.session_timeout_s)  # whoever says nothing for so long is expelled
            assert member.keeping is not None
            assert not member.keeping.done()
            assert (await log.members(group), member.revoked) == (before, [])

    uvloop.run(main())


@pytest.mark.parametrize("request_name", ["JoinGroupRequest", "SyncGroupRequest"])
def test_who_joins_over_a_connection_that_breaks_joins_all_the_same(
    request_name: str, ports: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with behind(ports) as (proxy, log, topic):
            broken = breaking(monkeypatch, proxy, request_name)
            async with joined(log, fresh("group"), "one", topic) as member:
                await asyncio.wait_for(broken.wait(), DEADLINE_S)
                await asyncio.wait_for(member.assigned.wait(), DEADLINE_S)
                await within(DEADLINE_S, commits(member, topic, 7))

    uvloop.run(main())


async def test_what_ends_coordination_ends_the_member_with_its_name(kafka: str) -> None:
    """Whatever it is: nobody goes on that says nothing to its group."""
    topic, group = await topic_at(kafka), fresh("group")
    log = KafkaLog(kafka)
    await log.start()
    async with joined(log, group, "one", topic) as member:
        await asyncio.wait_for(member.assigned.wait(), DEADLINE_S)
        coordinator: Any = member.part._consumer._coordinator  # type: ignore[union-attr]

        async def fails(_request: Any) -> Any:
            raise ZeroDivisionError

        coordinator._send_req = fails
        assert member.keeping is not None
        with pytest.raises(MembershipLost, match=f"group {group}: ZeroDivisionError"):
            await asyncio.wait_for(member.keeping, DEADLINE_S)
    await log.stop()


async def test_a_session_timeout_that_brokers_do_not_take_is_refused_by_name(kafka: str) -> None:
    topic = await topic_at(kafka)
    log = KafkaLog(kafka, session_timeout_s=0.5)
    await log.start()
    async with joined(log, fresh("group"), "one", topic) as member:
        assert member.keeping is not None
        with pytest.raises(BrokerRefused, match="AETHERIS_SESSION_TIMEOUT_S"):
            await asyncio.wait_for(member.keeping, DEADLINE_S)
    await log.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


async def coordinator(cluster: Cluster, group: str, *, but: int = 0) -> int:
    """Who coordinates, as a broker says that is not `but`; waits until somebody else than `but` does."""
    others = ",".join(cluster.broker(node).address for node in cluster.nodes if node != but)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            admin = AIOKafkaAdminClient(**client_options(others), request_timeout_ms=3000)
            try:
                await admin.start()
                found = await admin.find_coordinator(group)
                if found != but:
                    return found
            except (KafkaError, TimeoutError):
                pass  # it is being moved
            finally:
                await admin.close()
            await asyncio.sleep(0.2)


async def test_a_member_whose_coordinator_hangs_is_with_the_next_one_in_seconds(cluster: Cluster) -> None:
    topic, group = await topic_at(cluster.address, 3), fresh("group")
    log = KafkaLog(cluster.address)
    await log.start()
    async with joined(log, group, "one", topic) as member:
        await asyncio.wait_for(member.assigned.wait(), DEADLINE_S)
        await within(DEADLINE_S, commits(member, topic, 7))
        before = await members(cluster.address, group)
        hangs = await coordinator(cluster, group)
        cluster.stop(hangs)
        committing = asyncio.create_task(commits(member, topic, 8))
        await coordinator(cluster, group, but=hangs)
        moved_s = time.monotonic()
        await asyncio.wait_for(committing, DEADLINE_S)
        print(f"committed {time.monotonic() - moved_s:.1f} s after another coordinated")  # noqa: T201
        assert time.monotonic() - moved_s < MOVES_ON_S
        await asyncio.sleep(2 * log.session_timeout_s)  # it says so there, or is expelled
        others = ",".join(cluster.broker(node).address for node in cluster.nodes if node != hangs)
        assert (await members(others, group), member.revoked) == (before, [])
        cluster.wake(hangs)
    await log.stop()


async def test_who_waits_at_a_coordinator_that_hangs_joins_at_the_next_one(cluster: Cluster) -> None:
    """For the first member, which does not let go: a join may wait for that as long as a rebalance may take."""
    topic, group = await topic_at(cluster.address, 3), fresh("group")
    log = KafkaLog(cluster.address, rebalance_timeout_s=LONG_REBALANCE_S)
    await log.start()
    async with joined(log, group, "one", topic) as one:
        await asyncio.wait_for(one.assigned.wait(), DEADLINE_S)
        async with joined(log, group, "two", topic) as two:
            async with asyncio.timeout(DEADLINE_S):
                while not one.revoked:  # noqa: ASYNC110  the second waits from here on
                    await asyncio.sleep(0.1)
            hangs = await coordinator(cluster, group)
            cluster.stop(hangs)
            await coordinator(cluster, group, but=hangs)
            one.may_go.set()
            await asyncio.wait_for(two.assigned.wait(), MOVES_ON_S)
            cluster.wake(hangs)
    await log.stop()
