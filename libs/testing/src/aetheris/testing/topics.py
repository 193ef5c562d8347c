"""The topics of a system in memory: one partition each, records as they would lie in Kafka."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import Message
from aetheris.protocol.messages.envelope import Envelope, decode_event, decode_message, draft
from aetheris.protocol.messages.events import Event
from aetheris.runtime.base.clock import SystemClock

Body = Event | Message
Entry = Envelope[Any]
SOURCE = "aetheris/testing"
START = datetime(2026, 1, 1, tzinfo=UTC)


class Topics:
    """Every topic as a list, and the time, which moves only when nothing else does."""

    def __init__(self) -> None:
        self.duplicates = False
        """Whether what is appended lies there twice."""
        self.now_s = 0.0
        self.blobs: dict[str, Any] = {}
        """By their hash the large results that records refer to."""
        self._entries: dict[Topic, list[Entry]] = {topic: [] for topic in Topic}
        self._given: Counter[str] = Counter()

    @property
    def now(self) -> datetime:
        """The time of day."""
        return START + timedelta(seconds=self.now_s)

    def fresh(self, kind: str) -> str:
        """An id that was never given before."""
        self._given[kind] += 1
        return f"{kind}-{self._given[kind]}"

    def fresh_secret(self) -> bytes:
        """What a try's words begin with; the same in every run, as all that is fresh here."""
        return sha256(self.fresh("try").encode()).digest()

    def keep(self, data: bytes) -> None:
        """A large result, as JSON."""
        self.blobs[sha256(data).hexdigest()] = json.loads(data)

    def append(self, topic: Topic, *bodies: tuple[str, Body]) -> None:
        """Records of one group, each with its ce_id."""
        for _ in range(2 if self.duplicates else 1):
            for id_, body in bodies:
                self._entries[topic].append(self._entry(topic, id_, body))

    def read(self, topic: Topic, position: int) -> Sequence[Entry]:
        """What lies there from a position on."""
        return self._entries[topic][position:]

    def end(self, topic: Topic) -> int:
        """The offset of the next record."""
        return len(self._entries[topic])

    def _entry(self, topic: Topic, id_: str, body: Body) -> Entry:
        key = str(getattr(body, "job_id", None) or id_)
        made = draft(topic, body, key=key, id=id_, source=SOURCE, time=self.now.isoformat())
        record = Record(topic, 0, len(self._entries[topic]), 0, made.key, made.headers, made.value)
        decoded = decode_event(record) if isinstance(body, Event) else decode_message(record)
        if not isinstance(decoded, Envelope):
            raise TypeError(f"{type(body).__name__} can't be read again")
        return decoded


class TopicReader:
    """Positions in topics."""

    def __init__(self, topics: Topics, names: Iterable[Topic]) -> None:
        self._topics = topics
        self._positions = dict.fromkeys(names, 0)

    def has_more(self) -> bool:
        """Whether something unread lies in one of the topics."""
        return any(self._topics.end(topic) > position for topic, position in self._positions.items())

    def take(self, topic: Topic) -> Sequence[Entry]:
        """What is unread."""
        entries = self._topics.read(topic, self._positions[topic])
        self._positions[topic] += len(entries)
        return entries


class TopicsClock(SystemClock):
    """The time of day is that of the topics."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def now(self) -> datetime:
        """Their own."""
        return self._topics.now
