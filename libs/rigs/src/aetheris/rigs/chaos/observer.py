"""What the log says, read from outside of the system while it is being hurt."""

import asyncio
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, create_job
from aetheris.protocol.fold.workers import Names
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_event
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.interface import LogError, Place, Reader

_POLL_S = 0.2
_AGAIN_S = 0.2
_STOP_WITHIN_S = 10.0


@dataclass
class ObservedJob:
    """A job: its fold, and its events with when each was read, in seconds of the monotonic clock."""

    state: JobState
    events: list[tuple[float, ev.Event]] = field(default_factory=list[tuple[float, ev.Event]])


@dataclass
class JobsObserver:
    """Folds jobs.events and workers as they come; both are read by other threads, under the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    jobs: dict[str, ObservedJob] = field(default_factory=dict[str, ObservedJob])
    names: Names = field(default_factory=lambda: Names(SignedMessages().counts))
    """Who has ended, and how that is known."""

    def take(self, records: Iterable[Record]) -> None:
        """Fold records in log order."""
        now_s = time.monotonic()
        with self.lock:
            for record in records:
                if record.topic == Topic.WORKERS:
                    self.names.take((record.key or b"").decode(), record.value)
                else:
                    self._fold(record, now_s)

    def _fold(self, record: Record, now_s: float) -> None:
        try:
            found = decode_event(record)
        except Undecodable:
            return
        if not isinstance(found, Envelope):
            return
        event = found.body
        seen = self.jobs.get(event.job_id)
        if seen is not None:
            apply(seen.state, event, record.offset)
            seen.events.append((now_s, event))
        elif isinstance(event, ev.JobCreated):
            self.jobs[event.job_id] = ObservedJob(create_job(event, record.offset), [(now_s, event)])


@contextmanager
def observing(kafka: str) -> Generator[JobsObserver]:
    """Read along from the log's beginning, for as long as the block lasts, through every outage of the broker."""
    observer, stop = JobsObserver(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_observe(kafka, observer, stop)), daemon=True)
    thread.start()
    try:
        yield observer
    finally:
        stop.set()
        thread.join(_STOP_WITHIN_S)


async def _observe(kafka: str, observer: JobsObserver, stop: threading.Event) -> None:
    positions: dict[Place, int] = {}
    while not stop.is_set():
        with suppress(LogError, OSError, TimeoutError):
            await _read(kafka, positions, observer, stop)
        await asyncio.sleep(_AGAIN_S)


async def _read(kafka: str, positions: dict[Place, int], observer: JobsObserver, stop: threading.Event) -> None:
    log = KafkaLog(kafka)
    await log.start()
    try:
        if not positions:
            places = [
                (str(topic), number)
                for topic in (Topic.JOBS_EVENTS, Topic.WORKERS)
                for number in range(await log.partitions(topic))
            ]
            positions.update(await log.beginning_offsets(places))
        reader = log.reader()
        await reader.start()
        try:
            reader.assign(positions)
            await _follow(reader, positions, observer, stop)
        finally:
            await reader.stop()
    finally:
        await log.stop()


async def _follow(reader: Reader, positions: dict[Place, int], observer: JobsObserver, stop: threading.Event) -> None:
    while not stop.is_set():
        for place, records in (await reader.poll(_POLL_S)).items():
            observer.take(records)
            if records:  # else all that came of it was known
                positions[place] = records[-1].offset + 1
