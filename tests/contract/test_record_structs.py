"""Events are read and written by msgspec, and each as its Pydantic model reads and writes it."""

import json
import random
from collections.abc import Iterator
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import jiter
import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from aetheris.protocol.base.nesting import nests_deeper
from aetheris.protocol.base.recordable import MAX_RECORD_DEPTH
from aetheris.protocol.messages.events import EVENTS, Event
from aetheris.protocol.messages.record_struct import FromModel, RecordStruct
from tests.contract.test_record_readers import READABLE, UNREADABLE

IN_THE_GATE = 1_500
IN_FULL = 100_000
NEVER = {"job_frozen", "job_unfrozen"}
"""Types whose records the model reads: each names a scope, which is a model's."""
TEXTS = ("", "a", "é", "𝄞", "x" * 70, "\x7f", 'q"\\', "\n", "0", "true", "1e400", "2026-01-01T00:00:00Z", "success")
WRONG = (
    *(
        b"null",
        b"true",
        b"false",
        b"0",
        b"-0",
        b"-0.0",
        b"1",
        b"1.0",
        b"1e2",
        b"1.5",
        b"1e16",
        b"1e400",
        b"-1e400",
        b"5e-324",
    ),
    *(
        b"18446744073709551615",
        b"18446744073709551616",
        b"-9223372036854775808",
        b"-9223372036854775809",
        b"01",
        b"1.",
        b"+1",
    ),
    *(b"9007199254740993", b"9007199254740993.0", b"123456789012345678901234567890", b"9223372036854775808.0", b"1e19"),
    *(
        b"0.1000000000000000055511151231257827",
        b"1e-400",
        b"7" * 4_300,
        b"7" * 4_301,
        b"7" * 4_301 + b".5",
        b"0." + b"7" * 5_000,
    ),
    *(
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"nan",
        b"True",
        b'""',
        b'"x"',
        b'"1"',
        b'"true"',
        b'"\xc3\xa9"',
        b'"\xff"',
        b'"\x01"',
    ),
    *(
        rb'"\ud800"',
        rb'"\udc00\ud800"',
        rb'"\ud83d\ude00"',
        rb'"\u0000"',
        rb'"\x"',
        rb'"\u12"',
        rb'"\/"',
        b'"\xed\xa0\x80"',
    ),
    *(
        b"[]",
        b"[null]",
        b"[1]",
        b'["x"]',
        b"{}",
        b"[{}]",
        b'{"a":null,"a":1}',
        b"[1,]",
        b'{"a":1,}',
        b"{1:1}",
        b'{"a":',
        b"[",
        b"",
    ),
    *(
        b'{"sha256":"x","size":1}',
        b'{"sha256":"x","size":1.0}',
        b'{"sha256":1,"size":"1"}',
        b'{"\xff":1}',
        rb'{"\ud800":1}',
    ),
    *(
        b'[{"invocation_id":"i","result_hash":"h","x":1}]',
        b'{"id":"a","kind":"person","roles":["approve"]}',
        b"[[[[[]]]]]",
    ),
    *(
        b'[{"resource_type":"t","resource_id":"r","operation":"o","version":null}]',
        b'{"id":"a","kind":"god","roles":[]}',
    ),
)
"""What may stand where something else should."""


