"""CloudEvents 1.0 in Kafka binary mode: headers say what a record is, the value is the payload (docs/events.md)."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Generic, TypeVar

from msgspec import Struct
from pydantic import ValidationError

from aetheris.protocol.base.nesting import nests_deeper
from aetheris.protocol.base.recordable import MAX_RECORD_DEPTH
from aetheris.protocol.base.records import Draft, Headers, Record
from aetheris.protocol.messages import event_base
from aetheris.protocol.messages.commands import (
    MESSAGES,
    FreezeBarrier,
    JobPlaced,
    Message,
    PartitionBarrier,
    PolicyBarrier,
    RulesBarrier,
)
from aetheris.protocol.messages.events import EVENTS, CallPlanned, Event, JobCreated, PlanGenerated
from aetheris.protocol.messages.record_struct import is_strict
from aetheris.protocol.messages.unknown_values import refused_value, unknown_part

M = TypeVar("M", bound=Event | Message)
_TYPE = re.compile(rb"io\.aetheris\.([a-z0-9_]+)\.v([0-9]+)")
_SPEC = ("ce_specversion", b"1.0")
_JSON = ("content-type", b"application/json")
_VERSION_2 = "ce_type", f"io.aetheris.{PlanGenerated.event_type}.v2".encode()
_NO_NAMES: set[str] = set()
"""For Pydantic's note of which fields were given, which nobody asks for. Whoever copies a model copies this too, so it
stays empty."""


class Envelope(Struct, Generic[M], gc=False):
    """A decoded record: `id` is its ce_id, `body` its payload."""

    id: str
    body: M
    record: Record


class UnknownRecord(Struct, gc=False):
    """A record of a type that this version doesn't know, or that nobody wants parsed: ignored, and chained."""

    record: Record


@dataclass(frozen=True, slots=True)
class NeedsUpgrade:
    """A known type of a version that can't be read here: its job pauses.

    Its major version, a birth's rules, or a value that stands where a rule decides (`at`: where) are not known.
    """

    job_id: str
    record: Record
    at: str | None = None

    @property
    def is_creation(self) -> bool:
        """Whether its job begins with it."""
        named = _named(self.record.header("ce_type"))
        return named is not None and named[0] == "job_created"

    @property
    def what(self) -> str:
        """What of it is not known, in words."""
        name, version = _named(self.record.header("ce_type")) or ("", b"")
        if self.at is not None:
            return f"{name}: a value of {self.at} that this version does not know"
        return f"{name} of version {version.decode()}, or under rules that this version does not know"


BARRIERS = frozenset(
    f"io.aetheris.{one.type_name}.v1".encode() for one in (FreezeBarrier, PolicyBarrier, RulesBarrier, JobPlaced)
)
"""The ce_types of a partition's barriers, which are no job's events."""


class Undecodable(ValueError):
    """A record that is not what its topic holds; the reason names no content."""


def decode_event(record: Record, unread: Collection[bytes] = ()) -> Envelope[Event] | UnknownRecord | NeedsUpgrade:
    """The event in a record; Unknown for those whose ce_type is in `unread`, unparsed.

    Raises: Undecodable.
    """
    return _decode(record, _EVENTS, unread)


def decode_message(record: Record) -> Envelope[Message] | UnknownRecord | NeedsUpgrade:
    """Raises: Undecodable."""
    return _decode(record, _MESSAGES)


def read_barrier(record: Record) -> PartitionBarrier | None:
    """The barrier in a record whose ce_type is one of BARRIERS; None where it is none that can be read."""
    try:
        found = decode_message(record)
    except Undecodable:
        return None
    body = found.body if isinstance(found, Envelope) else None
    return body if isinstance(body, PartitionBarrier) else None


def draft(
    topic: str,
    body: Event | Message,
    *,
    key: str,
    id: str,  # noqa: A002 - CloudEvents' own name
    source: str,
    time: str,
    subject: str | None = None,
    traceparent: bytes | None = None,
    partition: int | None = None,
) -> Draft:
    """The record that carries `body`; `time` is RFC 3339 and informs only. The key decides a partition not given."""
    if isinstance(body, Event):
        name, value, node_id = body.event_type, body.written(), getattr(body, "node_id", None)
        ce_type = _VERSION_2 if isinstance(body, PlanGenerated) and body.version > 1 else _type_header(name)
    else:
        ce_type, node_id = _type_header(body.type_name), body.__dict__.get("node_id")
        value = body.__pydantic_serializer__.to_json(body, exclude_none=True, by_alias=True)  # no string between
    headers: Headers = (
        _SPEC,
        ("ce_id", id.encode()),
        ("ce_source", source.encode()),
        ce_type,
        ("ce_subject", (subject or node_id or key).encode()),
        ("ce_time", time.encode()),
        _JSON,
    )
    if traceparent is not None:
        headers = (*headers, ("traceparent", traceparent))
    return Draft(topic, key.encode(), value, headers, partition)


