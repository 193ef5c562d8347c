"""The audit topic's writer: off the request's path, in a chain of this process's own, never lost unsaid."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

import structlog

from aetheris.gateway.command_writer import SOURCE
from aetheris.gateway.core.accesses import Told, Visit
from aetheris.gateway.views import timestamp
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.accesses import NO_HEAD, AccessAction, AccessRecord, chained
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.log.interface import Writer
from aetheris.runtime.process.withheld import write_all
from aetheris.runtime.telemetry.metrics import Metric, Metrics

_log = structlog.get_logger(__name__)

MOST_WAITING = 20_000
"""Records that are kept in memory while Kafka takes none; what comes beyond them is counted, and told behind them."""
PARTITION = 0
_AT_ONCE = 500
_GATHERED_S = 0.05
_STOPPING_S = 5.0


class AccessLog:
    """Records are handed over at once, and written in their order."""

    def __init__(self, writer: Writer, metrics: Metrics, clock: Clock) -> None:
        self._writer = writer
        self._metrics = metrics
        self._clock = clock
        self._told = Told()
        self._waiting: deque[dict[str, Any]] = deque()
        self._arrived = asyncio.Event()
        self._incarnation = fresh_id()
        self._number, self._head = 0, NO_HEAD
        self._unsaid = self._lost = 0

    def answered(self, access: Visit, status: int) -> None:
        """A request was answered, or begins to be."""
        for action in self._told.actions(access, status, self._clock.monotonic()):
            self._put(access.body(action, status))

    def configured(self, subject: str, reason: str) -> None:
        """Something that decides who may do what has changed."""
        self._put({"action": AccessAction.CONFIGURED, "subject": subject, "reason": reason})

    def began(self, what: str) -> None:
        """This gateway listens from now on, with these settings."""
        self._put({"action": AccessAction.STARTED, "reason": what})

    def reported(self) -> dict[str, object]:
        """How far it is, for readiness: who keeps a head knows later whether the chain still has it."""
        return {
            "incarnation": self._incarnation,
            "records": self._number,
            "head": self._head,
            "waiting": len(self._waiting),
            "lost": self._lost,
        }

    def unready(self) -> str | None:
        """Why nobody should come here; None while there is room for what they do."""
        return "who comes can't be recorded: Kafka takes no records" if len(self._waiting) >= MOST_WAITING else None

    async def run(self) -> None:
        """Write what arrives, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self._clock.sleep(_GATHERED_S)
            await self._write_all()

    async def close(self) -> None:
        """Write the rest, as far as Kafka takes it in time; nothing arrives any more, and `run` has ended."""
        self._put({"action": AccessAction.STOPPED})
        try:
            async with asyncio.timeout(_STOPPING_S):
                await self._write_all()
        except TimeoutError:
            _log.error("records of who came are lost", count=len(self._waiting) + self._unsaid)
        _log.info("who came was recorded", incarnation=self._incarnation, records=self._number, head=self._head)

    def _put(self, body: dict[str, Any]) -> None:
        if len(self._waiting) >= MOST_WAITING and body["action"] is not AccessAction.STOPPED:
            self._unsaid += 1
            self._lost += 1
            self._metrics.count(Metric.ACCESSES_LOST)
            return
        self._waiting.append({"at": timestamp(self._clock.now()), **body})
        self._arrived.set()

    async def _write_all(self) -> None:
        while self._waiting or self._unsaid:
            if not self._waiting:
                lost, self._unsaid = self._unsaid, 0
                self._put({"action": AccessAction.LOST, "count": lost})
            bodies = list(islice(self._waiting, _AT_ONCE))
            await self._write(bodies)
            for _ in bodies:
                self._waiting.popleft()

    async def _write(self, bodies: Sequence[dict[str, Any]]) -> None:
        """In the chain, once: what is cancelled in between is written again, which its readers pass over."""
        records: list[AccessRecord] = []
        number, head = self._number, self._head
        for body in bodies:
            number += 1
            records.append(chained(body, self._incarnation, number, head))
            head = records[-1].head
        refused = await write_all(self._writer, [(self._drafted(one),) for one in records])
        self._number, self._head = number, head
        if refused:
            self._lost += len(refused)
            self._metrics.count(Metric.ACCESSES_LOST, len(refused))
            _log.error("records of who came are refused", count=len(refused), reason=refused[0].why)

    def _drafted(self, record: AccessRecord) -> Draft:
        return draft(
            Topic.ACCESS_RECORDS,
            record,
            key=self._incarnation,
            id=f"{self._incarnation}:{record.number}",
            source=SOURCE,
            time=record.at,
            partition=PARTITION,
        )
