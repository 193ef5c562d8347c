"""What somebody filled in is sent typed, exactly, and only where it is other than it was."""

from typing import Any

import pytest

from aetheris.console.core.exact_json import NumberText, exactly_written
from aetheris.console.core.form_answers import FieldRefused, answers_of, inputs_of

FIELDS: list[dict[str, Any]] = [
    {"name": "amount", "type": "number", "label": "Amount", "default": NumberText("12.50")},
    {"name": "to", "type": "text", "label": "To", "default": "acc-7"},
    {"name": "note", "type": "textarea", "label": "Note", "default": "a\nb"},
    {"name": "way", "type": "select", "label": "Way", "default": NumberText("1"),
     "options": [{"value": NumberText("1"), "label": "one"}, {"value": "1", "label": "text"}]},
    {"name": "tags", "type": "multiselect", "label": "Tags", "default": ["x"],
     "options": [{"value": "x", "label": "X"}, {"value": "y", "label": "Y"}]},
    {"name": "fast", "type": "boolean", "label": "Fast", "default": False},
]  # fmt: skip


def as_browsers_send() -> dict[str, list[str]]:
    """Every field as it stands, with the ends of lines that forms have."""
    return {
        "field.amount": ["12.50"],
        "field.to": ["acc-7"],
        "field.note": ["a\r\nb"],
        "field.way": ["0"],
        "field.tags": ["0"],
        "field.fast": ["false"],
    }


def test_what_was_left_as_it_was_is_no_change() -> None:
    assert answers_of(FIELDS, as_browsers_send(), changes=True) == {}


@pytest.mark.parametrize(
    ("name", "texts", "sent"),
    [
        ("amount", ["9007199254740993"], '{"amount": 9007199254740993}'),
        ("amount", [" 12.5 "], '{"amount": 12.5}'),
        ("to", ["acc\u202e"], '{"to": "acc\u202e"}'),
        ("to", [""], '{"to": ""}'),
        ("note", ["a\r\nc"], '{"note": "a\\nc"}'),
        ("way", ["1"], '{"way": "1"}'),
        ("tags", ["0", "1"], '{"tags": ["x", "y"]}'),
        ("tags", [], '{"tags": []}'),
        ("fast", ["true"], '{"fast": true}'),
    ],
)
def test_a_change_is_sent_as_it_was_typed(name: str, texts: list[str], sent: str) -> None:
    filled = as_browsers_send() | {f"field.{name}": texts}
    assert exactly_written(answers_of(FIELDS, filled, changes=True)) == sent


@pytest.mark.parametrize(
    ("name", "text"), [("amount", "1,5"), ("amount", "NaN"), ("way", "2"), ("way", "-1"), ("tags", "x")]
)
def test_what_no_field_takes_is_refused_by_its_name(name: str, text: str) -> None:
    with pytest.raises(FieldRefused) as refused:
        answers_of(FIELDS, as_browsers_send() | {f"field.{name}": [text]}, changes=True)
    assert refused.value.field == name


def test_a_form_s_answers_are_all_sent_and_fields_of_others_are_not() -> None:
    found = answers_of(FIELDS, as_browsers_send() | {"field.evil": ["1"], "action": ["approve"]}, changes=False)
    assert found.keys() == {"amount", "to", "note", "way", "tags", "fast"}
    assert exactly_written(found["amount"]) == "12.50"


def test_inputs_stand_as_they_are_or_as_they_were_filled_in() -> None:
    now = {one.name: one for one in inputs_of(FIELDS)}
    assert [now[name].text for name in ("amount", "to", "note", "fast")] == ["12.50", "acc-7", "a\nb", "false"]
    assert [now[name].kind for name in now] == ["number", "text", "lines", "one", "several", "boolean"]
    assert [chosen for _, _, chosen in now["way"].options] == [True, False]
    again = {one.name: one for one in inputs_of(FIELDS, as_browsers_send() | {"field.amount": ["x"]})}
    assert again["amount"].text == "x"
    assert [chosen for _, _, chosen in again["tags"].options] == [True, False]
