"""What a JSON Schema plainly takes: most tools' schemas say little, and the validator costs ten times as much."""

from collections.abc import Callable, Mapping
from typing import Any

from aetheris.protocol.base.references import REF, SECRET

Schema = Mapping[str, Any]


def takes(schema: Any, value: Any) -> bool:
    """Whether a schema takes a JSON value, as far as that is plain; a reference or a secret is taken.

    False says nothing: the validator is to be asked.
    """
    if type(value) is dict and len(value) == 1 and (isinstance(value.get(REF), str) or SECRET in value):
        return True
    if type(schema) is not dict:
        return False
    for keyword, rule in schema.items():
        holds = _RULES.get(keyword)
        if holds is None or not holds(rule, value, schema):
            return False
    return True


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}


def _type(rule: Any, value: Any, _schema: Schema) -> bool:
    return isinstance(rule, str) and type(value) in _TYPES.get(rule, ())


def _properties(rule: Any, value: Any, _schema: Schema) -> bool:
    return type(value) is dict and all(takes(rule[name], value[name]) for name in value if name in rule)


def _additional(rule: Any, value: Any, schema: Schema) -> bool:
    if rule is False:
        return type(value) is dict and value.keys() <= schema.get("properties", {}).keys()
    return rule is True


def _required(rule: Any, value: Any, _schema: Schema) -> bool:
    return type(value) is dict and all(name in value for name in rule)


def _items(rule: Any, value: Any, _schema: Schema) -> bool:
    return type(value) is list and all(takes(rule, item) for item in value)


def _any_of(rule: Any, value: Any, _schema: Schema) -> bool:
    return any(takes(choice, value) for choice in rule)


def _says_nothing(_rule: Any, _value: Any, _schema: Schema) -> bool:
    return True


_RULES: Mapping[str, Callable[[Any, Any, Schema], bool]] = {
    "type": _type,
    "properties": _properties,
    "additionalProperties": _additional,
    "required": _required,
    "items": _items,
    "anyOf": _any_of,
    **dict.fromkeys(("title", "description", "default"), _says_nothing),
}
"""Keyword → whether a value plainly keeps it: (the keyword's rule, the value, its schema)."""
