"""Which broker leads which place, as aiokafka learns it; one for a process."""

import asyncio
from collections.abc import Set
from ssl import SSLContext

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.kafka.bootstrap import client_options, login_of
from aetheris.runtime.kafka.connection import Address, Disconnected, KafkaConnection, connect
from aetheris.runtime.log.interface import LogUnreachable, Place

_ASK_S = 5.0
_ATTEMPTS = 2
"""The first may find a question under way that was asked before the topic was."""
_TURNS = 50
_PAUSE_S = 0.1
"""A topic that was just made is not known to every broker at once: it is asked about for so long."""
_REQUEST_MS = 3_000
"""After so long without an answer the next broker is asked who leads: one that is stopped answers nobody."""


class Brokers:
    """Leaders and connections; what it knows is asked anew after `doubt`."""

    def __init__(self, bootstrap: str, tls: SSLContext | None, prefix: str = "") -> None:
        self.prefix = in_kafka(prefix)
        """What stands before each topic's name at the brokers."""
        self._bootstrap = bootstrap
        self._tls = tls
        self._login = login_of(bootstrap)
        self._client: AIOKafkaClient | None = None
        self._doubted = False
        self._turn = 0
        """How often a broker was chosen."""

    async def start(self) -> None:
        """Learn of the cluster.

        Raises:
            LogUnreachable: no broker answers.
        """
        client = AIOKafkaClient(request_timeout_ms=_REQUEST_MS, **client_options(self._bootstrap, self._tls))
        try:
            await client.bootstrap()
        except (KafkaError, OSError) as error:
            await client.close()
            raise LogUnreachable(f"no broker at {self._bootstrap}: {type(error).__name__}") from None
        self._client = client

    async def stop(self) -> None:
        """Disconnect; connections that were handed out stay."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def doubt(self) -> None:
        """What is known may have changed: a connection broke, or a broker says that it leads no longer."""
        self._doubted = True

    async def leaders(self, places: Set[Place]) -> dict[Place, Address]:
        """Who leads each of the places; those that nobody leads now are left out.

        Raises:
            LogUnreachable: no broker answers.
        """
        found = {} if self._doubted else self._known(places)
        for _ in range(_ATTEMPTS):
            if len(found) == len(places):
                break
            await self._ask({topic for topic, _ in places})
            found = self._known(places)
        return found

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises:
            LogUnreachable: no broker answers, or none knows the topic.
        """
        client = self._started()
        for turn in range(_TURNS):
            if turn:
                await asyncio.sleep(_PAUSE_S)
            await self._ask({topic})
            found = client.cluster.partitions_for_topic(self.prefix + topic)
            if found:
                return len(found)
        raise LogUnreachable(f"no broker knows the topic {self.prefix}{topic}")

    def addresses(self) -> list[Address]:
        """The brokers that are known."""
        return [(broker.host, broker.port) for broker in self._started().cluster.brokers()]

    async def any(self) -> KafkaConnection:
        """A new connection to some broker, at each call to the next: one that is stopped takes connections as well.

        Raises:
            LogUnreachable: none takes one.
        """
        if self._doubted:
            await self._ask(set())
        addresses = self.addresses()
        for _ in addresses:
            self._turn += 1
            try:
                return await self.connect(addresses[self._turn % len(addresses)])
            except Disconnected:
                continue
        self.doubt()
        raise LogUnreachable(f"no broker at {self._bootstrap}")

    async def connect(self, address: Address) -> KafkaConnection:
        """A new connection to a broker.

        Raises:
            Disconnected.
        """
        return await connect(address, self._tls, self._login)

    def _known(self, places: Set[Place]) -> dict[Place, Address]:
        cluster = self._started().cluster
        found: dict[Place, Address] = {}
        for place in places:
            node = cluster.leader_for_partition(TopicPartition(self.prefix + place[0], place[1]))
            broker = cluster.broker_metadata(node) if node is not None else None
            if broker is not None:
                found[place] = (broker.host, broker.port)
        return found

    async def _ask(self, topics: set[str]) -> None:
        client = self._started()
        try:
            async with asyncio.timeout(_ASK_S):
                for topic in topics:
                    client.add_topic(self.prefix + topic)
                answered = await client.force_metadata_update()
                if not answered:  # a connection whose login has ended is lost when it is used, and is made again then
                    answered = await client.force_metadata_update()
        except (KafkaError, TimeoutError) as error:
            raise LogUnreachable(f"no broker at {self._bootstrap}: {type(error).__name__}") from None
        if not answered:
            raise LogUnreachable(f"no broker at {self._bootstrap}")
        self._doubted = False

    def _started(self) -> AIOKafkaClient:
        if self._client is None:
            raise LogUnreachable("the log is not started")
        return self._client
