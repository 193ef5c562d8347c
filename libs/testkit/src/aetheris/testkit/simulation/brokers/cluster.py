"""Three brokers as their clients see them: Kafka's protocol over a simulated network, in the loop's time."""

import asyncio
import io
from bisect import bisect_right
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

from aiokafka.protocol.fetch import FetchRequest_v10, FetchResponse_v10
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from aiokafka.protocol.transaction import InitProducerIdResponse_v0
from aiokafka.record.default_records import DefaultRecordBatch

from aetheris.runtime.kafka import wire
from aetheris.runtime.kafka.brokers import Brokers
from aetheris.runtime.kafka.connection import Address, Disconnected, KafkaConnection
from aetheris.runtime.log.interface import LogUnreachable, Place
from aetheris.testkit.simulation.tape import Tape

TOPIC = "t"
PARTITIONS = 2
BROKERS = 3
TOO_LARGE = b"too large"
"""Where a value begins so, no broker has it."""

_TIMED_OUT, _TOO_LARGE, _TOO_FEW, _TOO_FEW_AFTERWARDS = 7, 10, 19, 20
_OUT_OF_ORDER = 45
_NOT_YET = (0, 0, _TIMED_OUT, _TOO_FEW, _TOO_FEW_AFTERWARDS)
_SAYS_SO_S = 1.0
"""For how long one that wakes takes itself for the leader that it was."""
_LATEST_S = 40.0
_UNANSWERED = 0.3
"""Questions how many partitions the topic has: each process asks once."""
_BASE_BYTES = 8


@dataclass(slots=True)
class ReplicatedBatch:
    """A record batch, as all replicas in sync have it."""

    first: int
    raw: bytes
    values: tuple[bytes, ...]

    @property
    def following(self) -> int:
        """The offset behind its last record."""
        return self.first + len(self.values)


@dataclass(slots=True, eq=False)
class BrokerPartition:
    """What is committed, who leads, and what of each producer is known."""

    leader: int | None
    batches: list[ReplicatedBatch] = field(default_factory=list[ReplicatedBatch])
    sequences: dict[int, int] = field(default_factory=dict[int, int])
    known: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])
    """(producer, first and last sequence number) → the offset."""
    waiting: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """Fetches that wait for more."""

    @property
    def end(self) -> int:
        """The next offset."""
        return self.batches[-1].following if self.batches else 0

    def value(self, offset: int) -> bytes:
        """What lies there."""
        held = self.batches[bisect_right(self.batches, offset, key=lambda one: one.first) - 1]
        return held.values[offset - held.first]

    def write(self, raw: bytes) -> tuple[int, int]:
        """(error, first offset)."""
        batch: Any = DefaultRecordBatch(raw)
        values = tuple(record.value or b"" for record in batch)
        if any(value.startswith(TOO_LARGE) for value in values):
            return _TOO_LARGE, -1
        producer, sequence = batch.producer_id, batch.base_sequence
        span = (producer, sequence, sequence + len(values))
        if span in self.known:
            return wire.DUPLICATE_SEQUENCE_NUMBER, self.known[span]
        if sequence != self.sequences.get(producer, 0):
            return _OUT_OF_ORDER, -1
        first = self.end
        self.batches.append(ReplicatedBatch(first, first.to_bytes(_BASE_BYTES) + raw[_BASE_BYTES:], values))
        self.sequences[producer], self.known[span] = sequence + len(values), first
        waiting, self.waiting = self.waiting, []
        for again in waiting:
            again()
        return wire.NO_ERROR, first

    def read(self, position: int, end: int) -> bytes:
        """The batches that hold anything from `position` up to `end`."""
        return b"".join(one.raw for one in self.batches if position < one.following <= end)


@dataclass(slots=True, eq=False)
class BrokerNode:
    """A broker: it lives, is stopped, or is gone; `believes` is what it was leading when it was stopped."""

    number: int
    up: bool = True
    stopped: bool = False
    late_s: float = 0.0
    """How much longer each request takes."""
    life: int = 0
    believes: dict[Place, int] = field(default_factory=dict[Place, int])
    """Place → where its own log ended then."""
    held: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """What came while it was stopped."""
    sessions: dict[int, "FetchSession"] = field(default_factory=dict[int, "FetchSession"])
    connections: set["SimConnection"] = field(default_factory=set["SimConnection"])