def said(kind: Any, chance: random.Random, depth: int = 0) -> Any:
    """A value of a model's field, as JSON has it."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return said(chance.choice(args), chance, depth)
    if isinstance(kind, FromModel):
        return fields(kind.__dict__["model"], chance, depth + 1)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return fields(kind, chance, depth + 1)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return chance.choice(list(kind)).value
    if origin is Literal:
        return chance.choice(args)
    if origin is tuple:
        return [said(args[0], chance, depth + 1) for _ in range(chance.randrange(3))]
    if origin is dict or kind is dict:
        return {chance.choice(TEXTS): anything(chance, depth) for _ in range(chance.randrange(3))}
    found = {
        str: chance.choice(TEXTS),
        bool: chance.random() < 0.5,
        NoneType: None,
        float: chance.choice((0.5, 1e16, 3)),
    }
    return chance.choice((0, 1, 2, 7, 2**53, 2**64)) if kind is int else found.get(kind, anything(chance, depth))


def anything(chance: random.Random, depth: int) -> Any:
    """Others' JSON."""
    if depth > 3 or chance.random() < 0.6:
        return chance.choice((None, True, 0, -1, 2**53 + 1, 2**70, 0.1, 1e16, 1e300, -1.5e-9, chance.choice(TEXTS)))
    if chance.random() < 0.5:
        return [anything(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(TEXTS): anything(chance, depth + 1) for _ in range(chance.randrange(4))}


def fields(model: type[BaseModel], chance: random.Random, depth: int = 0) -> dict[str, Any]:
    """What a model may say; some of what it need not say is left out."""
    kept = {name: one for name, one in model.model_fields.items() if one.is_required() or chance.random() < 0.4}
    return {name: said(one.annotation, chance, depth) for name, one in kept.items()}


def written(body: dict[str, Any], chance: random.Random) -> bytes:
    return json.dumps(
        body, ensure_ascii=chance.random() < 0.5, separators=chance.choice(((",", ":"), (", ", ": ")))
    ).encode()


def mutated(kind: type[Event], chance: random.Random) -> bytes:
    """A record of a type, as somebody may have written it who means no good."""
    body = fields(kind.model, chance)
    how = chance.randrange(8)
    if how < 3:  # a field says something else, or what nobody knows is said, or something is said again
        name = chance.choice((*body, *kind.model.model_fields, "x", "sig"))
        known = [f"{json.dumps(key)}:".encode() + written_value(value, chance) for key, value in body.items()]
        wrong = json.dumps(name).encode() + b":" + chance.choice(WRONG)
        if how == 0:
            known = [one for one in known if not one.startswith(json.dumps(name).encode() + b":")]
        known.insert(chance.randrange(len(known) + 1), wrong)
        return b"{" + b",".join(known) + b"}"
    if how == 3 and body:
        del body[chance.choice(list(body))]
    data = bytearray(written(body, chance))
    if how == 4:  # a byte more, a byte less, another byte
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(data))
            if chance.random() < 0.5:
                data[at : at + chance.randrange(2)] = bytes(
                    [chance.choice((*b'{}[]",:\\.eE+-0123456789 \x00', chance.randrange(256)))]
                )
            else:
                del data[at]
    if how == 5:
        data = data[: chance.randrange(len(data))]
    if how == 6:
        data = bytearray(
            chance.choice((b" ", b"\n", b"\xef\xbb\xbf", b"\x00", b"\xff"))
            + bytes(data)
            + chance.choice((b"", b"\t", b"x", b"{}"))
        )
    return bytes(data)


def written_value(value: Any, chance: random.Random) -> bytes:
    return json.dumps(value, ensure_ascii=chance.random() < 0.5).encode()


def by_the_model(kind: type[Event], value: bytes) -> tuple[str, bytes] | None:
    """(what the model reads, what Pydantic writes of that); None where it refuses it, or something stands twice."""
    try:
        jiter.from_json(value, allow_inf_nan=False, catch_duplicate_keys=True)
        found = kind.model.model_validate_json(value, strict=True)
    except ValueError:
        return None
    again = found.__pydantic_serializer__.to_json(found, exclude_none=True, by_alias=True)
    return repr(kind(**found.__dict__)), again


def by_the_struct(kind: type[Event], value: bytes) -> tuple[str, bytes] | None:
    try:
        found = kind.read(value)
    except ValidationError:
        return None
    return repr(found), found.written()


def is_read(kind: type[Event], value: bytes) -> bool:
    """Whether msgspec takes it, and nobody is asked."""
    try:
        kind._decode(value)  # pyright: ignore[reportPrivateUsage]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def records(kind: type[Event], count: int) -> Iterator[bytes]:
    chance = random.Random(kind.event_type)  # noqa: S311  not for secrets
    for _ in range(count):
        yield mutated(kind, chance)


