"""Dead letters, folded of the records of a `.dlq`, and what a redrive of each topic's does (ADR 25). Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from aetheris.gateway.core.problems import ConflictProblem
from aetheris.protocol.api_dead_letters import DeadLetterView, Redrive
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.records import Draft, Headers, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.fold.job_log import text_of
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, Undecodable, decode_message

_OURS = "dlq_"
_REDRIVEN, _BY, _WHY = "dlq_redriven", "dlq_redriven_by", "dlq_redriven_why"

REDRIVES: Mapping[Topic, Redrive] = {
    Topic.JOBS_COMMANDS: Redrive.AGAIN,
    Topic.TOOLS_REQUESTS: Redrive.ASKED_AGAIN,
    Topic.TOOLS_GRANTS: Redrive.ASKED_AGAIN,
    Topic.VERIFICATIONS: Redrive.ASKED_AGAIN,
}
"""What is not here counts where it lies."""

_REFUSALS: Mapping[Redrive, str] = {
    Redrive.ASKED_AGAIN: "what is in {topic} is not redriven: who wrote it says it again by itself, while it is wanted",
    Redrive.IN_PLACE: "{topic} is not redriven: the record still lies in it, at its own place, and a copy would lie at "
    "another. Restart the services once they can read it",
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The first record of a dead letter, without its value, and what came of it."""

    topic: Topic
    partition: int
    offset: int
    at_ms: int
    key: bytes | None
    headers: Headers = field(repr=False)
    places: tuple[int, ...]
    """Every offset of the `.dlq` at which it lies."""
    redriven_at: str | None = None
    redriven_by: str | None = None

    @property
    def dlq_id(self) -> str | None:
        """Names the record that could not be decoded."""
        return self._own("dlq_id")

    @property
    def record_offset(self) -> int | None:
        """Where the record lies in the topic; its partition is the letter's."""
        offset = self._own("dlq_offset") or ""
        return int(offset) if offset.isascii() and offset.isdecimal() else None

    @property
    def redrive(self) -> Redrive:
        """What redriving it does."""
        return REDRIVES.get(self.topic, Redrive.IN_PLACE)

    @property
    def came_with(self) -> Headers:
        """The headers that the record had."""
        return tuple((name, value) for name, value in self.headers if not name.startswith(_OURS))

    def view(self) -> DeadLetterView:
        """As clients get it."""
        return DeadLetterView(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            record_offset=self.record_offset,
            at=datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
            reason=self._own("dlq_reason"),
            type=self._own("ce_type"),
            repeats=len(self.places) - 1,
            omitted=self._own("dlq_omitted"),
            redrive=self.redrive,
            redriven_at=self.redriven_at,
            redriven_by=self.redriven_by,
        )

    def _own(self, name: str) -> str | None:
        return next((text_of(value) for key, value in self.headers if key == name), None)


def folded(topic: Topic, records: Iterable[Record]) -> list[DeadLetter]:
    """The letters of one partition of a `.dlq`, each once, in their order; its notes say which were redriven."""
    found: dict[bytes, DeadLetter] = {}
    for record in records:
        name, redriven = record.header("dlq_id") or b"at %d" % record.offset, record.header(_REDRIVEN)
        known = found.get(name)
        if redriven is not None:
            if known is not None and known.redriven_at is None:
                found[name] = replace(known, redriven_at=text_of(redriven), redriven_by=text_of(record.header(_BY)))
        elif known is not None:
            found[name] = replace(known, places=(*known.places, record.offset))
        else:
            at, headers = record.offset, record.headers
            found[name] = DeadLetter(topic, record.partition, at, record.timestamp_ms, record.key, headers, (at,))
    return list(found.values())


def check_redrivable(letter: DeadLetter) -> int:
    """Where the record lies that is to be appended again.

    Raises:
        Conflict: a redrive of it does nothing, or is not known to be of what was put aside.
    """
    refusal = _REFUSALS.get(letter.redrive)
    if refusal is not None:
        raise ConflictProblem("not_redrivable", refusal.format(topic=letter.topic), topic=letter.topic)
    offset = letter.record_offset
    if offset is None or letter.dlq_id != derived("dlq", letter.topic, str(letter.partition), str(offset)):
        message = "the dead letter does not say which record it is of: no service writes such"
        raise ConflictProblem("not_redrivable", message, topic=letter.topic)
    return offset


def tenant_of(record: Record) -> str | None:
    """Whose command a record is, as it says; None: nobody's, or it can't be decoded here either."""
    try:
        found = decode_message(record)
    except Undecodable:
        return None
    tenant = getattr(found.body, "tenant", None) if isinstance(found, Envelope) else None
    return tenant if isinstance(tenant, str) else None


def decoded_type(record: Record) -> str:
    """Which message a record is.

    Raises:
        Conflict: this version can't read it either: it would be put aside once more.
    """
    try:
        found = decode_message(record)
    except Undecodable as error:
        raise _unreadable(str(error)) from None
    if isinstance(found, NeedsUpgrade):
        raise _unreadable("it is of a newer version: upgrade first")
    if not isinstance(found, Envelope):
        raise _unreadable("it is of a type that is not known here")
    return found.body.type_name


def again(record: Record) -> Draft:
    """The record, to be appended once more as it is."""
    return Draft(record.topic, record.key or b"", record.value, record.headers, record.partition)


def note(letter: DeadLetter, at: str, by: str, reason: str) -> Draft:
    """What the `.dlq` is to say of a redrive."""
    said = ((_REDRIVEN, at.encode()), (_BY, by.encode()), (_WHY, reason.encode()))
    headers = (("dlq_id", (letter.dlq_id or "").encode()), *said)
    return Draft(dead_letters(letter.topic), letter.key or b"", b"", headers, letter.partition)


def _unreadable(why: str) -> ConflictProblem:
    return ConflictProblem("not_decodable", f"this version can't decode it either, and nothing was appended: {why}")
