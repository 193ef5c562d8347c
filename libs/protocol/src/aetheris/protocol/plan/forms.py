"""Forms that humans answer: typed fields, and answers checked field by field (docs/approvals.md)."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from aetheris.protocol.base.hidden_values import LONGEST_SUBJECT, InvalidHidden, hidden_places
from aetheris.protocol.base.references import pointer_part

Schema = Mapping[str, Any]
FieldType = Literal[
    "text",
    "textarea",
    "select",
    "multiselect",
    "radio",
    "checkbox",
    "number",
    "slider",
    "date",
    "datetime",
    "boolean",
]

MAX_FIELDS = 100
MAX_TEXT = 10_000
"""Characters of one answer."""
_LONG_TEXT = 200
"""From this maxLength on, a text gets more than one line."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


NamePattern = Annotated[str, StringConstraints(max_length=200)]
"""As in file names; a long one takes seconds to be understood."""


class Option(_Form):
    """One of a field's choices."""

    value: str | int | float | bool
    label: str


class NamedPerson(_Form):
    """A person by its name, where that is known when the form is planned."""

    name: str = Field(min_length=1, max_length=LONGEST_SUBJECT, pattern=r"^[^\x00]*$")


PersonPointer = Annotated[str, StringConstraints(pattern=r"^/", max_length=LONGEST_SUBJECT)]


class FormField(_Form):
    """One question; `default` is what stands if nothing is said.

    `personal`: its answer is a person's, and is recorded hidden (docs/hidden-values.md): a JSON Pointer to the answer,
    or to the argument of the node, that names the person; or its name.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[^\s.]{1,64}$")]
    type: FieldType
    label: str = Field(max_length=200)
    required: bool = False
    placeholder: str | None = Field(default=None, max_length=200)
    default: Any = None
    options: tuple[Option, ...] = ()
    min: float | None = None
    max: float | None = None
    step: float | None = Field(default=None, gt=0)
    personal: PersonPointer | NamedPerson | None = None

    @model_validator(mode="after")
    def _chooses(self) -> "FormField":
        if self.personal is not None and (self.options or self.default is not None):
            raise ValueError("what is personal has no options and no default: they would say it")
        if self.type in ("select", "multiselect", "radio") and not self.options:
            raise ValueError(f"a {self.type} has options")
        return self


class FormSpec(_Form):
    """What a plan asks a human: the fields of its form have different names."""

    title: str = Field(min_length=1, max_length=200)
    description: str = Field(default="", max_length=MAX_TEXT)
    fields: tuple[FormField, ...] = Field(default=(), max_length=MAX_FIELDS)
    approvers: tuple[NamePattern, ...] | None = Field(
        default=None, max_length=MAX_FIELDS, description="Who may answer; unset: anybody of the tenant"
    )

    @model_validator(mode="after")
    def _names_differ(self) -> "FormSpec":
        names = [field.name for field in self.fields]
        if len(set(names)) < len(names):
            raise ValueError("two fields have the same name")
        return self


def personal_places(form: FormSpec) -> frozenset[str]:
    """The places of the answers that are hidden, as JSON Pointers into what was filled in."""
    return frozenset(pointer_part(field.name) for field in form.fields if field.personal is not None)


class AnswerRefused(ValueError):
    """An answer that its field does not take."""

    code = "invalid_answer"

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


def answers(
    fields: Sequence[FormField], data: Mapping[str, Any], *, complete: bool = True, hidden: bool = False
) -> dict[str, Any]:
    """The answers, checked; with `complete`, defaults fill in what was not said, and what is required must be there.

    With `hidden` they are as they are recorded: those to personal fields are hidden, and were checked before.

    Raises:
        AnswerRefused: naming the field, never the value.
    """
    known = {field.name: field for field in fields}
    for name in data:
        if name not in known:
            raise AnswerRefused(name, "the form has no such field")
    found: dict[str, Any] = {}
    for name, field in known.items():
        value = data.get(name, field.default if complete else None)
        if value is not None:
            found[name] = _checked(field, value) if field.personal is None or not hidden else _hidden(field, value)
        elif field.required and (complete or name in data):
            raise AnswerRefused(name, "required")
    return found


def fields_of(
    schema: Schema, args: Mapping[str, Any], personal: Mapping[str, str | NamedPerson] | None = None
) -> tuple[FormField, ...]:
    """A field for each argument that a form can show, with what it is now as its default.

    `personal`: the arguments that are a person's, and whose: what one is now is hidden, and is not said.

    Objects, lists of anything but choices, references to secrets, and texts that are longer than an answer may be
    have none: they can't be edited.
    """
    properties = cast("Mapping[str, Schema]", schema.get("properties", {}))
    required = cast("Sequence[str]", schema.get("required", ()))
    whose = personal or {}
    found: list[FormField] = []
    for name, inner in properties.items():
        now = args.get(name) if name not in whose else None
        if isinstance(now, dict) or len(found) == MAX_FIELDS or (isinstance(now, str) and len(now) > MAX_TEXT):
            continue
        shape = _shape(inner)
        if name in whose and shape is not None:
            shape = None if shape.get("options") else shape | {"personal": whose[name]}
        if shape is not None and not any(mark in name for mark in " .\t\n") and 0 < len(name) <= 64:
            label = str(inner.get("title") or inner.get("description") or name)[:200]
            found.append(
                FormField.model_validate(
                    {"name": name, "label": label, "required": name in required and name not in whose, "default": now}
                    | shape
                )
            )
    return tuple(found)


def _shape(schema: Schema) -> dict[str, Any] | None:
    """Type, options and bounds of a schema's field; None where a form has nothing for it."""
    if "enum" in schema:
        return {"type": "select", "options": _options(schema["enum"])}
    kind = schema.get("type")
    if kind == "boolean":
        return {"type": "boolean"}
    if kind in ("integer", "number"):
        bounds = {"min": schema.get("minimum"), "max": schema.get("maximum")}
        return {"type": "number", "step": 1 if kind == "integer" else None} | bounds
    if kind == "array":
        items = schema.get("items")
        choices = cast("Schema", items).get("enum") if isinstance(items, dict) else None
        return {"type": "multiselect", "options": _options(choices)} if choices else None
    return {"type": _text_type(schema)} if kind == "string" else None


