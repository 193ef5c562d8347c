"""The events of all jobs in a FastStream application; needs `aetheris-tool-sdk[faststream]` (docs/subscribing.md)."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from ssl import SSLContext
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import IllegalStateError, KafkaError
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage, Topic
from faststream.kafka.subscriber.usecase import DefaultSubscriber
from faststream.security import BaseSecurity, SASLOAuthBearer, SASLPlaintext, SASLScram256, SASLScram512

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic as Topics
from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.kafka.bootstrap import login_of, servers_of
from aetheris.sdk.received import GROUPS, Received, received

_Raw = ConsumerRecord[bytes, bytes]
_PAUSE_S = 5.0
_RETRY_S = 0.5


_ASKED = {"PLAIN": SASLPlaintext, "SCRAM-SHA-256": SASLScram256, "SCRAM-SHA-512": SASLScram512}


class FactsMissing(Exception):
    """The log no longer has what this group has not seen: a gap is an error, never a jump."""


def kafka_broker(
    servers: str,
    *,
    user: str | None = None,
    password: str = "",
    mechanism: str = "PLAIN",
    tokens: AbstractTokenProvider | None = None,
    tls: SSLContext | None = None,
) -> KafkaBroker:
    """A broker that logs nothing by itself: what it would log may hold a payload.

    Args:
        servers: host:port[,host:port]; FastStream takes one text for one server.
        user, password: where the brokers ask who one is.
        mechanism: how they ask: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        tokens: where they ask for one (OAUTHBEARER).
        tls: who the brokers are, and who we are.

    Raises:
        KeyError: it is none of these mechanisms.
    """
    security: BaseSecurity | None = None
    if tokens is not None:
        security = SASLOAuthBearer(ssl_context=tls, use_ssl=tls is not None)
    elif user is not None:
        security = _ASKED[mechanism](user, password, ssl_context=tls, use_ssl=tls is not None)
    elif tls is not None:
        security = BaseSecurity(ssl_context=tls, use_ssl=True)
    return KafkaBroker(servers.split(","), security=security, sasl_oauth_token_provider=tokens, logger=None)


def broker_at(bootstrap: str, tls: SSLContext | None = None) -> KafkaBroker:
    """As `kafka_broker`, for an address as AETHERIS_KAFKA has it, with what it says of a login.

    Raises:
        LoginUnusable: it can't be used.
    """
    login = login_of(bootstrap)
    if login is None:
        return kafka_broker(servers_of(bootstrap), tls=tls)
    if login.tokens is not None:
        return kafka_broker(servers_of(bootstrap), tokens=login.tokens, tls=tls)
    return kafka_broker(
        servers_of(bootstrap), user=login.user, password=login.password, mechanism=login.mechanism, tls=tls
    )


def job_events(
    broker: KafkaBroker, group: str, types: Collection[str] = (), prefix: str = "", *, member: str | None = None
) -> DefaultSubscriber:
    """A subscriber to the facts of all jobs, each job's in log order; its handlers take a `Received`.

    At least once: what was handled without an error is noted in Kafka under the group's name, which begins with
    `aetheris.subscriber.`; where a handler raises, the same fact comes again, and what lies behind it in its partition
    waits. A group begins at the beginning of the log; a gap behind what it has noted is an error that is logged again
    and again, never a jump. No topic is made.

    Args:
        types: only these event types; empty: all.
        prefix: the installation's AETHERIS_PREFIX; it stands before the group's name, too.
        member: this process's stable name within the group: one that was killed and comes back under it has its
            partitions at once, and who came under it before is shut out.

    Raises:
        ValueError: it is no prefix.
    """
    places, before = _Places(), in_kafka(prefix)
    subscriber = broker.subscriber(
        Topic(before + Topics.JOBS_EVENTS, declare=False),
        group_id=before + GROUPS + group,
        group_instance_id=member,
        auto_offset_reset="earliest",
        listener=places,
        ack_policy=AckPolicy.NACK_ON_ERROR,
        no_reply=True,
        parser=places.parse,
        decoder=_decode,
        title="jobEvents",
        description="The facts of every job, in log order; the authority.",
    )
    places.subscriber = subscriber
    if types:
        wanted = frozenset(types)

        async def is_other(message: Any) -> bool:
            return (await message.decode()).type not in wanted

        subscriber(_pass_over, filter=is_other)
    return subscriber


async def _pass_over(_fact: Received) -> None:
    """Of a type that nobody asked for."""


class _Places(ConsumerRebalanceListener):
    """What must come next of each partition: Kafka's own reset hides that something is missing."""

    def __init__(self) -> None:
        self.subscriber: DefaultSubscriber | None = None
        self._next: dict[TopicPartition, int] = {}

    @property
    def _consumer(self) -> AIOKafkaConsumer | None:
        return self.subscriber.consumer if self.subscriber is not None else None

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]  aiokafka awaits it
        self, revoked: set[TopicPartition]
    ) -> None:
        """aiokafka's."""
        for place in revoked:
            self._next.pop(place, None)

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride]  aiokafka awaits it
        self, assigned: set[TopicPartition]
    ) -> None:
        """aiokafka's: nothing is read before it is known what the group has noted."""
        consumer = self._consumer
        if consumer is None or not assigned:
            return
        consumer.pause(*assigned)
        for place in assigned:
            noted = await _noted(consumer, place)
            if noted is not None:
                self._next[place] = noted
        with suppress(IllegalStateError):  # they went elsewhere meanwhile, and are assigned anew
            consumer.resume(*assigned)

    async def parse(self, message: _Raw, parse: Callable[[_Raw], Awaitable[KafkaMessage]]) -> KafkaMessage:
        """As FastStream does, which stumbles over headers that are no text: whoever may write can write such.

        Raises:
            FactsMissing: what comes next is not there; it is asked for again.
        """
        place = TopicPartition(message.topic, message.partition)
        wanted = self._next.get(place, message.offset)
        if message.offset > wanted:
            if self._consumer is not None:
                self._consumer.seek(place, wanted)
            await asyncio.sleep(_PAUSE_S)
            raise FactsMissing(f"{message.topic}[{message.partition}]: {wanted} to {message.offset - 1} are gone")
        self._next[place] = message.offset + 1
        return await readable(message, parse)


async def readable(message: _Raw, parse: Callable[[_Raw], Awaitable[KafkaMessage]]) -> KafkaMessage:
    """A parser as FastStream's own, which stumbles over headers that are no text."""
    return await parse(replace(message, headers=_as_text(message.headers)))


async def _noted(consumer: AIOKafkaConsumer, place: TopicPartition) -> int | None:
    while True:
        try:
            return await consumer.committed(place)
        except KafkaError:
            await asyncio.sleep(_RETRY_S)


def _as_text(headers: Sequence[tuple[str, bytes]]) -> Sequence[tuple[str, bytes]]:
    return tuple((name, value.decode(errors="replace").encode()) for name, value in headers)


async def _decode(message: KafkaMessage) -> Received:
    raw: Any = message.raw_message
    return received(
        Record(Topics.JOBS_EVENTS, raw.partition, raw.offset, raw.timestamp, raw.key, tuple(raw.headers), raw.value)
    )
