"""What others may rely on: the events' JSON Schemas, and the public topics as AsyncAPI 3 (docs/subscribing.md)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.accesses import AccessRecord
from aetheris.protocol.messages.commands import AnsweredSubmissions, InterimSeals, LedgerRecord, Message
from aetheris.protocol.messages.events import EVENTS, Event, JobSealed
from aetheris.protocol.messages.seal_lines import ErasedSubjectLine

Schema = Mapping[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"
_FORMAT = "application/schema+json;version=draft-07"

_CHANNELS: Mapping[Topic, tuple[str, str, tuple[type[Event] | type[Message], ...]]] = {
    Topic.JOBS_EVENTS: (
        "jobEvents",
        "The facts of every job, in log order; the authority. Kept for ever, never compacted.",
        tuple(EVENTS.values()),
    ),
    Topic.JOBS_SEALS: (
        "jobSeals",
        "Seals of jobs, what was answered, who was erased: one partition, its offsets the leaves of a Merkle log.",
        (JobSealed, AnsweredSubmissions, InterimSeals, ErasedSubjectLine),
    ),
    Topic.ACCESS_RECORDS: (
        "accessRecords",
        "Who came to a gateway, was shown something or refused: a chain for each gateway process, in one partition.",
        (AccessRecord,),
    ),
    Topic.LEDGER_RECORDS: (
        "ledgerRecords",
        "A compacted view of each invocation, with the log offset it was made from; never a source.",
        (LedgerRecord,),
    ),
}


def schemas() -> dict[str, Schema]:
    """name.v1 → the JSON Schema of a payload, for every event and every record of a public topic."""
    models = {_name(model): model for _, _, held in _CHANNELS.values() for model in held}
    return {f"{name}.v1": _schema(name, model) for name, model in sorted(models.items())}


def asyncapi(folder: str) -> dict[str, Any]:
    """The public topics; `folder` is where the schemas lie beside the document."""
    messages = {_name(model): model for _, _, held in _CHANNELS.values() for model in held}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Aetheris",
            "version": "1",
            "description": "What downstream systems may read: CloudEvents 1.0 in Kafka binary mode.",
        },
        "defaultContentType": "application/json",
        "channels": {name: _channel(topic, says, held) for topic, (name, says, held) in _CHANNELS.items()},
        "operations": {f"send{name[0].upper()}{name[1:]}": _operation(name) for name, _, _ in _CHANNELS.values()},
        "components": {
            "messages": {name: _message(name, model, folder) for name, model in sorted(messages.items())},
            "messageTraits": {"cloudEvent": _cloud_event()},
        },
    }


def breaks(old: Schema, new: Schema) -> list[str]:
    """What a reader of `old` could trip over in `new`; empty if nothing, as where fields are added.

    A field must not be removed, nor become required (older records lack it), nor cease to be, and must still take
    every type and value that it took.
    """
    return list(_broken(_Half(old, old), _Half(new, new), ""))


class _Half:
    """A part of a schema, and the whole that its references point into."""

    def __init__(self, whole: Schema, part: Schema) -> None:
        self._whole = whole
        self.part = self._resolved(part)

    def field(self, name: str) -> "_Half | None":
        for one in self.choices():
            if name in one.get("properties", {}):
                return _Half(self._whole, one["properties"][name])
        return None

    def fields(self) -> dict[str, bool]:
        """Field → whether it is required."""
        return {name: name in one.get("required", ()) for one in self.choices() for name in one.get("properties", {})}

    def items(self) -> "_Half | None":
        found = [one["items"] for one in self.choices() if isinstance(one.get("items"), dict)]
        return _Half(self._whole, found[0]) if found else None

    def choices(self) -> list[Schema]:
        return [self._resolved(one) for one in self.part.get("anyOf", (self.part,))]

    def takes(self) -> set[str]:
        """Types and values, in words; empty where anything goes."""
        found: set[str] = set()
        for one in self.choices():
            values = one.get("enum", [one["const"]] if "const" in one else [])
            found |= {f"the value {value}" for value in values} or {str(one.get("type", ""))}
        return set() if "" in found else found

    def _resolved(self, part: Schema) -> Schema:
        reference = part.get("$ref")
        if reference is None:
            return part
        return cast("Schema", self._whole["$defs"][str(reference).rsplit("/", 1)[-1]])


def _broken(old: _Half, new: _Half, at: str) -> Iterator[str]:
    before, after = old.takes(), new.takes()
    if after and (not before or before - after):
        yield f"{at or '/'}: no longer takes {', '.join(sorted(before - after)) or 'anything'}"
    then, now = old.fields(), new.fields()
    for name in then:
        if name not in now:
            yield f"{at}/{name}: removed"
        elif then[name] and not now[name]:
            yield f"{at}/{name}: no longer required"
    yield from (f"{at}/{name}: made required" for name in now if now[name] and not then.get(name))
    for name in then:
        yield from _both(old.field(name), new.field(name), f"{at}/{name}")
    yield from _both(old.items(), new.items(), f"{at}/*")


def _both(old: _Half | None, new: _Half | None, at: str) -> Iterable[str]:
    return _broken(old, new, at) if old is not None and new is not None else ()


def _name(model: type[Event] | type[Message]) -> str:
    return model.event_type if issubclass(model, Event) else model.type_name


def _schema(name: str, held: type[Event] | type[Message]) -> Schema:
    model = held.model if issubclass(held, Event) else held
    return {"$schema": DRAFT, "$id": f"urn:aetheris:{name}:v1", **model.model_json_schema(mode="validation")}


def _channel(topic: Topic, says: str, held: Iterable[type[Event] | type[Message]]) -> Schema:
    names = sorted(_name(model) for model in held)
    return {
        "address": str(topic),
        "description": says,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
        "bindings": {"kafka": {"topic": str(topic), "bindingVersion": "0.5.0"}},
    }


def _operation(channel: str) -> Schema:
    return {"action": "send", "channel": {"$ref": f"#/channels/{channel}"}}


def _message(name: str, model: type[Event] | type[Message], folder: str) -> Schema:
    return {
        "name": f"io.aetheris.{name}.v1",
        "summary": (model.__doc__ or name).split("\n")[0],
        "contentType": "application/json",
        "traits": [{"$ref": "#/components/messageTraits/cloudEvent"}],
        "payload": {"schemaFormat": _FORMAT, "schema": {"$ref": f"{folder}/{name}.v1.json"}},
    }


def _cloud_event() -> Schema:
    names = ("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_subject", "ce_time", "content-type")
    text = {"type": "string"}
    return {
        "headers": {
            "type": "object",
            "required": list(names),
            "properties": dict.fromkeys((*names, "traceparent"), text),
        },
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": "0.5.0"}},
    }
