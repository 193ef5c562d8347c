"""KafkaMembership: which partition numbers are ours, and the group's offsets; it never fetches a record."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from ssl import SSLContext
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import OffsetAndMetadata

from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.base.refusal import WorkerIdTaken
from aetheris.runtime.kafka.assignor import GroupAssignor
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.clients import close_consumer, open_client
from aetheris.runtime.kafka.coordination import REQUEST_S
from aetheris.runtime.kafka.members import members
from aetheris.runtime.kafka.topics import BrokerRefused
from aetheris.runtime.log.interface import Listener, LogUnreachable, MembershipLost, Place, Tenure
from aetheris.runtime.log.names import unclaimed

_log = structlog.get_logger(__name__)

_REFUSALS: tuple[tuple[type[KafkaError], str], ...] = (
    (GroupAuthorizationFailedError, "this login may not read as it: give it Read on the group"),
    (TopicAuthorizationFailedError, "this login may not read one of its topics: give it Read and Describe"),
    (
        InvalidSessionTimeoutError,
        "AETHERIS_SESSION_TIMEOUT_S is less or more than brokers take (group.min. and group.max.session.timeout.ms)",
    ),
    (InconsistentGroupProtocolError, "somebody is in it who shares out partitions otherwise: end that process"),
)
"""What no repetition mends."""

_NEVER_IDLE_MS = 2**31 - 1
_GROWN_MS = 10_000
"""So often a consumer learns anew of its topics."""
_LOOK_MS = 2_000
"""Pause between a consumer's looks at what it could fetch, beside those that an event causes."""


class _Rebalances(ConsumerRebalanceListener):
    def __init__(self, member: "KafkaMembership") -> None:
        self._member = member

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]  aiokafka awaits it
        self, revoked: Iterable[TopicPartition]
    ) -> None:
        await self._member.lost({place.partition for place in revoked})
        await self._member.unclaimed()

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride]  aiokafka awaits it
        self, assigned: Iterable[TopicPartition]
    ) -> None:
        await self._member.gained(set(assigned))


