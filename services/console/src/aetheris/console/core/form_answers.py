"""What somebody filled in, as it is sent: typed by the form's fields, numbers by their own text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aetheris.console.core.exact_json import NotExact, NumberText, exactly_written

PREFIX = "field."
"""Of the names that inputs of a form's fields have."""

_CHOICES = frozenset({"multiselect", "checkbox"})
_ONE_OF = frozenset({"select", "radio"})
_NUMBERS = frozenset({"number", "slider"})
_LINES = 80
"""Characters from which on a text gets more than one line."""


class FieldRefused(ValueError):
    """What was filled in can't be sent: the field's name, and the rule."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


@dataclass(frozen=True, slots=True, kw_only=True)
class FormInput:
    """One field as an input of a page. `kind`: text, lines, number, boolean, one, several or date."""

    name: str
    label: str
    kind: str
    required: bool
    text: str
    """What stands there now."""
    hint: str
    options: Sequence[tuple[str, str, bool]] = ()
    """(value of the input, label, whether it is chosen)."""


def inputs_of(
    fields: Sequence[Mapping[str, Any]], filled: Mapping[str, Sequence[str]] | None = None
) -> list[FormInput]:
    """The inputs of a form's fields: as they are now, or as somebody has filled them in before."""
    return [_input(field, filled) for field in fields]


def answers_of(
    fields: Sequence[Mapping[str, Any]], filled: Mapping[str, Sequence[str]], *, changes: bool
) -> dict[str, Any]:
    """What was filled in, to be sent by `exactly_written`; with `changes` only what is other than it was.

    Whether a field takes its answer is for the gateway to say.

    Raises:
        FieldRefused: a number is none.
    """
    found: dict[str, Any] = {}
    for field in fields:
        given = filled.get(PREFIX + str(field["name"]), [])
        value = _value(field, given)
        if value is None or (changes and _same(value, field.get("default"))):
            continue
        found[str(field["name"])] = value
    return found


def _input(field: Mapping[str, Any], filled: Mapping[str, Sequence[str]] | None) -> FormInput:
    name, now = str(field["name"]), field.get("default")
    given = filled.get(PREFIX + name, []) if filled is not None else None
    text = (given[0] if given else "") if given is not None else _text(now)
    return FormInput(
        name=name,
        label=str(field.get("label") or name),
        kind=_kind(field, text),
        required=bool(field.get("required")),
        text=text,
        hint=_hint(field),
        options=_options(field, now, given),
    )


def _kind(field: Mapping[str, Any], text: str) -> str:
    kind = str(field.get("type"))
    if kind in _NUMBERS:
        return "number"
    if kind in _CHOICES and field.get("options"):
        return "several"
    if kind in _ONE_OF:
        return "one"
    if kind in ("boolean", "checkbox"):
        return "boolean"
    if kind == "date":
        return "date"
    return "lines" if kind == "textarea" or len(text) > _LINES or "\n" in text or "\r" in text else "text"


def _hint(field: Mapping[str, Any]) -> str:
    bounds = [f"{word} {field[name]}" for name, word in (("min", "from"), ("max", "to")) if field.get(name) is not None]
    if field.get("type") == "datetime":
        bounds.append("with its offset, as in 2030-12-31T12:00:00Z")
    return ", ".join(bounds) or str(field.get("placeholder") or "")


def _options(field: Mapping[str, Any], now: Any, given: Sequence[str] | None) -> list[tuple[str, str, bool]]:
    """By their place in the form: what a browser sends back is no value of ours."""
    chosen: Any = now if isinstance(now, list) else [now]
    return [
        (str(place), str(one["label"]), str(place) in given if given is not None else one["value"] in chosen)
        for place, one in enumerate(field.get("options") or ())
    ]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, str) else exactly_written(value)


def _value(field: Mapping[str, Any], given: Sequence[str]) -> Any:
    kind = _kind(field, "")
    options: Sequence[Mapping[str, Any]] = field.get("options") or ()
    if kind == "several":
        return [_chosen(field, options, one) for one in given if one]
    text = given[0] if given else ""
    if kind == "one":
        return _chosen(field, options, text) if text else None
    if kind == "boolean":
        return {"true": True, "false": False}.get(text)
    if kind == "number":
        return _number(field, text.strip()) if text.strip() else None
    return _as_before(text, field.get("default")) or (None if field.get("default") in (None, "") else "")


def _chosen(field: Mapping[str, Any], options: Sequence[Mapping[str, Any]], place: str) -> Any:
    if not place.isascii() or not place.isdecimal() or int(place) >= len(options):
        raise FieldRefused(str(field["name"]), "must be one of its options")
    return options[int(place)]["value"]


def _number(field: Mapping[str, Any], text: str) -> NumberText:
    try:
        return NumberText.of(text)
    except NotExact as error:
        raise FieldRefused(str(field["name"]), str(error)) from None


def _as_before(text: str, before: Any) -> str:
    """Browsers end every line with two characters: so it is only where it was so before."""
    return text if isinstance(before, str) and "\r\n" in before else text.replace("\r\n", "\n")


def _same(value: Any, before: Any) -> bool:
    if isinstance(value, list) and before is None:
        return not value
    return type(value) is type(before) and value == before
