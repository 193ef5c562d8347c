"""What others say, whatever it is, becomes a record that every service can read, and that fits a batch."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import InvalidArgs, canonical
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.event_values import Outcome, Via

SURROGATES = st.text(st.characters(codec=None), max_size=30)  # type: ignore[reportArgumentType]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | SURROGATES | st.binary() | st.just(object()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SURROGATES | st.integers(), inner, max_size=4),
    max_leaves=30,
)


class Hostile:
    """Raises whatever is asked of it."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("no items")


def nested(levels: int, inner: Any = 1) -> Any:
    """A value of so many levels."""
    value = inner
    for level in range(levels):
        value = [value] if level % 2 else {"n": value}
    return value


def endless() -> Iterator[dict[str, str]]:
    """Changes without end."""
    while True:
        yield {"resource_type": "row", "resource_id": "1", "operation": "update"}


def read_back(event: ev.Event) -> ev.Event:
    """The event as a service reads it from a log that holds it."""
    made = draft(Topic.JOBS_EVENTS, event, key="j", id="1", source="test", time="2030-01-01T00:00:00Z")
    found = decode_event(Record(made.topic, 0, 0, 0, made.key, made.headers, made.value))
    assert isinstance(found, Envelope)
    return found.body


def finished(**fields: Any) -> ev.ToolInvocationFinished:
    return ev.ToolInvocationFinished(
        job_id="j",
        node_id="a",
        idempotency_key="k",
        invocation_id="n",
        outcome=Outcome.SUCCESS,
        via=Via.EXECUTOR,
        **fields,
    )


HOSTILE = {
    "64 deep": nested(64),
    "65 deep": nested(65),
    "250 deep": nested(250),
    "100,000 deep": nested(100_000),
    "surrogate": {"a": "\ud800"},
    "surrogate key": {"\udfff": 1},
    "surrogates": "\ud800" * 1_000,
    "long": "x" * 1_000_000,
    "hostile": Hostile(),
}
hostile = pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())


def check_result(value: Any) -> None:
    kept, data = recordable.result(value)
    assert canonical(kept) == data
    assert not recordable.is_deep(kept)
    assert read_back(finished(result=kept)).model_dump()["result"] == kept


def check_name(value: Any) -> None:
    name = recordable.name(value)
    assert len(name) <= recordable.LONGEST_NAME
    assert recordable.name(name) == name
    read_back(finished(external_id=name))


@given(VALUES)
def test_any_result_is_recorded_so_that_every_service_reads_it(value: Any) -> None:
    check_result(value)


@hostile
def test_so_is_a_hostile_one(value: Any) -> None:
    check_result(value)


@given(VALUES | SURROGATES)
def test_any_name_is_bounded_and_stays_as_it_is_when_it_is_recorded_again(value: Any) -> None:
    check_name(value)


@hostile
def test_so_is_a_hostile_name(value: Any) -> None:
    check_name(value)


def test_long_names_that_differ_at_their_ends_stay_different() -> None:
    assert recordable.name("x" * 950_000) != recordable.name("x" * 950_000 + "y")


@given(SURROGATES)
def test_any_text_is_encodable(text: str) -> None:
    read_back(finished(error=recordable.text(text)))


@pytest.mark.parametrize(
    "values",
    [[nested(300)], ["x" * 1_000_000] * 3, [Hostile()], Hostile(), 7, [{"a": "\ud800"}], ["x" * 1_000] * 9_999],
    ids=["deep", "large", "hostile", "hostile sequence", "no sequence", "surrogate", "many"],
)
def test_evidence_finds_room_or_is_named(values: Any) -> None:
    kept = recordable.evidence(values)
    assert len(canonical(list(kept))) < 2 * 1024 * 1024
    assert (
        len(canonical([one for one in kept if "$left_out" not in str(one)])) <= recordable.MAX_EVIDENCE_BYTES + 10_000
    )
    read_back(finished(evidence=list(kept)))


@pytest.mark.parametrize("values", [endless(), Hostile(), [{"resource_id": "x" * 1_000_000}] * 500])
def test_changes_end_and_say_what_was_left_out(values: Any) -> None:
    kept = recordable.changes(values)
    assert len(canonical(list(kept))) <= recordable.MAX_CHANGES_BYTES + 10_000


def test_arguments_that_a_form_has_no_room_for_are_named() -> None:
    args = {"amount": 7, "report": "x" * 600_000, "tree": nested(100)}
    shown = recordable.shown(args)
    assert shown["amount"] == 7
    assert shown["report"]["$left_out"]["bytes"] == 600_002
    assert len(canonical(shown)) < 10_000
    assert recordable.shown({"amount": 7}) == {"amount": 7}


@pytest.mark.parametrize(("levels", "deep"), [(0, False), (63, False), (64, False), (65, True), (10_000, True)])
def test_depth_is_counted_in_containers(levels: int, deep: bool) -> None:
    assert recordable.is_deep(nested(levels)) is deep


def test_what_is_nested_without_end_has_no_canonical_form() -> None:
    with pytest.raises(InvalidArgs):
        canonical(nested(100_000))
