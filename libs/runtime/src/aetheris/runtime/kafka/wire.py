"""Kafka's protocol as far as records and a login need it: InitProducerId 1, Produce 7, Fetch 10 (Kafka 2.1 and newer).

Requests without their header, answers without their correlation id; big-endian, as the protocol guide has them
(https://kafka.apache.org/protocol). All else is left to aiokafka. Why: docs/adr/0005-own-requests-for-records.md.
Fetch 10 is the last that no broker may answer by sending the reader to a replica near it (KIP-392).
`prefix` is what stands before each topic's name at the brokers (runtime.base.prefix); a `Place` has none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct, error

from aetheris.runtime.log.interface import Place

NO_ERROR = 0
OFFSET_OUT_OF_RANGE = 1
NOT_LEADER = 6
PASSING = frozenset({3, 5, NOT_LEADER, 7, 9, 19, 20, 56, 78})
"""A topic or leader not known yet or no longer, too few replicas, a disk that fails: ask again, maybe another."""
REFUSES_GROUP = frozenset({10, 18, 87})
"""Too large for the topic, or a record that it can't hold: no broker will ever take it as it is."""
INVALID_TIMESTAMP = 32
REFUSES_WRITER = frozenset({17, 29, 31, INVALID_TIMESTAMP, 43, 44})
"""No permission, a clock that is wrong, a policy: whatever this writer sends is refused until somebody mends it."""
STARTING = frozenset({14, 15, 16})
"""A broker that has just started gives no producer ids yet."""
DUPLICATE_SEQUENCE_NUMBER = 46
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71

Malformed = error
"""What the readers of answers raise where the bytes end too soon."""

_CLIENT = b"aetheris"
_ALL_IN_SYNC = -1
_ANY_REPLICA = -1
_UNKNOWN = -1
_READ_UNCOMMITTED = 0

_HEADER = Struct(f">ihhih{len(_CLIENT)}s")
_SHORT = Struct(">h")
_INT = Struct(">i")
_API_RANGE = Struct(">hhh")
_INIT = Struct(">hi")
_INITED = Struct(">ihqh")
_PRODUCE = Struct(">hhii")
_BATCH = Struct(">ii")
_PRODUCED = Struct(">ihqqq")
_FETCH = Struct(">iiiibiii")
_POSITION = Struct(">iiqqi")
_FETCHED = Struct(">ihii")
_PART = Struct(">ihqqqi")
_ABORTED_BYTES = 16


@dataclass(frozen=True)
class Api:
    """A kind of request, in the one version that is spoken here."""

    key: int
    version: int


PRODUCE = Api(0, 7)
FETCH = Api(1, 10)
INIT_PRODUCER_ID = Api(22, 1)
SASL_HANDSHAKE = Api(17, 1)
SASL_AUTHENTICATE = Api(36, 1)
API_VERSIONS = Api(18, 0)

_NEEDED = {"Produce": PRODUCE, "Fetch": FETCH, "InitProducerId": INIT_PRODUCER_ID}
_NEEDED_TO_LOG_IN = {"SaslHandshake": SASL_HANDSHAKE, "SaslAuthenticate": SASL_AUTHENTICATE}


def framed(api: Api, correlation: int, body: bytes) -> bytes:
    """A request as it goes over the connection."""
    size = _HEADER.size - _INT.size + len(body)
    return _HEADER.pack(size, api.key, api.version, correlation, len(_CLIENT), _CLIENT) + body


def sasl_handshake(mechanism: str) -> bytes:
    """Says how one is to log in."""
    return _name(mechanism)


def sasl_token(token: bytes) -> bytes:
    """Logs in."""
    return _INT.pack(len(token)) + token


def error_of(answer: bytes) -> int:
    """The code that an answer to either begins with."""
    (code,) = _SHORT.unpack_from(answer)
    return code


def unspoken(answer: bytes, *, login: bool) -> list[str]:
    """Requests of ours in whose version a broker takes none, in words, by its answer to ApiVersions.

    Raises:
        Malformed: it gives no list.
    """
    (code,) = _SHORT.unpack_from(answer)
    (count,) = _INT.unpack_from(answer, _SHORT.size)
    if code or count < 0:
        raise Malformed("no list of versions")
    at = _SHORT.size + _INT.size
    ranges = [_API_RANGE.unpack_from(answer, at + number * _API_RANGE.size) for number in range(count)]
    spoken = {key: (least, most) for key, least, most in ranges}
    return [
        f"{name} {api.version} (it has {_range(spoken.get(api.key))})"
        for name, api in (_NEEDED | (_NEEDED_TO_LOG_IN if login else {})).items()
        if not (had := spoken.get(api.key)) or not had[0] <= api.version <= had[1]
    ]


def _range(spoken: tuple[int, int] | None) -> str:
    return "none" if spoken is None else f"{spoken[0]} to {spoken[1]}"


def sasl_answer(answer: bytes) -> tuple[int, bytes]:
    """(the code, what the broker says for the next step) of an answer to `sasl_token`.

    Raises:
        Malformed.
    """
    (code,) = _SHORT.unpack_from(answer)
    (said,) = _SHORT.unpack_from(answer, _SHORT.size)
    at = 2 * _SHORT.size + max(said, 0)
    (size,) = _INT.unpack_from(answer, at)
    at += _INT.size
    return code, answer[at : at + max(size, 0)]


def init_producer_id() -> bytes:
    """Asks for a producer id without a transactional one."""
    return _INIT.pack(_UNKNOWN, 60_000)


