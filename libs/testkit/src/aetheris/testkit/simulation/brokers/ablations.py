"""The appender, reader and pump without one of their rules each: simulated brokers must catch it."""

from collections.abc import Callable, Sequence
from typing import Any

from aetheris.runtime.kafka import wire
from aetheris.runtime.kafka.connection import Disconnected
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.testkit.simulation.ablations.ablation import Ablation, Replace


def _instead(value: object) -> Replace:
    return lambda _: value


def _also(code: int) -> Replace:
    return lambda codes: codes | {code}


def _whole_batch_refused(_: Callable[..., Any]) -> Callable[..., Any]:
    """What lies in a batch beside a group that no broker will have is refused with it."""

    def refuse(lane: Any, why: str) -> None:
        for _ in range(lane.parcels):
            parcel = lane.queue.popleft()
            parcel.ticket.refuse(parcel.group, why)
        lane.forget()

    return refuse


def _same_producer(_: Callable[..., Any]) -> Callable[..., Any]:
    """What is in doubt is sent again as another batch of the same producer."""

    def doubt(appender: Any, producer: Any, _why: str, _doubtful: Sequence[Any] = ()) -> None:
        for connection in producer.connections.values():
            connection.close()
        producer.busy.clear()
        producer.leaders.clear()
        for lane in appender._lanes.values():
            lane.in_flight = False
            lane.forget()
            if lane.queue:
                appender._waiting[lane.place] = lane
        appender._flush_soon()

    return doubt


def _over_a_gap(real: Callable[..., Any]) -> Callable[..., Any]:
    """What was appended here counts as read, whatever others have appended before."""

    def written(pump: Any, reported: Any) -> None:
        position = pump.positions.get(reported.place)
        if position is not None and reported.first > position:
            pump._positions[reported.place] = reported.first
        real(pump, reported)

    return written


def _same_broker(_: Callable[..., Any]) -> Callable[..., Any]:
    """Whoever takes connections first is asked for a producer id, again and again."""

    async def first(brokers: Any) -> Any:
        for address in brokers.addresses():
            try:
                return await brokers.connect(address)
            except Disconnected:
                continue
        raise LogUnreachable("none takes one")

    return first


def _counted_once(_: Callable[..., Any]) -> Callable[..., Any]:
    """An append fails where nobody says at once how many partitions its topic has."""

    async def once(appender: Any, topic: str) -> int:
        return await appender._ask_partitions(topic)

    return once


ABLATIONS: tuple[Ablation, ...] = (
    Ablation(
        "with an append that gives up on a topic",
        "an append asks for its topic's partitions as long as it tries to write",
        100,
        {"aetheris.runtime.kafka.appender.KafkaAppender._count": _counted_once},
    ),
    Ablation(
        "with the same broker asked again",
        "another broker is asked for a producer id where one takes connections and says nothing",
        100,
        {"aetheris.runtime.kafka.brokers.Brokers.any": _same_broker},
    ),
    Ablation(
        "with an acknowledgement taken for what is none",
        "only what all replicas in sync have is acknowledged (a time-out counts as written)",
        100,
        {"aetheris.runtime.kafka.appender._WRITTEN": _also(7)},
    ),
    Ablation(
        "with doubt and the same producer",
        "what is in doubt is written by a new producer",
        100,
        {"aetheris.runtime.kafka.appender.KafkaAppender._doubt": _same_producer},
    ),
    Ablation(
        "with a whole batch refused",
        "a group that no broker will have is refused alone",
        100,
        {"aetheris.runtime.kafka.appender._Lane.refuse": _whole_batch_refused},
    ),
    Ablation(
        "with groups that are offered for ever",
        "a group that no broker will have is given back",
        100,
        {"aetheris.runtime.kafka.wire.REFUSES_GROUP": _instead(wire.REFUSES_GROUP - {10})},
    ),
    Ablation(
        "with a reader that believes at once",
        "a reader believes in a gap only after ten seconds",
        100,
        {"aetheris.runtime.kafka.reader.GAP_BELIEVED_S": _instead(0.0)},
    ),
    Ablation(
        "with a pump that believes at once",
        "a pump believes that the log has shrunk only after ten seconds",
        100,
        {"aetheris.runtime.log.pump.GAP_BELIEVED_S": _instead(0.0)},
    ),
    Ablation(
        "with own records read over a gap",
        "what a process appended counts as read only right behind what it has read",
        100,
        {"aetheris.runtime.log.pump.Pump.written": _over_a_gap},
    ),
)
