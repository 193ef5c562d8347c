"""Arguments that a look knows to be plain hold nothing that the walks through them would find."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aetheris.protocol.base.hidden_values import InvalidHidden, hidden_places, holds_hidden
from aetheris.protocol.base.references import InvalidSecret, are_plain, references, secrets

MARKS = ("$ref", "$secret", "$hidden")
NAMES = st.sampled_from([*MARKS, "a", "b", "$", ""])
SCALARS = st.sampled_from([None, True, 0, 1.5, "", "text", "node#/a", "name@1", "$ref"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2))


def found(args: dict[str, Any]) -> list[Any]:
    try:
        return [*references(args), *secrets(args), *hidden_places(args)]
    except (InvalidSecret, InvalidHidden) as wrong:
        return [wrong]


@given(args=st.dictionaries(NAMES, VALUES, max_size=3))
def test_in_plain_arguments_every_walk_finds_nothing(args: dict[str, Any]) -> None:
    assert not are_plain(args) or (found(args) == [] and not holds_hidden(args))


@pytest.mark.parametrize("mark", MARKS)
def test_what_has_a_mark_is_not_plain_wherever_it_stands(mark: str) -> None:
    for args in ({mark: "x"}, {"a": 1, mark: "x"}, {"a": {mark: "x"}}, {"a": [{mark: "x"}]}, {"a": ({mark: "x"},)}):
        assert not are_plain(args), args
    assert are_plain({})
    assert are_plain({"a": mark, "b": None, "c": 1})