def _decode(
    record: Record, kinds: Mapping[bytes | None, tuple[type[M], Callable[[bytes], M]]], unread: Collection[bytes] = ()
) -> Envelope[M] | UnknownRecord | NeedsUpgrade:
    headers, value = dict(record.headers), record.value
    is_plain = len(headers) == len(record.headers)
    identity, ce_type = (headers.get("ce_id"), headers.get("ce_type")) if is_plain else record.identity()
    if ce_type in unread:
        return UnknownRecord(record)
    kind = kinds.get(ce_type)
    if kind is None or identity is None or not is_plain:
        other = _other_than_plain(record, kinds)
        if other is not None:
            return other
    model, read = kinds[ce_type]
    if nests_deeper(value, MAX_RECORD_DEPTH):
        raise Undecodable(f"{model.__name__}: nested deeper than {MAX_RECORD_DEPTH} levels")
    try:
        body = read(value)
    except ValidationError as error:
        newer = refused_value(error)
        if newer is not None and is_strict(value):
            return NeedsUpgrade(_key_of(record), record, newer)
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"]) or "payload"
        raise Undecodable(f"{model.__name__}: {where} is invalid") from None
    job_id = getattr(body, "job_id", None)
    if job_id is not None and record.key != job_id.encode():
        raise Undecodable("the record key is not the payload's job_id")
    if model is PlanGenerated and getattr(body, "version", 1) != (2 if ce_type == _VERSION_2[1] else 1):
        raise Undecodable("a plan with bodies is of version 2, and no other is")
    if model is JobCreated and getattr(body, "rules", None) not in event_base.KNOWN_RULES:
        return NeedsUpgrade(_key_of(record), record)
    if isinstance(body, PlanGenerated | CallPlanned):
        newer = unknown_part(body.event_type, body)
        if newer is not None:
            return NeedsUpgrade(_key_of(record), record, newer)
    return Envelope((identity or b"").decode(errors="replace"), body, record)


def _other_than_plain(record: Record, known: Collection[bytes | None]) -> UnknownRecord | NeedsUpgrade | None:
    """What a record is whose headers are not plainly those of a known type; None: one of that type all the same.

    Raises: Undecodable.
    """
    identity, ce_type = record.identity()
    named = _named(ce_type)
    if named is None or identity is None:
        raise Undecodable("not a CloudEvent of this system: ce_id or ce_type is missing or malformed")
    if record.repeated():
        raise Undecodable("it has more than one ce_id, ce_type, ce_time or ce_source")
    if ce_type in known:
        return None
    is_known = f"io.aetheris.{named[0]}.v1".encode() in known
    return NeedsUpgrade(_key_of(record), record) if is_known else UnknownRecord(record)


def _read_message(model: type[Message], value: bytes) -> Message:
    body = model.__pydantic_validator__.validate_json(value)  # `model_validate_json` less its options
    object.__setattr__(body, "__pydantic_fields_set__", _NO_NAMES)
    return body


@lru_cache(maxsize=256)
def _type_header(name: str) -> tuple[str, bytes]:
    return "ce_type", f"io.aetheris.{name}.v1".encode()


@lru_cache(maxsize=256)
def _named(ce_type: bytes | None) -> tuple[str, bytes] | None:
    """The name and the major version in a ce_type."""
    match = _TYPE.fullmatch(ce_type or b"")
    return None if match is None else (match[1].decode(), match[2])


def _key_of(record: Record) -> str:
    return (record.key or b"").decode(errors="replace")


_EVENTS: Mapping[bytes | None, tuple[type[Event], Callable[[bytes], Event]]] = {
    **{_type_header(name)[1]: (model, model.read) for name, model in EVENTS.items()},
    _VERSION_2[1]: (PlanGenerated, PlanGenerated.read),
}
_MESSAGES: Mapping[bytes | None, tuple[type[Message], Callable[[bytes], Message]]] = {
    _type_header(name)[1]: (model, partial(_read_message, model)) for name, model in MESSAGES.items()
}
"""By ce_type: what a record of a version that is read here is, and what reads its value."""