def compare(event_type: str, count: int) -> None:
    kind, read, taken = EVENTS[event_type], 0, 0
    for value in records(kind, count):
        if nests_deeper(value, MAX_RECORD_DEPTH):
            continue  # nobody is asked
        by_model = by_the_model(kind, value)
        assert by_the_struct(kind, value) == by_model, value
        taken += by_model is not None
        read += by_model is not None and is_read(kind, value)
    assert taken > count / (20 if event_type in NEVER else 7), "most are refused: little was compared"
    assert (read > taken / 4) == (event_type not in NEVER), "the model reads most: little was compared"


@pytest.mark.parametrize("event_type", sorted(EVENTS))
def test_a_struct_is_read_and_written_as_its_model_is(event_type: str) -> None:
    compare(event_type, IN_THE_GATE)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event_type", sorted(EVENTS))
def test_a_struct_is_read_and_written_as_its_model_is_in_full(event_type: str) -> None:
    compare(event_type, IN_FULL)


@pytest.mark.parametrize("name", [*READABLE, *UNREADABLE])
def test_what_all_readers_read_alike_the_model_and_the_struct_do(name: str) -> None:
    value = READABLE.get(name) or UNREADABLE.get(name, b"")
    kind = EVENTS["signal_received"]
    if not nests_deeper(value, MAX_RECORD_DEPTH):
        assert by_the_struct(kind, value) == by_the_model(kind, value)


@pytest.mark.parametrize("event_type", sorted(EVENTS))
def test_a_struct_has_its_models_fields_in_their_order(event_type: str) -> None:
    kind = EVENTS[event_type]
    assert kind.__struct_fields__ == tuple(kind.model.model_fields)


def test_what_a_decoder_would_not_know_of_is_refused_where_it_is_declared() -> None:
    with pytest.raises(TypeError, match="validator"):
        type("Checked", (Event,), {"check": field_validator("job_id")(lambda _kind, value: value)})
    with pytest.raises(TypeError, match="configuration"):
        type("Configured", (Event,), {"model_config": ConfigDict(extra="forbid")})
    with pytest.raises(TypeError, match="another name"):
        type("Renamed", (Event,), {"__annotations__": {"more": str}, "more": Field(alias="other")})


class Shade(StrEnum):
    RED = "red"


class Part(RecordStruct):
    text: str
    count: int = 0
    holds: bool = False
    colour: Shade | None = None
    others: tuple[str, ...] | None = None
    rest: dict[str, Any] | None = None


@pytest.mark.parametrize(
    "said",
    [{}, {"count": 2**60, "holds": True}, {"colour": Shade.RED}, {"others": ("a",)}, {"rest": {"a": [1, None]}}],
)
def test_a_struct_in_a_message_is_written_as_its_model_is(said: dict[str, Any]) -> None:
    by_struct: Any = create_model("Holder", part=(Part, ...))
    by_model: Any = create_model("Holder", part=(Part.model, ...))
    fields: dict[str, Any] = {"text": "é\n", **said}
    held, modelled = by_struct(part=Part(**fields)), by_model(part=Part.model(**fields))
    for options in ({}, {"exclude_none": True}, {"by_alias": True}):
        assert held.model_dump_json(**options) == modelled.model_dump_json(**options)
        for mode in ("json", "python"):
            assert held.model_dump(mode=mode, **options) == modelled.model_dump(mode=mode, **options)


def test_what_is_in_every_run_is_read_without_the_model() -> None:
    hot = ("tool_invocation_started", "tool_invocation_finished", "command_committed", "state_changed", "node_finished")
    for event_type in hot:
        kind, chance = EVENTS[event_type], random.Random(1)  # noqa: S311  not for secrets
        plain = {
            name: said(one.annotation, chance) for name, one in kind.model.model_fields.items() if one.is_required()
        }
        assert is_read(kind, json.dumps(plain).encode()), event_type
