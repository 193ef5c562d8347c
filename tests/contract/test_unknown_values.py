"""Values of enumerations that only a newer version knows: where a rule decides on one, nobody here reads the record."""

import json
import random
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, WithJsonSchema

from aetheris.proofs.closed_values import CLOSED
from aetheris.proofs.records import RawRecord, read
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import MESSAGES
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, Undecodable, decode_event, decode_message
from aetheris.protocol.messages.events import EVENTS
from aetheris.protocol.messages.record_struct import FromModel
from aetheris.protocol.messages.unknown_values import CLOSED_PARTS
from tests.contract.test_record_structs import fields
from tests.testkit import standalone
from tests.testkit.histories import JOB

NEWER = "only a newer version knows"
PLACES = [(name, path) for name, places in CLOSED.items() for path in places]
TRIES = 40
SEAL = {"event_count": 3, "root": "r", "outcome_hash": "o", "key_id": "k"}
WORD = {"node_id": "a", "idempotency_key": "k", "verdict": "happened", "evidence": "e"}
SPEAKER = {"id": "a", "kind": "person", "roles": ["submit"]}
CONTINUES = {"job_id": "job-0", "seal": SEAL, "settled": [WORD], "said_by": SPEAKER}


def enumerated(kind: Any, path: str = "", *, is_open: bool = False) -> Iterator[tuple[str, frozenset[str], bool]]:
    """Where in what a model reads stands a value of an enumeration: path, its values, whether others are text."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        described = [bound.json_schema for bound in args[1:] if isinstance(bound, WithJsonSchema)]
        if described and described[0] is not None and "anyOf" in described[0]:
            yield path, frozenset(described[0]["anyOf"][0]["enum"]), True
        else:
            yield from enumerated(args[0], path, is_open=is_open)
    elif isinstance(kind, FromModel):
        yield from within(kind.__dict__["model"], path)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from within(kind, path)
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        yield path, frozenset(kind), is_open
    elif origin is Literal and isinstance(args[0], str):
        yield path, frozenset(args), is_open
    elif origin is tuple:
        yield from enumerated(args[0], f"{path}.[]", is_open=is_open)
    elif origin in (Union, UnionType):
        for one in args:
            yield from enumerated(one, path, is_open=is_open or str in args)


def within(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, frozenset[str], bool]]:
    for name, field in model.model_fields.items():
        kind = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        yield from enumerated(kind, f"{path}.{name}" if path else name)


MODELLED = [(name, *one) for name, event in EVENTS.items() for one in within(event.model)]
OPEN = [(name, path) for name, path, _, is_open in MODELLED if is_open]


def said(place: str, value: Any) -> Any:
    """JSON in which a value stands at a place."""
    step, _, rest = place.partition(".")
    inner = said(rest, value) if rest else value
    return [inner] if step == "[]" else {"any" if step == "{}" else step: inner}


def merged(body: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """A body that also says this; where a list stood, the other one does."""
    found = dict(body)
    for name, value in beside.items():
        old = found.get(name)
        found[name] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found


def record(event_type: str, value: bytes, version: int = 1) -> Record:
    headers = (("ce_id", b"1"), ("ce_type", f"io.aetheris.{event_type}.v{version}".encode()))
    return Record(Topic.JOBS_EVENTS, 0, 7, 0, JOB.encode(), headers, value)


def readings(event_type: str, value: bytes, version: int = 1) -> dict[str, str]:
    """What each reader takes a record for: read, newer or bad."""
    one = record(event_type, value, version)
    try:
        services = "newer" if isinstance(decode_event(one), NeedsUpgrade) else "read"
    except Undecodable:
        services = "bad"
    fact, found = read(RawRecord(7, one.key, one.headers, value), 0)
    rules = {broken.rule for broken in found}
    proofs = "newer" if "unknown_version" in rules else "bad" if "undecodable" in rules else "read"
    assert (fact.type == event_type) is (proofs == "read")
    script = standalone.verify.Record(0, 7, one.key, list(one.headers), value)
    verify = "newer" if script.outdated else "read" if script.readable else "bad"
    return {"services": services, "proofs": proofs, "verify.py": verify}


def bodies(event_type: str, seed: str) -> Iterator[dict[str, Any]]:
    chance = random.Random(seed)  # noqa: S311 - a seed that a failure prints
    for _ in range(TRIES):
        yield fields(EVENTS[event_type].model, chance) | {"job_id": JOB}


def least(event_type: str) -> dict[str, Any]:
    """The first of them that is read, of what it must say."""
    required = {name for name, one in EVENTS[event_type].model.model_fields.items() if one.is_required()}
    for number in range(1000):
        for body in bodies(event_type, f"least {number}"):
            kept = {name: one for name, one in body.items() if name in required}
            if set(readings(event_type, json.dumps(kept).encode()).values()) == {"read"}:
                return kept
    raise AssertionError(event_type)


def beside(place: str) -> dict[str, Any]:
    """What must stand beside a value at a place, for a model to read it."""
    return {
        "principal": {"principal": {"id": "a", "kind": "person", "roles": ["approve"]}},
        "observed": {"observed": [{"rule": "r", "would": "deny"}]},
        "continues": {"continues": CONTINUES},
        "brief": {"brief": {"model": "m"}},
    }.get(place.split(".", maxsplit=1)[0], {})


def put(body: Any, place: str, value: Any) -> Any:
    """The body with a value at a place, and what was around it."""
    step, _, rest = place.partition(".")
    if step == "[]":
        return [put(body[0] if body else {}, rest, value) if rest else value]
    return {**body, step: put(body.get(step, [] if rest.startswith("[") else {}), rest, value) if rest else value}


def version_of(body: Mapping[str, Any], event_type: str) -> int:
    return 2 if event_type == "plan_generated" and body.get("bodies") is True else 1


def test_who_judges_records_knows_the_same_values_in_the_same_places() -> None:
    modelled: dict[str, dict[str, frozenset[str]]] = {}
    for name, path, known, is_open in MODELLED:
        if not is_open:
            modelled.setdefault(name, {})[path] = known
    for name, parts in CLOSED_PARTS.items():
        modelled.setdefault(name, {}).update({".".join(path): known for path, known in parts.items()})
    proofs = {name: {path: frozenset(known) for path, known in places.items()} for name, places in CLOSED.items()}
    script = {
        name: {path: frozenset(known.split()) for path, known in places.items()}
        for name, places in standalone.verify.CLOSED.items()
    }
    assert proofs == modelled
    assert script == modelled


@pytest.mark.parametrize(("event_type", "place"), PLACES)
def test_where_a_rule_decides_an_unknown_value_makes_a_record_of_a_newer_version(event_type: str, place: str) -> None:
    seed = f"{event_type} {place}"
    for body in bodies(event_type, seed):
        newer = merged(body, said(place, NEWER))
        value = json.dumps(newer).encode()
        version = version_of(newer, event_type)
        assert readings(event_type, value, version) == dict.fromkeys(("services", "proofs", "verify.py"), "newer"), (
            seed,
            newer,
        )
        found = decode_event(record(event_type, value, version))
        assert isinstance(found, NeedsUpgrade)
        assert place.rsplit(".", maxsplit=1)[-1] in found.what
        assert NEWER not in found.what  # what somebody wrote there is not repeated


@pytest.mark.parametrize(("event_type", "place"), PLACES)
def test_each_known_value_is_read(event_type: str, place: str) -> None:
    for known in CLOSED[event_type][place]:
        body = put(least(event_type) | beside(place), place, known)
        assert "newer" not in readings(event_type, json.dumps(body).encode()).values(), known


@pytest.mark.parametrize(("event_type", "place"), OPEN)
def test_what_only_tells_is_kept_as_text(event_type: str, place: str) -> None:
    newer = put(least(event_type) | beside(place), place, NEWER)
    value = json.dumps(newer, separators=(",", ":")).encode()
    assert set(readings(event_type, value).values()) == {"read"}
    found = decode_event(record(event_type, value))
    assert isinstance(found, Envelope)
    assert found.body == EVENTS[event_type].model_validate_json(value)
    assert NEWER in found.body.written().decode()


@pytest.mark.parametrize(
    "wrong",
    [
        b'{"job_id":"job-1","outcome":"%s","via":"late","via":"late"}',
        b'{"job_id":"job-1","outcome":"%s","x":NaN}',
        b'{"job_id":"job-1","outcome":"%s","x":"\\ud800"}',
        b'{"job_id":"job-1","outcome":"%s"',
        b'["%s"]',
        b'{"job_id":"job-1","outcome":"%s","x":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)
def test_what_nobody_reads_is_of_no_version(wrong: bytes) -> None:
    value = wrong % NEWER.encode()
    assert set(readings("tool_invocation_finished", value).values()) == {"bad"}


def test_what_is_no_text_is_no_value_of_a_newer_version() -> None:
    body = next(bodies("tool_invocation_finished", "no text"))
    for wrong in (None, 7, True, [], {}, ["success"]):
        assert readings("tool_invocation_finished", json.dumps(body | {"outcome": wrong}).encode())["services"] == "bad"


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, path) for name, model in MESSAGES.items() for path, _, is_open in within(model) if not is_open],
)
def test_a_command_with_an_unknown_value_is_of_a_newer_version(name: str, place: str) -> None:
    """It is put aside with words that say so, and can be taken up after the upgrade."""
    body = merged({"job_id": JOB}, said(place, NEWER))
    headers = (("ce_id", b"1"), ("ce_type", f"io.aetheris.{name}.v1".encode()))
    found = decode_message(Record(Topic.JOBS_COMMANDS, 0, 0, 0, JOB.encode(), headers, json.dumps(body).encode()))
    assert isinstance(found, NeedsUpgrade)
