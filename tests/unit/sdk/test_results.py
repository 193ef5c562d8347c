"""What a tool returns that JSON lacks: each kind in a readable form of its own, reached by `$ref`."""

import dataclasses
import datetime
import enum
import math
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import count
from numbers import Integral
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pydantic import BaseModel, SecretStr, field_serializer

from aetheris.protocol.base.canonical import canonical, parse
from aetheris.sdk import Result, tool
from aetheris.sdk.redaction import Redactor
from aetheris.sdk.results import MOST_YIELDED, recorded
from aetheris.sdk.schema import DeclarationError
from aetheris.testing import MemorySystem
from tests.unit.protocol.test_recordable import VALUES, Hostile, nested

BIG = 2**60


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Opaque:
    """Nothing that JSON knows."""


class Scalar:
    """As numpy's are."""

    def __int__(self) -> int:
        return 7


Integral.register(Scalar)


@dataclasses.dataclass
class DataRow:
    size: int
    data: bytes
    ratio: float = 0.5


class Payment(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    amount: float
    card: SecretStr = SecretStr("4111")
    rest: Any = None

    @field_serializer("amount", when_used="json")
    def _as_text(self, amount: float) -> str:
        return f"{amount:.2f}"


WHEN = datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC)
FORMS: dict[str, tuple[Any, Any]] = {
    "an exact integer": (2**53 - 1, 2**53 - 1),
    "a large integer": ({"a": [BIG]}, {"a": [str(BIG)]}),
    "a large negative integer": (-(2**53), str(-(2**53))),
    "more digits than Python writes": (16**5000, "0x1" + "0" * 5000),
    "a bool is no number": ([True, False], [True, False]),
    "NaN": ({"a": math.nan}, {"a": "NaN"}),
    "infinities": ([math.inf, -math.inf], ["Infinity", "-Infinity"]),
    "a large whole float": (float(BIG), str(BIG)),
    "a float with an exponent": (1e300, 1e300),
    "bytes": (b"abc", {"$base64": "YWJj"}),
    "bytes that are no text": ({"a": b"\xff"}, {"a": {"$base64": "/w=="}}),
    "other bytes": ([bytearray(b"a"), memoryview(b"a")], [{"$base64": "YQ=="}, {"$base64": "YQ=="}]),
    "a surrogate": ({"\ud800": "a\udfff"}, {"\\ud800": "a\\udfff"}),
    "times": ([WHEN, datetime.timedelta(1)], ["2030-01-02T00:00:00Z", "P1D"]),
    "Decimal": ([Decimal("1.10"), Decimal("NaN")], ["1.10", "NaN"]),
    "Fraction": (Fraction(1, 3), "1/3"),
    "UUID": (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "a path": (Path("a/b"), "a/b"),
    "enums": ([Colour.RED, Level.HIGH], ["red", 3]),
    "a number of another library": ({"n": Scalar()}, {"n": 7}),
    "tuples": ((1, (2,)), [1, [2]]),
    "a set": ({3, 1, 2}, [1, 2, 3]),
    "a set of texts and bytes": (frozenset({"b", "a", b"c"}), ["a", "b", {"$base64": "Yw=="}]),
    "a counter": (Counter("aab"), {"a": 2, "b": 1}),
    "keys that are no texts": ({1: "a", None: "b", Colour.RED: "c"}, {"1": "a", "None": "b", "red": "c"}),
    "keys that fall together": ({1: "a", "1": "b"}, {"$pairs": [[1, "a"], ["1", "b"]]}),
    "keys without a text": ({b"k": BIG}, {"$pairs": [[{"$base64": "aw=="}, str(BIG)]]}),
    "a dataclass": (DataRow(BIG, b"\xff"), {"size": str(BIG), "data": {"$base64": "/w=="}, "ratio": 0.5}),
    "a dataclass with NaN": (DataRow(1, b"", math.nan), {"size": 1, "data": {"$base64": ""}, "ratio": "NaN"}),
    "a model": (Payment(amount=1), {"amount": "1.00", "card": "**********", "rest": None}),
    "a model with NaN": (Payment(amount=math.nan), {"amount": "NaN", "card": "**********", "rest": None}),
    "a model with an object": (
        {"a": Payment(amount=1, rest=Opaque())},
        {"a": {"amount": 1, "card": "**********", "rest": {"$unserialisable": "Opaque"}}},
    ),
    "an object beside others": ({"a": 1, "o": Opaque()}, {"a": 1, "o": {"$unserialisable": "Opaque"}}),
    "a hostile object": ([1, Hostile()], [1, {"$unserialisable": "Hostile"}]),
    "an iterator": (map(str, (1, 2)), ["1", "2"]),
    "an iterator without end": ({"n": count()}, {"n": {"$unserialisable": "count"}}),
    "an iterator that raises": ({"n": (1 // n for n in (1, 0))}, {"n": {"$unserialisable": "generator"}}),
}


@pytest.mark.parametrize(("value", "form"), FORMS.values(), ids=FORMS.keys())
def test_what_json_lacks_has_a_readable_form_of_its_own(value: Any, form: Any) -> None:
    kept, data = recorded(value)
    assert (kept, data) == (form, canonical(form))
    assert type(kept) is type(form)


@given(VALUES)
def test_whatever_it_is_every_service_reads_back_what_was_recorded(value: Any) -> None:
    _, data = recorded(value)
    assert canonical(parse(data)) == data


def test_a_set_has_one_order_in_every_process() -> None:
    script = "from aetheris.sdk.results import recorded; print(recorded({'a', 'b', 'c', 'd', 'e'})[1])"
    reported = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=60
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(reported) == 1


def test_what_nests_too_deep_or_in_itself_is_kept_whole_or_named() -> None:
    assert recorded(nested(64))[0] == nested(64)
    assert recorded({"b": b"x", "n": nested(63)})[0] == {"b": {"$base64": "eA=="}, "n": nested(63)}
    for deep in (nested(65), [nested(64, BIG)], {"d": dataclasses.make_dataclass("D", ["n"])(nested(64))}):
        assert recorded(deep)[0].keys() == {"$raw"}
    circle: list[Any] = []
    circle.append(circle)
    assert recorded(circle)[0] == {"$unserialisable": "list"}
    assert recorded(nested(100_000))[0] == {"$unserialisable": "list"}


def test_an_iterator_is_taken_as_far_as_it_is_said() -> None:
    assert recorded(iter(range(MOST_YIELDED)))[0] == list(range(MOST_YIELDED))
    assert recorded(iter(range(MOST_YIELDED + 1)))[0] == {"$unserialisable": "range_iterator"}


def test_a_secret_in_bytes_is_found() -> None:
    redactor = Redactor({"k@1": "hunter2-hunter2"})
    kept = recorded({"a": [b"\xff hunter2-hunter2"]})[0]
    assert redactor.value(kept) == recorded({"a": [b"\xff [secret k@1]"]})[0]


async def _rows() -> AsyncIterator[int]:
    yield 1


def _yields() -> Iterator[int]:
    yield 1


def _object() -> Opaque: ...  # type: ignore[reportReturnType]
def _of_objects() -> dict[str, Opaque]: ...  # type: ignore[reportReturnType]
def _or_object() -> Result | Opaque: ...  # type: ignore[reportReturnType]
def _awaited() -> Awaitable[Opaque]: ...  # type: ignore[reportReturnType]
def _function() -> Callable[[], int]: ...  # type: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_object, "returns Opaque, which JSON can't say"),
        (_of_objects, "which JSON can't say: return a dict, a dataclass or a pydantic model"),
        (_or_object, "returns Opaque"),
        (_awaited, "returns Opaque"),
        (_function, "returns Callable"),
        (_yields, "yields, and a call of it would do nothing"),
        (_rows, "yields, and a call of it would do nothing"),
    ],
)
def test_what_no_record_can_hold_is_refused_where_it_is_declared(function: Any, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        tool(effect_class="idempotent")(function)


def _model() -> Payment: ...  # type: ignore[reportReturnType]
def _rows_of() -> list[DataRow] | None: ...
def _bytes() -> Awaitable[bytes]: ...  # type: ignore[reportReturnType]
def _anything() -> object: ...
def _nothing(): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize("function", [_rows_of, _bytes, _anything, _nothing])
def test_what_has_a_form_is_declared(function: Any) -> None:
    assert tool(effect_class="idempotent")(function)


@tool(effect_class="idempotent")
def strange() -> Any:
    """Acts, and returns what JSON lacks."""
    return {"id": BIG, "ratio": math.nan, "data": b"\xff", "rows": {("a", 1): 2}, "handle": Opaque()}


@tool(effect_class="pure")
def take(id: str, ratio: str, data: str, handle: dict[str, str]) -> list[Any]:  # noqa: A002
    """Says what it was given."""
    return [id, ratio, data, handle]


def test_every_form_is_reached_by_a_reference_and_the_call_counts_once() -> None:
    places = {"id": "a#/id", "ratio": "a#/ratio", "data": "a#/data/$base64", "handle": "a#/handle"}
    args = {name: {"$ref": place} for name, place in places.items()}
    system = MemorySystem(strange, take)
    job = system.run({"nodes": [{"id": "a", "tool": "strange"}, {"id": "b", "tool": "take", "args": args}]})
    assert (job.status, job.calls("strange")) == ("completed", 1)
    assert job.result("b") == [str(BIG), "NaN", "/w==", {"$unserialisable": "Opaque"}]