def producer_id(answer: bytes) -> tuple[int, int, int]:
    """(error, producer id, epoch)."""
    _throttled_ms, code, number, epoch = _INITED.unpack_from(answer)
    return code, number, epoch


def produce(batches: Mapping[Place, bytes | bytearray], timeout_ms: int, prefix: str = "") -> bytes:
    """Appends a record batch to each place, acknowledged by every replica in sync."""
    topics = _by_topic(batches)
    parts: list[bytes | bytearray] = [_PRODUCE.pack(_UNKNOWN, _ALL_IN_SYNC, timeout_ms, len(topics))]
    for topic, places in topics.items():
        parts += (_name(topic, prefix), _INT.pack(len(places)))
        for place in places:
            batch = batches[place]
            parts += (_BATCH.pack(place[1], len(batch)), batch)
    return b"".join(parts)


@dataclass(slots=True)
class Produced:
    """What became of a batch: an error, or the offset of its first record, if the broker still knows it (else -1).

    `time_ms` is the broker's time where it sets the records' time, else -1.
    """

    error: int
    first: int = -1
    time_ms: int = -1


def produced(answer: bytes, prefix: str = "") -> dict[Place, Produced]:
    """What became of the batch of each place.

    Raises:
        Malformed.
    """
    found: dict[Place, Produced] = {}
    (topics,) = _INT.unpack_from(answer)
    at = _INT.size
    for _ in range(topics):
        topic, count, at = _topic(answer, at, prefix)
        for _ in range(count):
            partition, code, first, time_ms, _start = _PRODUCED.unpack_from(answer, at)
            found[topic, partition] = Produced(code, first, time_ms)
            at += _PRODUCED.size
    return found


@dataclass(slots=True)
class Session:
    """What the broker remembers of a reader, so that a fetch says only what changed (KIP-227)."""

    number: int = 0
    epoch: int = 0

    def follow(self, number: int) -> None:
        """The broker answered under this number; 0: it remembers nothing."""
        self.number = number
        self.epoch = self.epoch % 0x7FFFFFFF + 1 if number else 0


@dataclass(frozen=True)
class FetchLimits:
    """Of an answer: how long the broker waits for its first record, and how much it may hold at most, in bytes."""

    wait_ms: int
    most: int = 16 * 1024 * 1024
    most_of_a_place: int = 1024 * 1024


def fetch(
    session: Session, moved: Mapping[Place, int], left: Iterable[Place], limits: FetchLimits, prefix: str = ""
) -> bytes:
    """Asks for records from the offsets of `moved` on, and for those of the session's other places; none of `left`."""
    topics, forgotten = _by_topic(moved), _by_topic(left)
    parts = [
        _FETCH.pack(
            _ANY_REPLICA, limits.wait_ms, 1, limits.most, _READ_UNCOMMITTED, session.number, session.epoch, len(topics)
        )
    ]
    for topic, places in topics.items():
        parts += (_name(topic, prefix), _INT.pack(len(places)))
        parts += (
            _POSITION.pack(place[1], _UNKNOWN, moved[place], _UNKNOWN, limits.most_of_a_place) for place in places
        )
    parts.append(_INT.pack(len(forgotten)))
    for topic, places in forgotten.items():
        parts += (_name(topic, prefix), _INT.pack(len(places)))
        parts += (_INT.pack(partition) for _, partition in places)
    return b"".join(parts)


@dataclass(slots=True)
class FetchedPartition:
    """What a fetch found in one place: an error, or record batches."""

    place: Place
    error: int
    batches: bytes


def fetched(answer: bytes, prefix: str = "") -> tuple[int, int, list[FetchedPartition]]:
    """(error, the session's number, what was found).

    Raises:
        Malformed.
    """
    _throttled_ms, found_error, number, topics = _FETCHED.unpack_from(answer)
    return found_error, number, list(_parts(answer, _FETCHED.size, topics, prefix))


def _parts(answer: bytes, at: int, topics: int, prefix: str) -> Iterator[FetchedPartition]:
    for _ in range(topics):
        topic, count, at = _topic(answer, at, prefix)
        for _ in range(count):
            partition, code, _high, _stable, _start, aborted = _PART.unpack_from(answer, at)
            at += _PART.size + max(aborted, 0) * _ABORTED_BYTES
            (size,) = _INT.unpack_from(answer, at)
            at += _INT.size
            end = at + max(size, 0)
            if end > len(answer):
                raise Malformed("a fetch's records end too soon")
            yield FetchedPartition((topic, partition), code, answer[at:end])
            at = end


def _topic(answer: bytes, at: int, prefix: str) -> tuple[str, int, int]:
    """(a topic's name without the prefix, how many of its partitions follow, where)."""
    (length,) = _SHORT.unpack_from(answer, at)
    at += _SHORT.size
    name = answer[at : at + length].decode()
    if not name.startswith(prefix):
        raise Malformed("an answer about a topic that nobody asked for")
    (count,) = _INT.unpack_from(answer, at + length)
    return name[len(prefix) :], count, at + length + _INT.size


def _by_topic(places: Iterable[Place]) -> dict[str, Collection[Place]]:
    found: dict[str, list[Place]] = {}
    for place in places:
        found.setdefault(place[0], []).append(place)
    return dict[str, Collection[Place]](found)


@lru_cache(maxsize=1024)
def _name(name: str, prefix: str = "") -> bytes:
    raw = f"{prefix}{name}".encode()
    return _SHORT.pack(len(raw)) + raw
