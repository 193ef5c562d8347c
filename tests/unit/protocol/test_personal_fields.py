"""Which arguments are a person's: marks in schemas, and the values that they find."""

from typing import Annotated, Any

import pytest

from aetheris.protocol.planning.personal_fields import (
    PersonalField,
    PersonalRefused,
    PersonalValue,
    personal_fields,
    personal_values,
)
from aetheris.sdk import Personal, tool
from aetheris.sdk.schema import DeclarationError

MARKED = {"type": "string", "x-personal": "/who"}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"who": {"type": "string"}, **properties}}


def test_marks_are_found_at_arguments_and_their_members() -> None:
    deep = {"type": "object", "properties": {"a/b": MARKED}}
    found = personal_fields(schema(mail=MARKED, deep=deep))
    assert set(found) == {PersonalField("/mail", "/who"), PersonalField("/deep/a~1b", "/who")}
    assert personal_fields(schema(mail={"type": "string"})) == ()


@pytest.mark.parametrize(
    "part",
    [
        schema(mail={"type": "array", "items": MARKED}),
        schema(mail={"anyOf": [MARKED, {"type": "null"}]}),
        schema(mail={"$ref": "#/$defs/M", "x-personal": "/who"}),
        {**schema(mail={"$ref": "#/$defs/M"}), "$defs": {"M": MARKED}},
        {**schema(), "additionalProperties": MARKED},
        {**schema(), "patternProperties": {"m": MARKED}},
        {**schema(), "x-personal": "/who"},
        {**schema(), "allOf": [schema(mail=MARKED)]},
        schema(mail={**MARKED, "default": "ann"}),
        schema(mail={**MARKED, "enum": ["ann"]}),
        schema(mail={**MARKED, "x-personal": ""}),
        schema(mail={**MARKED, "x-personal": ["/who"]}),
        schema(mail={**MARKED, "x-personal": True}),
        schema(mail={**MARKED, "x-personal": "who"}),
        schema(mail={**MARKED, "x-personal": {"name": ""}}),
        schema(mail={**MARKED, "x-personal": {"name": "a\0b"}}),
        schema(mail={**MARKED, "x-personal": {"name": "ann", "who": "/who"}}),
        schema(mail={"type": "object", "x-personal": "/who", "properties": {"a": MARKED}}),
        schema(**{"x-personal": {"type": "string"}}),
        schema(person={"type": "object", "default": {"mail": "ann"}, "properties": {"mail": MARKED}}),
    ],
)
def test_a_mark_that_is_not_served_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(PersonalRefused):
        personal_fields(part)


def test_values_with_their_subjects() -> None:
    marked = schema(mail=MARKED, phone={"type": "string", "x-personal": {"name": "/all"}})
    found = list(personal_values(marked, {"who": "ann", "mail": "a@x", "phone": "1"}))
    assert set(map(str, found)) == set(
        map(str, [PersonalValue("/mail", "ann", "a@x"), PersonalValue("/phone", "/all", "1")])
    )
    assert list(personal_values(marked, {"who": "ann"})) == []
    assert next(personal_values(marked, {"who": 17, "mail": "a@x"})).subject == "17"


@pytest.mark.parametrize(
    "args",
    [
        {"mail": "a@x"},
        {"who": "", "mail": "a@x"},
        {"who": "x" * 513, "mail": "a@x"},
        {"who": True, "mail": "a@x"},
        {"who": ["ann"], "mail": "a@x"},
        {"who": {"$ref": "n#"}, "mail": "a@x"},
        {"who": "ann", "mail": {"$ref": "n#/mail"}},
        {"who": "ann", "mail": {"a": [{"$ref": "n#/mail"}]}},
        {"who": "ann", "mail": {"$secret": "a@1"}},
        {"who": "ann", "mail": {"$hidden": {"c": "", "d": "", "k": ""}}},
        {"who": "ann", "mail": [{"$hidden": 1}]},
    ],
)
def test_a_value_that_cant_be_hidden_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(PersonalRefused):
        list(personal_values(schema(mail=MARKED), args))


def test_what_a_reference_stands_for_above_a_mark_is_refused() -> None:
    deep = schema(deep={"type": "object", "properties": {"mail": MARKED}})
    with pytest.raises(PersonalRefused, match="a reference stands for it"):
        list(personal_values(deep, {"who": "ann", "deep": {"$ref": "n#"}}))


def test_a_tool_marks_its_arguments() -> None:
    @tool(effect_class="pure")
    def greets(who: str, mail: Annotated[str, Personal("/who")]) -> None: ...

    assert personal_fields(greets.schema) == (PersonalField("/mail", "/who"),)

    @tool(effect_class="pure")
    def calls(desk: Annotated[str, Personal(name="desk")]) -> None: ...

    assert personal_fields(calls.schema) == (PersonalField("/desk", "desk", named=True),)

    with pytest.raises(DeclarationError, match="the same in all calls"):

        @tool(effect_class="pure")
        def forgets(who: str, mail: Annotated[str, Personal("who")]) -> None: ...

    with pytest.raises(DeclarationError, match="one of them"):
        Personal("/who", name="ann")
    with pytest.raises(DeclarationError, match="x-personal isn't served"):

        @tool(effect_class="pure")
        def lists(who: str, mails: list[Annotated[str, Personal("/who")]]) -> None: ...
