"""Numbers are shown, and sent, as they came."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aetheris.console.core.exact_json import NotExact, NumberText, exactly_read, exactly_written, is_plain_text

NUMBERS = ["9007199254740993", "1.10", "0.1", "-0", "1e21", "1E+2", "123456789012345678901234567890.000000001"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_keeps_its_text(number: str) -> None:
    text = f'{{"a": [{number}, {{"b": {number}}}]}}'
    assert exactly_written(exactly_read(text)) == text
    assert str(NumberText.of(number)) == number
    assert NumberText.of(number) != number, "a number is no text"


@pytest.mark.parametrize("text", ["01", "+1", ".5", "1.", "0x10", "1e", "NaN", "Infinity", "1 ", "", "١"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(NotExact):
        NumberText.of(text)


@pytest.mark.parametrize("text", ["{", "NaN", '{"a": Infinity}', "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(NotExact):
        exactly_read(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from([None, 2]),
)
def test_it_is_the_same_json(value: object, indent: int | None) -> None:
    text = json.dumps(value)
    assert json.loads(exactly_written(exactly_read(text), indent=indent)) == json.loads(text)


def test_it_is_written_as_python_s_own_writer_does() -> None:
    value = {"a": [1, {"b": []}, "x"], "c": {}, "d": None}
    assert exactly_written(exactly_read(json.dumps(value)), indent=2) == json.dumps(value, indent=2)


@pytest.mark.parametrize("text", ["5", " 5 ", "1e3", "true", "null", '"a"', "[]", '{"a": 1}'])
def test_a_text_that_reads_as_another_value_is_not_plain(text: str) -> None:
    assert not is_plain_text(text)


def test_a_number_is_no_plain_text() -> None:
    assert not is_plain_text(NumberText.of("5"))


@pytest.mark.parametrize("text", ["", "Rent", "5 days", "0x5", "05", "five\nlines", "[" * 100_000, "NaN"])
def test_other_texts_are(text: str) -> None:
    assert is_plain_text(text)