@dataclass(slots=True)
class FetchSession:
    """What a broker remembers of a reader (KIP-227)."""

    epoch: int
    positions: dict[Place, int]


class SimConnection(KafkaConnection):
    """To one broker; requests arrive in their order."""

    def __init__(self, cluster: "Cluster", node: BrokerNode) -> None:
        super().__init__()
        self._cluster = cluster
        self._node = node
        self._open: set[asyncio.Future[bytes]] = set()
        self._last_s = 0.0
        node.connections.add(self)

    def call(self, api: wire.Api, body: bytes) -> "asyncio.Future[bytes]":
        """The answer, which may come late or never."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.lost:
            answer.set_exception(Disconnected("the connection is lost"))
            return answer
        self._open.add(answer)
        loop = asyncio.get_running_loop()
        self._last_s = max(self._last_s, loop.time() + self._cluster.delay_s(self._node))
        loop.call_at(self._last_s, self._cluster.arrive, self, self._node, self._node.life, (api, body, answer))
        return answer

    def answered(self, answer: "asyncio.Future[bytes]", value: bytes) -> None:
        """It has arrived."""
        self._open.discard(answer)
        if not answer.done():
            answer.set_result(value)

    def close(self) -> None:
        """Lose it now; what was sent may still arrive."""
        self.lost = True
        self._node.connections.discard(self)
        left, self._open = self._open, set()
        for answer in left:
            if not answer.done():
                answer.set_exception(Disconnected("the connection was lost"))


Request = tuple[wire.Api, bytes, "asyncio.Future[bytes]"]


class Cluster(Brokers):
    """All brokers, and what of them is told to who asks; acknowledged by all replicas in sync, so none is lost."""

    def __init__(self, tape: Tape) -> None:
        super().__init__("simulated", None)
        self.nodes = [BrokerNode(number) for number in range(BROKERS)]
        self.places = {(TOPIC, number): BrokerPartition(number % BROKERS) for number in range(PARTITIONS)}
        self.calm = False
        self.gone: BrokerNode | None = None
        """Does not come back."""
        self.producers = 0
        """Producer ids that were given."""
        self._tape = tape
        self._former: dict[Place, int] = {}
        self._sessions = 0

    # as `Brokers`

    def addresses(self) -> list[Address]:
        """All of them."""
        return [("broker", node.number) for node in self.nodes]

    async def connect(self, address: Address) -> KafkaConnection:
        """To one; a stopped one takes connections, and answers nothing.

        Raises:
            Disconnected.
        """
        await asyncio.sleep(0.001)
        node = self.nodes[address[1]]
        if not node.up:
            raise Disconnected("nobody listens")
        return SimConnection(self, node)

    async def leaders(self, places: Set[Place]) -> dict[Place, Address]:
        """Who leads; what is told may be old.

        Raises:
            LogUnreachable.
        """
        await self._ask(set())
        found: dict[Place, Address] = {}
        for place in sorted(places):
            leader = self._said_to_lead(place)
            if leader is not None:
                found[place] = ("broker", leader)
        return found

    def doubt(self) -> None:
        """It is asked anew each time, anyway."""

    async def _ask(self, topics: set[str]) -> None:  # noqa: ARG002  whatever is asked for
        await asyncio.sleep(0.001)
        if not any(node.up and not node.stopped for node in self.nodes):
            raise LogUnreachable("none is there")

    async def partitions(self, topic: str) -> int:
        """How many a topic has.

        Raises:
            LogUnreachable.
        """
        await self._ask({topic})
        if not self.calm and self._tape.chance(_UNANSWERED):
            raise LogUnreachable("no answer")
        return PARTITIONS if topic == TOPIC else 0

    def end_of(self, place: Place) -> int:
        """The next offset, as who is taken for the leader has it.

        Raises:
            LogUnreachable.
        """
        leader = self._said_to_lead(place)
        node = self.nodes[leader] if leader is not None else None
        if node is None or not node.up or node.stopped:
            raise LogUnreachable("no answer")
        return node.believes.get(place, self.places[place].end)

    # what goes wrong

    def kill(self, node: BrokerNode) -> None:
        """It is gone, with its connections and what it remembered of readers."""
        node.up, node.stopped, node.life = False, False, node.life + 1
        node.held.clear()
        node.sessions.clear()
        node.believes.clear()
        for connection in tuple(node.connections):
            connection.close()
        self._lose_lead(node)

    def suspend(self, node: BrokerNode) -> None:
        """It does nothing any more, and knows nothing of it."""
        node.stopped = True
        node.believes = {place: held.end for place, held in self.places.items() if held.leader == node.number}
        self._lose_lead(node)

    def come_back(self, node: BrokerNode) -> None:
        """It starts, or wakes: then it does first what had come meanwhile, as the leader that it was."""
        if node is self.gone:
            return
        woke, node.up, node.stopped = node.stopped, True, False
        held, node.held = node.held, []
        if woke:
            asyncio.get_running_loop().call_later(_SAYS_SO_S, node.believes.clear)
        for one in held:
            one()
        self.elect()

    def hand_over(self, place: Place) -> None:
        """Another leads; who led says so when asked."""
        held = self.places[place]
        others = [node.number for node in self.nodes if node.up and not node.stopped and node.number != held.leader]
        if others and held.leader is not None:
            self._former[place], held.leader = held.leader, self._tape.pick(others)

    def elect(self) -> None:
        """Whoever can leads what nobody does."""
        able = [node.number for node in self.nodes if node.up and not node.stopped]
        for held in self.places.values():
            if held.leader is None and able:
                held.leader = self._tape.pick(able)

    def cut(self, node: BrokerNode) -> None:
        """Its connections break; what was sent may have arrived, or arrives yet."""
        for connection in tuple(node.connections):
            connection.close()

    def delay_s(self, node: BrokerNode) -> float:
        """How long a request is on its way."""
        return 0.001 if self.calm else 0.001 + node.late_s + self._tape.below(20) / 1000

    def _said_to_lead(self, place: Place) -> int | None:
        """It, or one that did: rather one that has just woken up and thinks so itself."""
        deposed = [node.number for node in self.nodes if node.up and not node.stopped and place in node.believes]
        former = deposed[0] if deposed else self._former.get(place)
        if self.calm or former is None or not self._tape.chance(0.5 if deposed else 0.2):
            return self.places[place].leader
        return former

    def _lose_lead(self, node: BrokerNode) -> None:
        led = [place for place, held in self.places.items() if held.leader == node.number]
        for place in led:
            self._former[place], self.places[place].leader = node.number, None
        asyncio.get_running_loop().call_later(self._tape.below(40) / 10, self.elect)

    # requests

    def arrive(self, connection: SimConnection, node: BrokerNode, life: int, request: Request) -> None:
        """A request has come; one whose sender has hung up is carried out, or lost."""
        if node.life != life or not node.up or (connection.lost and self._tape.chance(0.5)):
            connection.close()
            return
        if node.stopped:
            node.held.append(lambda: self._handle(connection, node, request))
            return
        self._handle(connection, node, request)

    def _handle(self, connection: SimConnection, node: BrokerNode, request: Request) -> None:
        api, body, answer = request
        if api == wire.INIT_PRODUCER_ID:
            self.producers += 1
            reply = InitProducerIdResponse_v0(0, 0, self.producers, 0).encode()
        elif api == wire.PRODUCE:
            reply = self._produce(node, body)
        else:
            self._fetch(connection, node, answer, body)
            return
        self._say(connection, node, answer, reply)

    def _say(self, connection: SimConnection, node: BrokerNode, answer: "asyncio.Future[bytes]", reply: bytes) -> None:
        if not self.calm and self._tape.chance(0.02):
            connection.close()
            return
        asyncio.get_running_loop().call_later(self.delay_s(node), connection.answered, answer, reply)

    def _produce(self, node: BrokerNode, body: bytes) -> bytes:
        read: Any = ProduceRequest_v7.decode(io.BytesIO(body))
        topics = [
            (topic, [self._written(node, (topic, number), raw) for number, raw in parts])
            for topic, parts in read.topics
        ]
        return ProduceResponse_v7(topics, 0).encode()

    def _written(self, node: BrokerNode, place: Place, raw: bytes) -> tuple[int, int, int, int, int]:
        """Only who leads may; one that only thinks so gets no other replica to follow."""
        held = self.places[place]
        code, first = wire.NOT_LEADER, -1
        if place in node.believes:
            code = self._tape.pick((wire.NOT_LEADER, _TIMED_OUT, _TOO_FEW, _TOO_FEW_AFTERWARDS))
        elif held.leader == node.number:
            reported = wire.NO_ERROR if self.calm or not self._tape.chance(0.1) else self._tape.pick(_NOT_YET)
            if reported != _TOO_FEW:
                code, first = held.write(raw)
            if (reported != wire.NO_ERROR and code == wire.NO_ERROR) or reported == _TOO_FEW:
                code, first = reported, -1
        return place[1], code, first, -1, 0

    def _fetch(self, connection: SimConnection, node: BrokerNode, answer: "asyncio.Future[bytes]", body: bytes) -> None:
        read: Any = FetchRequest_v10.decode(io.BytesIO(body))
        moved = {(topic, part[0]): part[2] for topic, parts in read.topics for part in parts}
        left = [(topic, part) for topic, parts in read.forgotten_topics_data for part in parts]
        code, whole = 0, read.session_epoch <= 0
        number = read.session_id
        if whole:
            self._sessions += 1
            number = self._sessions
            node.sessions[number] = FetchSession(0, moved)
        elif number not in node.sessions:
            code = wire.FETCH_SESSION_ID_NOT_FOUND
        elif node.sessions[number].epoch + 1 != read.session_epoch:
            code = wire.INVALID_FETCH_SESSION_EPOCH
        if code:
            self._say(connection, node, answer, FetchResponse_v10(0, code, 0, []).encode())
            return
        session = node.sessions[number]
        session.epoch = max(session.epoch, read.session_epoch)
        session.positions.update(moved)
        for place in left:
            session.positions.pop(place, None)
        until_s = asyncio.get_running_loop().time() + read.max_wait_time / 1000
        self._look(_Fetch(connection, node, node.life, answer, number, session, whole, until_s))

    def _look(self, fetch: "_Fetch") -> None:
        """Answer a fetch, or let it wait until there is something, at most as long as it may."""
        node = fetch.node
        if fetch.answer.done() or not node.up or node.life != fetch.life:
            return
        if node.stopped:
            node.held.append(lambda: self._look(fetch))
            return
        positions = fetch.session.positions
        parts = {place: self._found(node, place, position) for place, position in positions.items()}
        reported = {place: found for place, found in parts.items() if fetch.whole or found[0] or found[1]}
        now_s = asyncio.get_running_loop().time()
        if not any(found[0] or found[1] for found in parts.values()) and now_s < fetch.until_s:
            for place in positions:
                self.places[place].waiting.append(fetch.again)
            asyncio.get_running_loop().call_at(fetch.until_s, fetch.again)
            fetch.look = self._look
            return
        rows = [(place[1], code, 0, 0, 0, None, raw) for place, (code, raw) in reported.items()]
        answer = FetchResponse_v10(0, 0, fetch.number, [(TOPIC, rows)] if rows else []).encode()
        self._say(fetch.connection, node, fetch.answer, answer)

    def _found(self, node: BrokerNode, place: Place, position: int) -> tuple[int, bytes]:
        held = self.places[place]
        if place in node.believes:
            end = node.believes[place]
        elif held.leader == node.number:
            end = held.end
        else:
            return wire.NOT_LEADER, b""
        return (wire.OFFSET_OUT_OF_RANGE, b"") if position > end else (0, held.read(position, end))


@dataclass(slots=True, eq=False)
class _Fetch:
    connection: SimConnection
    node: BrokerNode
    life: int
    answer: "asyncio.Future[bytes]"
    number: int
    session: FetchSession
    whole: bool
    until_s: float
    look: Callable[["_Fetch"], None] | None = None

    def again(self) -> None:
        look, self.look = self.look, None
        if look is not None:
            look(self)