class KafkaMembership:
    """A static member, where its name is stable; ranges give it the same partition numbers of every topic."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        member: str,
        topics: Collection[str],
        *,
        session_timeout_s: float,
        rebalance_timeout_s: float,
        stable: bool = True,
        tenure: Tenure | None = None,
        tls: SSLContext | None = None,
        prefix: str = "",
    ) -> None:
        self._prefix = in_kafka(prefix)
        self._stable = stable
        self._tenure = tenure
        self._id = ""
        self._tls = tls
        self._topics = sorted(self._prefix + topic for topic in topics)
        self._bootstrap = bootstrap
        self._group = self._prefix + group
        self._member = member
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._consumer: AIOKafkaConsumer | None = None
        self._assignor = GroupAssignor()
        self._assigned: Listener | None = None
        self._revoked: Listener | None = None
        self._ours: frozenset[int] = frozenset()
        self._failure: Exception | None = None

    async def start(self, assigned: Listener, revoked: Listener) -> None:
        """Join.

        Raises:
            LogUnreachable: no broker answers.
        """
        self._assigned, self._revoked = assigned, revoked
        consumer = self._made()
        await open_client(consumer, self._bootstrap)
        self._consumer = consumer
        consumer.subscribe(self._topics, listener=_Rebalances(self))

    async def stop(self, deadline_s: float = 5.0, *, leave: bool = False) -> None:
        """Tell `revoked`, then go; the broker keeps the place for the session timeout, unless it is given up."""
        consumer = self._consumer
        if consumer is None:
            return
        await self.lost(set(self._ours))
        self._consumer = None
        if leave:
            coordinator: Any = consumer._coordinator  # pyright: ignore[reportPrivateUsage]  who has a name never leaves
            coordinator._group_instance_id = None
        await close_consumer(consumer, deadline_s)

    async def keep(self) -> None:
        """Stay a member until cancelled, or stopped.

        Raises:
            WorkerIdTaken: another process has taken this member's place.
            BrokerRefused: the brokers don't have this member; the message says why.
            MembershipLost: the group can't go on, or a listener failed.
        """
        while (consumer := self._consumer) is not None:
            if isinstance(self._failure, WorkerIdTaken):
                raise self._failure
            if self._failure is not None:
                raise MembershipLost(f"a listener failed: {type(self._failure).__name__}") from self._failure
            try:
                with suppress(TimeoutError):  # it waits for as long as the member joins again
                    async with asyncio.timeout(self._session_timeout_s / 6):
                        await consumer.getmany(timeout_ms=0)
            except Exception as error:  # noqa: BLE001  whatever ended aiokafka's coordination: nobody heartbeats from here on
                if self._consumer is not consumer:
                    return
                raise self._ended(error) from None
            self._look_for_more(consumer)
            await asyncio.sleep(self._session_timeout_s / 6)

    def _look_for_more(self, consumer: AIOKafkaConsumer) -> None:
        """Where topics were given partitions since the group was shared out, join again."""
        client: Any = consumer._client  # pyright: ignore[reportPrivateUsage]  it has no public way to join again
        if self._assignor.has_grown(client.cluster, self._topics):
            _log.info("more partitions", group=self._group)
            coordinator: Any = consumer._coordinator  # pyright: ignore[reportPrivateUsage]
            coordinator.request_rejoin()

    def _ended(self, error: Exception) -> Exception:
        """What ends this process: the next one joins anew, where that can help."""
        for kind, why in _REFUSALS:
            if isinstance(error, kind):
                return BrokerRefused(f"group {self._group}: {why}")
        cause = error.__cause__ or error
        named = str(cause) if type(cause) is KafkaError else type(cause).__name__  # that quotes a broker's error code
        _log.error("no longer a member of its group", group=self._group, error=named)
        return MembershipLost(f"group {self._group}: {named}")

    async def committed(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int | None]:
        """The group's offsets; None where it never committed one.

        Raises:
            LogUnreachable: not within the deadline.
        """
        consumer = self._joined()
        try:
            async with asyncio.timeout(deadline_s):
                found = await asyncio.gather(*(consumer.committed(self._named(place)) for place in places))
        except (KafkaError, TimeoutError) as error:
            raise LogUnreachable(f"no committed offsets: {type(error).__name__}") from None
        return dict(zip(places, found, strict=True))

    async def noted(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, str]:
        """What was committed beside the group's offsets; empty where nothing was.

        Raises:
            LogUnreachable: not within the deadline.
        """
        coordinator: Any = self._joined()._coordinator  # pyright: ignore[reportPrivateUsage]  it tells offsets alone
        named = {self._named(place): place for place in places}
        try:
            async with asyncio.timeout(deadline_s):
                found = await coordinator.fetch_committed_offsets(list(named))
        except (KafkaError, TimeoutError) as error:
            raise LogUnreachable(f"no committed notes: {type(error).__name__}") from None
        return {place: found[at].metadata if at in found else "" for at, place in named.items()}

    async def commit(
        self, offsets: Mapping[Place, int], deadline_s: float = 10.0, *, notes: Mapping[Place, str] | None = None
    ) -> None:
        """Keep these offsets for whoever reads these places next, and beside them a note of what he must know.

        Raises:
            MembershipLost: somebody else owns them now.
            LogUnreachable: not within the deadline.
        """
        kept = {place: OffsetAndMetadata(offset, (notes or {}).get(place, "")) for place, offset in offsets.items()}
        try:
            async with asyncio.timeout(deadline_s):
                await self._joined().commit({self._named(place): one for place, one in kept.items()})
        except (CommitFailedError, IllegalStateError) as error:
            raise MembershipLost(type(error).__name__) from None
        except (KafkaError, TimeoutError) as error:
            raise LogUnreachable(f"offsets not committed: {type(error).__name__}") from None

    async def lost(self, partitions: Collection[int]) -> None:
        """aiokafka revokes: whoever reads these stops before others get them."""
        gone, self._ours = self._ours & frozenset(partitions), frozenset()
        if gone and self._revoked is not None:
            await self._report(self._revoked, gone)

    async def unclaimed(self) -> None:
        """Before it joins again: where another process is in its place it never does, and `keep` raises.

        aiokafka tells nobody that the place was taken: it takes it back.
        """
        if self._tenure is None or not self._id or self._consumer is None:
            return
        ask = partial(members, self._bootstrap, self._group, tls=self._tls)
        ended = {*self._tenure.former, self._id}
        try:
            await unclaimed(
                ask,
                self._member,
                ended,
                clock=SystemClock(),
                session_timeout_s=self._session_timeout_s,
                stopped=lambda: self._consumer is None,
            )
        except WorkerIdTaken as error:
            self._failure = error
            await asyncio.Event().wait()

    async def gained(self, places: Collection[TopicPartition]) -> None:
        """aiokafka assigns: the same numbers of every topic."""
        by_topic = {topic: frozenset(p.partition for p in places if p.topic == topic) for topic in self._topics}
        numbers = set(by_topic.values())
        if len(numbers) > 1:
            self._failure = LogUnreachable("the topics have different numbers of partitions")
            return
        self._remember()
        self._silence(places)
        self._ours = numbers.pop()
        if self._assigned is not None:
            await self._report(self._assigned, self._ours)

    def _remember(self) -> None:
        coordinator: Any = self._joined()._coordinator  # pyright: ignore[reportPrivateUsage]  it shows the id nowhere
        if self._tenure is not None and coordinator.member_id != self._id:
            self._id = coordinator.member_id
            self._tenure.hold(self._id)

    def _silence(self, places: Collection[TopicPartition]) -> None:
        """Other readers fetch; this consumer only heartbeats and commits."""
        consumer = self._joined()
        consumer.pause(*places)
        for place in places:
            consumer.seek(place, 0)

    async def _report(self, listener: Listener, partitions: frozenset[int]) -> None:
        try:
            await listener(partitions)
        except Exception as error:  # noqa: BLE001  aiokafka would swallow it; keep() raises it
            self._failure = error

    def _named(self, place: Place) -> TopicPartition:
        return TopicPartition(self._prefix + place[0], place[1])

    def _joined(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise LogUnreachable("the member is not started")
        return self._consumer

    def _made(self) -> AIOKafkaConsumer:
        session_ms = round(self._session_timeout_s * 1000)
        return AIOKafkaConsumer(
            group_id=self._group,
            client_id=self._member,  # a broker names by it each life of who has no name of his own in the group
            group_instance_id=self._member if self._stable else None,
            partition_assignment_strategy=(self._assignor,),
            enable_auto_commit=False,
            auto_offset_reset="none",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=session_ms // 3,
            rebalance_timeout_ms=round(self._rebalance_timeout_s * 1000),
            request_timeout_ms=min(round(REQUEST_S * 1000), session_ms // 2),  # the next one hears of us in time
            consumer_timeout_ms=_LOOK_MS,
            metadata_max_age_ms=_GROWN_MS,
            max_poll_interval_ms=_NEVER_IDLE_MS,  # it is never polled for records
            **client_options(self._bootstrap, self._tls),
        )