def _text_type(schema: Schema) -> FieldType:
    match schema.get("format"):
        case "date":
            return "date"
        case "date-time":
            return "datetime"
        case _:
            return "textarea" if schema.get("maxLength", 0) > _LONG_TEXT else "text"


def _options(values: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"value": value, "label": str(value)} for value in values if value is not None]


def _hidden(field: FormField, value: Any) -> Any:
    try:
        if [one.at for one in hidden_places(value)] == [""]:
            return value
    except InvalidHidden:
        pass
    raise AnswerRefused(field.name, "is personal, and not hidden")


def _checked(field: FormField, value: Any) -> Any:
    return _CHECKS[field.type](field, value)


def _text(field: FormField, value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise AnswerRefused(field.name, f"must be a text of at most {MAX_TEXT} characters")
    if field.required and not value.strip():
        raise AnswerRefused(field.name, "required")
    return value


def _choice(field: FormField, value: Any) -> Any:
    for option in field.options:
        if option.value == value and isinstance(option.value, bool) == isinstance(value, bool):
            return value
    raise AnswerRefused(field.name, "must be one of its options")


def _choices(field: FormField, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise AnswerRefused(field.name, "must be a list of its options")
    chosen = cast("list[Any]", value)
    if len(chosen) > len(field.options):
        raise AnswerRefused(field.name, "has each of its options at most once")
    if field.required and not chosen:
        raise AnswerRefused(field.name, "required")
    return [_choice(field, one) for one in chosen]


def _checkbox(field: FormField, value: Any) -> Any:
    return _choices(field, value) if field.options else _boolean(field, value)


def _number(field: FormField, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise AnswerRefused(field.name, "must be a number")
    if field.min is not None and value < field.min:
        raise AnswerRefused(field.name, f"must be at least {field.min:g}")
    if field.max is not None and value > field.max:
        raise AnswerRefused(field.name, f"must be at most {field.max:g}")
    steps = (value - (field.min or 0)) / field.step if field.step is not None else 0
    if abs(steps - round(steps)) > 1e-9 * max(1.0, abs(steps)):
        raise AnswerRefused(field.name, f"must be in steps of {field.step:g}")
    return value


def _date(field: FormField, value: Any) -> str:
    try:
        if isinstance(value, str) and date.fromisoformat(value):
            return value
    except ValueError:
        pass
    raise AnswerRefused(field.name, "must be a date, as in 2030-12-31")


def _datetime(field: FormField, value: Any) -> str:
    try:
        if isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None:
            return value
    except ValueError:
        pass
    raise AnswerRefused(field.name, "must be a date and time with its offset, as in 2030-12-31T12:00:00Z")


def _boolean(field: FormField, value: Any) -> bool:
    if not isinstance(value, bool):
        raise AnswerRefused(field.name, "must be true or false")
    return value


_CHECKS: Mapping[FieldType, Callable[[FormField, Any], Any]] = {
    "text": _text,
    "textarea": _text,
    "select": _choice,
    "radio": _choice,
    "multiselect": _choices,
    "checkbox": _checkbox,
    "number": _number,
    "slider": _number,
    "date": _date,
    "datetime": _datetime,
    "boolean": _boolean,
}
