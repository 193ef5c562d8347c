"""What no service could decode: read from the `.dlq` topics, and a person's word that a command is to be read again."""

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass

from aetheris.gateway.core import bodies
from aetheris.gateway.core import dead_letters as core
from aetheris.gateway.core.access import missing
from aetheris.gateway.core.dead_letters import DeadLetter
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, NotFoundProblem
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.operator_gate import OperatorGate
from aetheris.gateway.views import timestamp
from aetheris.protocol.api_dead_letters import DeadLetterList, DeadLetterRecord, DeadLetterView, RedriveBody
from aetheris.protocol.base.principals import Role
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.planning.gate import HumanAction
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.interface import Appender, Log, Place
from aetheris.runtime.log.replay import replay

LOOKED_AT = 1_000
"""Records of each partition of a `.dlq`, the newest: whoever may write a topic can fill it."""


@dataclass(frozen=True, slots=True)
class LetterPlace:
    """Of which topic a dead letter is, and where it lies in that topic's `.dlq`."""

    topic: str
    partition: int
    offset: int


class DeadLetters:
    """Reads while somebody looks; keeps nothing."""

    def __init__(
        self,
        *,
        log: Log,
        appender: Appender,
        operators: OperatorGate,
        deadlines: Deadlines,
        clock: Clock,
        keys: RecordKeys = UNSIGNED,
    ) -> None:
        self._log = log
        self._appender = appender
        self._operators = operators
        self._deadlines = deadlines
        self._clock = clock
        self._messages = keys.messages
        self._one_at_a_time = asyncio.Lock()

    async def listed(self, topic: str | None) -> DeadLetterList:
        """Those of a topic, or of all; of each partition as far as its newest records tell.

        Raises:
            BadRequest: there is no such topic; Unavailable.
        """
        topics = tuple(Topic) if topic is None else (_topic(topic),)
        found: list[DeadLetterView] = []
        is_whole = True
        async with self._deadlines.deadline():
            for one in topics:
                for place, begin, end in await self._filled(one):
                    records = await self._read(place, max(begin, end - LOOKED_AT), end)
                    found += [letter.view() for letter in core.folded(one, records)]
                    is_whole = is_whole and end - begin <= LOOKED_AT
        return DeadLetterList(dead_letters=tuple(found), is_whole=is_whole)

    async def record(self, caller: Principal, at: LetterPlace) -> DeadLetterRecord:
        """A letter with the record's bytes: for who administers, or whose own tenant's command it is.

        Raises:
            BadRequest, NotFound, Forbidden, Unavailable.
        """
        async with self._deadlines.deadline():
            letter = await self._found(at)
            put_aside = await self._record_at((dead_letters(letter.topic), at.partition), letter.offset)
        if put_aside is None:
            raise _unknown()
        _check_reach(caller, put_aside)
        return DeadLetterRecord(
            **letter.view().model_dump(),
            key=_base64(put_aside.key) if put_aside.key is not None else None,
            headers=tuple((name, _base64(value)) for name, value in letter.came_with),
            value=_base64(put_aside.value),
        )

    async def redrive(self, caller: Principal, at: LetterPlace, raw: bytes) -> DeadLetterView:
        """Append the record to its topic again as it lies there, and note that; said twice, it is done once.

        What the `.dlq` has of it is never appended: who may put a record aside could make people say anything. Ended
        between record and note, it may be appended once more by the next: readers take no command twice.

        Raises:
            BadRequest, NotFound, Forbidden, Conflict (it can't be, or needn't be), Unavailable.
        """
        wanted = bodies.read(RedriveBody, raw)
        await self._operators.check(caller, HumanAction.REDRIVE, caller.tenant)
        async with self._one_at_a_time, self._deadlines.deadline():
            letter = await self._found(at)
            record_offset = core.check_redrivable(letter)
            record = await self._record_at((letter.topic, at.partition), record_offset)
            if record is None:
                raise ConflictProblem("not_there", f"the record lies in {letter.topic} no more", topic=letter.topic)
            _check_reach(caller, record)
            if letter.redriven_at is None:
                self._check_counts(record)
                said = core.note(letter, timestamp(self._clock.now()), caller.id, wanted.reason)
                await self._appender.append([(core.again(record),)])
                await self._appender.append([(said,)])
                letter = await self._found(at)
        return letter.view()

    def _check_counts(self, record: Record) -> None:
        """Raises Conflict, where nobody would take it."""
        name = core.decoded_type(record)
        if not self._messages.counts(record.topic, name, record.key, record.value):
            raise ConflictProblem("not_signed", "no service of this installation has signed it: nobody would take it")

    async def _found(self, at: LetterPlace) -> DeadLetter:
        known = _topic(at.topic)
        for place, begin, end in await self._filled(known, at.partition):
            if begin <= at.offset < end:
                records = await self._read(place, max(begin, min(at.offset, end - LOOKED_AT)), end)
                for letter in core.folded(known, records):
                    if at.offset in letter.places:
                        return letter
        raise _unknown()

    async def _filled(self, topic: Topic, partition: int | None = None) -> list[tuple[Place, int, int]]:
        """The partitions of its `.dlq` that hold something, with their bounds."""
        name = dead_letters(topic)
        count = await self._log.partitions(name)
        places = [(name, number) for number in range(count) if partition in (None, number)]
        begins, ends = await self._log.beginning_offsets(places), await self._log.end_offsets(places)
        return [(place, begins[place], ends[place]) for place in places if begins[place] < ends[place]]

    async def _read(self, place: Place, begin: int, end: int) -> Sequence[Record]:
        """Without their values, which may be large."""
        found: list[Record] = []
        async for records in replay(self._log, place, begin, end):
            found += [record.replaced(value=b"") for record in records]
        return found

    async def _record_at(self, place: Place, offset: int) -> Record | None:
        begins, ends = await self._log.beginning_offsets([place]), await self._log.end_offsets([place])
        if begins[place] <= offset < ends[place]:
            async for records in replay(self._log, place, offset, offset + 1):
                return records[0] if records[0].offset == offset else None
        return None


def _topic(name: str) -> Topic:
    try:
        return Topic(name.removesuffix(dead_letters("")))
    except ValueError:
        raise BadRequestProblem("bad_request", "topic", "there is no such topic") from None


def _check_reach(caller: Principal, record: Record) -> None:
    """Raises Forbidden: it is not a command of the caller's tenant, as far as anybody can tell."""
    if Role.ADMINISTER not in caller.roles and core.tenant_of(record) != caller.tenant:
        raise missing(Role.ADMINISTER, about="what is not known to be of your tenant")


def _unknown() -> NotFoundProblem:
    return NotFoundProblem("unknown_letter", "there is no such dead letter")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
