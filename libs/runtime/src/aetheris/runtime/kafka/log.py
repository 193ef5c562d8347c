"""KafkaLog: makes appenders, readers and members of one cluster, and answers questions about it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from ssl import SSLContext

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError

from aetheris.protocol.tables.attendants import Attendant
from aetheris.runtime.kafka.admin import cluster_id
from aetheris.runtime.kafka.appender import KafkaAppender
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.brokers import Brokers
from aetheris.runtime.kafka.clients import close_consumer, open_client
from aetheris.runtime.kafka.members import attendants, committed, members, noted
from aetheris.runtime.kafka.membership import KafkaMembership
from aetheris.runtime.kafka.pulse import Pulse
from aetheris.runtime.kafka.reader import KafkaReader
from aetheris.runtime.log.interface import LogUnreachable, Place, Tenure

_LEARN_S = 1.0
_REQUEST_MS = 4_000
"""After so long without an answer a broker is asked no longer: whoever leads by then is."""
_GROWN_S = 5.0
"""For so long it is believed how many partitions a topic has."""
_LATE_S = 1.0
"""After an answer is so late, and then each time as long, who leads is asked: one that is stopped answers nobody."""


class KafkaLog:
    """One Kafka cluster.

    Questions go over a connection of their own: a fetch that waits at the broker would hold them up. Topics and groups
    go by their logical names here; at the brokers the `prefix` stands before these (runtime.base.prefix).
    """

    def __init__(
        self,
        bootstrap: str,
        session_timeout_s: float = 6.0,
        *,
        rebalance_timeout_s: float = 15.0,
        send_deadline_s: float = 10.0,
        tls: SSLContext | None = None,
        prefix: str = "",
    ) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._tls = tls
        self._send_deadline_s = send_deadline_s
        self.session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._asker: AIOKafkaConsumer | None = None
        self._brokers = Brokers(bootstrap, tls, prefix)
        self._partitions: dict[str, tuple[int, float]] = {}
        """Topic → how many, and when that was asked."""

    async def start(self) -> None:
        """Connect, for the questions below."""
        await self._brokers.start()
        asker = AIOKafkaConsumer(
            enable_auto_commit=False, request_timeout_ms=_REQUEST_MS, **client_options(self._bootstrap, self._tls)
        )
        try:
            await open_client(asker, self._bootstrap)
        except LogUnreachable:
            await self._brokers.stop()
            raise
        self._asker = asker

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Disconnect; what was made lives on until it is stopped itself."""
        asker, self._asker = self._asker, None
        if asker is not None:
            await close_consumer(asker, deadline_s)
        await self._brokers.stop()

    def appender(self) -> KafkaAppender:
        """A new appender; one for a process is enough."""
        return KafkaAppender(self._brokers, self.partitions, self._send_deadline_s)

    def pulse(self) -> Pulse:
        """Says whether the brokers answer, while it runs."""
        return Pulse(self._brokers)

    def reader(self, max_wait_s: float = 0.1) -> KafkaReader:
        """A new reader, whose idle fetches wait at the broker for `max_wait_s`."""
        return KafkaReader(self._brokers, max_wait_s)

    def membership(
        self, group: str, member: str, topics: Collection[str], tenure: Tenure | None = None
    ) -> KafkaMembership:
        """A static member of `group`: back within the session timeout, it finds its partitions unmoved."""
        return KafkaMembership(
            self._bootstrap,
            group,
            member,
            topics,
            tenure=tenure,
            session_timeout_s=self.session_timeout_s,
            rebalance_timeout_s=self._rebalance_timeout_s,
            tls=self._tls,
            prefix=self._prefix,
        )

    def attendance(self, group: str, name: str, topic: str) -> KafkaMembership:
        """A member of `group` that is there to be seen: it leaves when it stops, and robs nobody of its name."""
        return KafkaMembership(
            self._bootstrap,
            group,
            name,
            (topic,),
            stable=False,
            session_timeout_s=self.session_timeout_s,
            rebalance_timeout_s=self._rebalance_timeout_s,
            tls=self._tls,
            prefix=self._prefix,
        )

    async def members(self, group: str) -> dict[str, str]:
        """Those in `group` that have a stable name: member id → name.

        Raises:
            LogUnreachable: the brokers can't say.
        """
        return await members(self._bootstrap, self._brokers.prefix + group, tls=self._tls)

    async def attendants(self, group: str) -> dict[str, Attendant]:
        """Those in `group`, by name; of one name, what all of them say.

        Raises:
            LogUnreachable: the brokers can't say, as where somebody who joins, or has died, keeps the group unsettled.
        """
        return await attendants(self._bootstrap, self._brokers.prefix + group, tls=self._tls)

    async def committed_by(self, group: str, places: Collection[Place]) -> dict[Place, int]:
        """What `group` has committed in these places, where it has.

        Raises:
            LogUnreachable: the brokers can't say.
        """
        prefix = self._brokers.prefix
        return await committed(self._bootstrap, prefix + group, places, tls=self._tls, prefix=prefix)

    async def noted_by(self, group: str, places: Collection[Place]) -> dict[Place, str]:
        """What `group` has noted beside what it committed in these places, where it has committed.

        Raises:
            LogUnreachable: the brokers can't say.
        """
        prefix = self._brokers.prefix
        return await noted(self._bootstrap, prefix + group, places, tls=self._tls, prefix=prefix)

    async def cluster_id(self) -> str | None:
        """The name by which the brokers tell their cluster from any other; None where they have none.

        Raises:
            LogUnreachable: no answer.
        """
        return await cluster_id(self._bootstrap, tls=self._tls)

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has, or had some seconds ago: it may be given more.

        Raises:
            LogUnreachable: unknown topic, or no answer.
        """
        known, since_s = self._partitions.get(topic, (0, 0.0))
        if known and time.monotonic() - since_s < _GROWN_S:
            return known
        try:
            count = await self._brokers.partitions(topic)
        except LogUnreachable:
            if not known:
                raise
            count = known
        self._partitions[topic] = max(known, count), time.monotonic()
        return self._partitions[topic][0]

    async def beginning_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:
        """The first offset that each place has.

        Raises:
            LogUnreachable: not within the deadline.
        """
        await self._learn(places)
        return await self._answer(self._asked().beginning_offsets, places, deadline_s)

    async def end_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:
        """The offset that the next record of each place will get.

        Raises:
            LogUnreachable: not within the deadline.
        """
        await self._learn(places)
        return await self._answer(self._asked().end_offsets, places, deadline_s)

    async def _learn(self, places: Collection[Place]) -> None:
        """Let the client know the topics: of one that it doesn't know it learns by itself, but after 0.1 s."""
        asker = self._asked()
        client = asker._client  # pyright: ignore[reportPrivateUsage]  it has no public way to add a topic
        wanted = {self._brokers.prefix + topic for topic, _ in places}
        unknown = [topic for topic in wanted if not asker.partitions_for_topic(topic)]
        if unknown:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEARN_S):
                    await asyncio.gather(*(client.add_topic(topic) for topic in unknown))

    def _asked(self) -> AIOKafkaConsumer:
        if self._asker is None:
            raise LogUnreachable("the log is not started")
        return self._asker

    async def _answer(
        self,
        ask: Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, int]]],
        places: Collection[Place],
        deadline_s: float,
    ) -> dict[Place, int]:
        asked = {TopicPartition(self._brokers.prefix + place[0], place[1]): place for place in places}
        try:
            async with asyncio.timeout(deadline_s):
                while (found := await self._within_request(ask(list(asked)))) is None:
                    pass
        except (KafkaError, TimeoutError) as error:
            topics = sorted({place.topic for place in asked})
            raise LogUnreachable(f"no offsets of {', '.join(topics)}: {type(error).__name__}") from None
        return {asked[place]: offset for place, offset in found.items()}

    async def _within_request(self, answer: Awaitable[dict[TopicPartition, int]]) -> dict[TopicPartition, int] | None:
        """None where aiokafka gives up, after the time of one request: a topic may take longer to be created."""
        try:
            return await self._insist(answer)
        except KafkaTimeoutError:
            return None

    async def _insist(self, answer: Awaitable[dict[TopicPartition, int]]) -> dict[TopicPartition, int]:
        """aiokafka asks the leader that it knows, until it learns of another: it is told to."""
        client = self._asked()._client  # pyright: ignore[reportPrivateUsage]  it has no public way to learn anew
        asking = asyncio.ensure_future(answer)
        try:
            while not (await asyncio.wait({asking}, timeout=_LATE_S))[0]:
                client.force_metadata_update()
            return asking.result()
        finally:
            asking.cancel()
