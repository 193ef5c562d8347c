"""Dead letters: what could not be decoded, read from the `.dlq` topics and appended again (docs/cli.md)."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.records import Draft, Headers, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.log.interface import Log, LogError, LogUnreachable, Place
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.settings import RuntimeSettings, load

COMMANDS = (Topic.JOBS_COMMANDS, Topic.TOOLS_REQUESTS, Topic.TOOLS_GRANTS, Topic.VERIFICATIONS)
"""What may be said again; a fact or a line of a table counts where it lies, and a copy would lie elsewhere."""

WITHIN_S = 30.0
_SUFFIX = dead_letters("")
_OURS = "dlq_"
_REDRIVEN = "dlq_redriven"
_ADDRESS = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})")


@dataclass(frozen=True)
class DeadLetterAddress:
    """Where a dead letter lies: the topic that it could not be read from, and its place in that topic's `.dlq`."""

    topic: Topic
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter, with every offset at which it was repeated, and when it was last redriven."""

    address: DeadLetterAddress
    record: Record
    offsets: tuple[int, ...]
    redriven: str | None = None

    @property
    def dlq_id(self) -> str | None:
        """Names the record that could not be decoded; the same in every repeat."""
        return self._own("dlq_id")

    @property
    def reason(self) -> str | None:
        """Why it could not be decoded."""
        return self._own("dlq_reason")

    @property
    def omitted(self) -> str | None:
        """Why the letter has none of the record's bytes: the brokers would not have them."""
        return self._own("dlq_omitted")

    @property
    def time(self) -> str:
        """When it was put aside, RFC 3339."""
        return datetime.fromtimestamp(self.record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")

    @property
    def origin_offset(self) -> int | None:
        """Where the record lies in the topic that it could not be read from; its partition is the letter's."""
        offset = self._own("dlq_offset") or ""
        return int(offset) if offset.isdecimal() else None

    @property
    def headers(self) -> Headers:
        """Those that the record came with."""
        return tuple((name, value) for name, value in self.record.headers if not name.startswith(_OURS))

    def _own(self, name: str) -> str | None:
        value = self.record.header(name)
        return None if value is None else value.decode(errors="backslashreplace")


def parse_address(text: str) -> DeadLetterAddress:
    """TOPIC/PARTITION/OFFSET, as `dlq ls` prints it.

    Raises:
        CommandError: it is none.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        rule = "LETTER: must be TOPIC/PARTITION/OFFSET, as `aetheris dlq ls` prints it"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="LETTER")
    return DeadLetterAddress(parse_topic(found["topic"]), int(found["partition"]), int(found["offset"]))


def parse_topic(text: str) -> Topic:
    """A topic's name, with `.dlq` or without.

    Raises:
        CommandError: there is no such topic.
    """
    try:
        return Topic(text.removesuffix(_SUFFIX))
    except ValueError:
        raise CommandError(Exit.BAD_INPUT, "unknown_topic", f"there is no topic {text}", field="TOPIC") from None


@asynccontextmanager
async def reachable(bootstrap: str, within_s: float | None = WITHIN_S) -> AsyncGenerator[Log]:
    """The log, for as long as the block lasts; `within_s` (None: no limit) is for all of it.

    Raises:
        CommandError: no broker answers, or not in time.
    """
    settings = load(RuntimeSettings)
    log = KafkaLog(bootstrap, tls=tls_context(settings), prefix=settings.prefix)
    try:
        async with asyncio.timeout(within_s):
            async with asyncio.timeout(WITHIN_S):
                await log.start()
            yield log
    except TimeoutError:
        raise _unreachable(f"{bootstrap} did not answer within {WITHIN_S:.0f} s") from None
    except LogError as error:
        raise _unreachable(str(error)) from None
    finally:
        await log.stop()


async def read(log: Log, topics: Iterable[Topic]) -> list[DeadLetter]:
    """The dead letters of these topics, each once, in the order of topic, partition and offset.

    Raises:
        LogError: they can't be read.
    """
    found: list[DeadLetter] = []
    for topic in topics:
        places = [(dead_letters(topic), number) for number in range(await log.partitions(dead_letters(topic)))]
        begins, ends = await log.beginning_offsets(places), await log.end_offsets(places)
        for place in places:
            found += _dead_letters(topic, await _records(log, place, begins[place], ends[place]))
    return found


async def find(log: Log, address: DeadLetterAddress) -> DeadLetter:
    """The dead letter at an address; any of its repeats leads to it.

    Raises:
        CommandError: there is none.
        LogError: it can't be read.
    """
    place = (dead_letters(address.topic), address.partition)
    if address.partition < await log.partitions(place[0]):
        begin, end = (await log.beginning_offsets([place]))[place], (await log.end_offsets([place]))[place]
        for dead_letter in _dead_letters(address.topic, await _records(log, place, begin, end)):
            if address.offset in dead_letter.offsets:
                return dead_letter
    message = f"there is no dead letter {address}; `aetheris dlq ls` lists them"
    raise CommandError(Exit.BAD_INPUT, "unknown_letter", message, field="LETTER")


def check_redrivable(dead_letter: DeadLetter) -> None:
    """Raises: CommandError, where a second copy would lie at another place of a log whose order counts."""
    if dead_letter.omitted:
        message = (
            f"the letter has no bytes of its own ({dead_letter.omitted}): "
            f"the record still lies at {dead_letter.address}. "
            "Raise max.message.bytes of the `.dlq` topic, and of those that it goes to"
        )
        raise CommandError(Exit.BAD_INPUT, "not_redrivable", message, field="LETTER")
    if dead_letter.address.topic not in COMMANDS:
        message = (
            f"{dead_letter.address.topic} is not redriven: the record still lies in it, at its own place. "
            "Restart the services once they can read it"
        )
        raise CommandError(Exit.BAD_INPUT, "not_redrivable", message, field="LETTER")


async def redrive(log: Log, dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Append each record to its topic again, as it came, then note that in the `.dlq`.

    Ended in between, it may be appended once more by the next `redrive`: readers take no command twice.

    Raises:
        LogUnreachable: whether it was appended is not known.
    """
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    appender = log.appender()
    await appender.start()
    try:
        await appender.append([(_original(dead_letter),) for dead_letter in dead_letters])
        await appender.append([(_note(dead_letter, at),) for dead_letter in dead_letters])
    finally:
        await appender.stop()
    return [replace(dead_letter, redriven=at) for dead_letter in dead_letters]


async def _records(log: Log, place: Place, begin: int, end: int) -> list[Record]:
    return [record async for records in replay(log, place, begin, end) for record in records]


def _dead_letters(topic: Topic, records: Iterable[Record]) -> list[DeadLetter]:
    found: dict[bytes, DeadLetter] = {}
    for record in records:
        name = record.header("dlq_id") or b"at %d" % record.offset
        known, note = found.get(name), record.header(_REDRIVEN)
        if note is not None:
            if known is not None:
                found[name] = replace(known, redriven=note.decode(errors="backslashreplace"))
        elif known is None:
            found[name] = DeadLetter(
                DeadLetterAddress(topic, record.partition, record.offset), record, (record.offset,)
            )
        else:
            found[name] = replace(known, offsets=(*known.offsets, record.offset))
    return list(found.values())


def _original(dead_letter: DeadLetter) -> Draft:
    record = dead_letter.record
    return Draft(dead_letter.address.topic, record.key or b"", record.value, dead_letter.headers, record.partition)


def _note(dead_letter: DeadLetter, at: str) -> Draft:
    record = dead_letter.record
    headers = (("dlq_id", record.header("dlq_id") or b""), (_REDRIVEN, at.encode()))
    return Draft(dead_letters(dead_letter.address.topic), record.key or b"", b"", headers, record.partition)


def _unreachable(why: str) -> CommandError:
    return CommandError(Exit.UNREACHABLE, LogUnreachable.code, f"{why}. Is it up? `aetheris up`, `aetheris doctor`.")


def shown_headers(headers: Headers) -> Mapping[str, str]:
    """Headers as text; bytes that are none are escaped."""
    return {name: value.decode(errors="backslashreplace") for name, value in headers}
