"""Services, proofs and the bundle's script write one canonical JSON, which is that of RFC 8785."""

import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aetheris.proofs.canonical import canonical as of_proofs
from aetheris.protocol.base.canonical import canonical, is_longer
from tests.testkit import standalone

FLOATS = (
    st.floats()
    | st.integers().map(lambda bits: struct.unpack("<d", (bits % 2**64).to_bytes(8, "little"))[0])
    | st.integers(-(10**17), 10**17).map(float)
    | st.builds(lambda whole, places: whole / 10**places, st.integers(-(10**9), 10**9), st.integers(0, 22))
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**54), 2**54) | FLOATS | st.text()
KEYS = st.text() | st.sampled_from(["a", "b", "ä", "\U0001f600", "\ufb33"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=12)


def _rfc(value: Any) -> bytes | None:
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        return None


def _or_none(written: Any, value: Any) -> bytes | None:
    try:
        return written(value)
    except ValueError:
        return None


@settings(max_examples=400, deadline=None)
@given(VALUES)
@example([0.0, -0.0, 1e-4, 9.9e-5, 1e15, 1e15 - 0.5, 1e16, 30.0, 0.2, 5e-324, 2.0**53, 1e21, 1e22])
@example({"timeout_s": 30.0, "ä": 30.0})
@example({"a": "\ud800", "b": 1.5})
@example([1.5, 2**53])
@example({"b": 1, "a": [{"d": None, "c": "\x7f\x1f\u2028"}], "B": 2})
def test_all_write_what_rfc_8785_says(value: Any) -> None:
    said = _rfc(value)
    assert _or_none(canonical, value) == said
    assert _or_none(of_proofs, value) == said
    assert _or_none(lambda one: standalone.verify.canonical(one).encode(), value) == said


@settings(max_examples=100, deadline=None)
@given(st.lists(FLOATS, min_size=50, max_size=200))
def test_floats_are_written_alike(values: list[float]) -> None:
    for value in values:
        assert _or_none(canonical, value) == _or_none(of_proofs, value) == _rfc(value)


@pytest.mark.parametrize("value", [True, False, None, 1, -1, "", [], {}])
def test_a_whole_float_is_an_integer_and_nothing_else_is(value: Any) -> None:
    assert canonical([value, 1.0]) == rfc8785.dumps([value, 1])


@settings(max_examples=400, deadline=None)
@given(VALUES, st.integers(-2, 2))
@example([1e20] * 50, 0)
@example([1e20] * 50, -1)
@example([-1e20] * 50, -1)
@example(["\x1f\x00\u2028", 123e-7, 1e-6], -1)
def test_what_is_longer_is_told_to_the_byte(value: Any, beside: int) -> None:
    written = _rfc(value)
    if written is not None:
        assert is_longer(value, len(written) + beside) is (beside < 0)
