"""A tool's arguments: a model and a JSON Schema, both made from the signature (docs/tools.md)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError

from aetheris.protocol.base.canonical import InvalidArgs, digest
from aetheris.protocol.planning.personal_fields import NAMED, PERSONAL
from aetheris.protocol.planning.schemas import ArgsRefused, SchemaRefused, check_args, check_schema


class DeclarationError(TypeError):
    """A tool that can't be registered as it is written; the message names the tool and the rule.

    `place` is the function's file and line, where the tool is a function.
    """

    place: tuple[str, int] | None = None


class BadArguments(ValueError):
    """Arguments that the signature doesn't take; names the places and rules, never a value."""


@dataclass(frozen=True, slots=True)
class Personal:
    """Marks an argument as a person's: `Annotated[str, Personal("/customer")]` (docs/hidden-values.md).

    `subject`: a JSON Pointer to the argument that names the person. Or `name`: the person itself, in all calls.
    """

    subject: str | None = None
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Raises DeclarationError."""
        if (self.subject is None) == (self.name is None):
            raise DeclarationError("Personal takes a JSON Pointer to who it is, or a name: one of them")

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core_schema), PERSONAL: self.subject if self.name is None else {NAMED: self.name}}


@dataclass(frozen=True)
class Signature:
    """A function's arguments as a model; `injected` says that its first parameter takes the context."""

    model: type[BaseModel]
    names: tuple[str, ...]
    injected: bool
    schema: dict[str, Any]
    schema_hash: str

    def bind(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the function, coerced to its types.

        Raises:
            BadArguments: what the signature doesn't take.
        """
        try:
            values = self.model.model_validate(dict(args))
        except ValidationError as refused:
            raise BadArguments(_rules(refused)) from None
        return {name: getattr(values, _field(place)) for place, name in enumerate(self.names)}


@dataclass(frozen=True)
class GivenSchema:
    """Arguments as somebody else's JSON Schema has them; the function is given them as they are."""

    schema: dict[str, Any]
    schema_hash: str
    injected: bool = True

    def bind(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the function.

        Raises:
            BadArguments: what the schema doesn't take.
        """
        try:
            check_args(self.schema, args)
        except ArgsRefused as refused:
            raise BadArguments(str(refused)) from None
        return dict(args)


def given_schema(schema: Mapping[str, Any], tool: str) -> GivenSchema:
    """Arguments by a JSON Schema that was found outside, such as an MCP server's.

    Raises:
        DeclarationError: it is no schema of an object, or points to another document.
    """
    try:
        check_schema(schema)
    except SchemaRefused as refused:
        raise DeclarationError(f"{tool}: {refused}") from None
    return GivenSchema(dict(schema), _schema_hash(tool, schema))


def signature_of(function: Callable[..., Any], context: type, tool: str) -> Signature:
    """The arguments of a tool's function.

    Args:
        context: the type whose first parameter is injected and no argument.

    Raises:
        DeclarationError: a parameter without a type, `*args`, a default that JSON can't say.
    """
    hints = hints_of(function, tool)
    parameters = list(inspect.signature(function).parameters.values())
    injected = bool(parameters) and hints.get(parameters[0].name) is context
    arguments = parameters[1:] if injected else parameters
    model = _model(tool, arguments, hints)
    schema = _json_schema(model, tool)
    names = tuple(argument.name for argument in arguments)
    _check_defaults(tool, model, schema)
    return Signature(model, names, injected, schema, _schema_hash(tool, schema))


def hints_of(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    """The types of a function's parameters, and of what it returns.

    Raises:
        DeclarationError: an annotation that means nothing where the function stands.
    """
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise DeclarationError(f"{tool}: an annotation can't be read: {error}; import or define it") from None


def _schema_hash(tool: str, schema: Mapping[str, Any]) -> str:
    try:
        return digest(schema)
    except InvalidArgs as refused:
        raise DeclarationError(f"{tool}: its schema has no canonical form at {refused}") from None


def _model(tool: str, arguments: list[inspect.Parameter], hints: Mapping[str, Any]) -> type[BaseModel]:
    fields = {_field(place): _definition(tool, one, hints) for place, one in enumerate(arguments)}
    make = cast("Callable[..., type[BaseModel]]", partial(create_model, "Arguments"))
    try:
        return make(__config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields)
    except PydanticUserError as refused:
        kinds = ", ".join(f"{one.name}: {getattr(hints[one.name], '__name__', hints[one.name])}" for one in arguments)
        raise DeclarationError(
            f"{tool}: an argument's type has no schema ({refused.code}) among {kinds}: take what JSON can say"
        ) from None
    except SchemaError as refused:
        raise DeclarationError(f"{tool}: an argument's rule can't be used: {' '.join(str(refused).split())}") from None


def _field(place: int) -> str:
    """Fields are numbered and carry the argument's name as alias: an argument may be called `schema` or `_id`."""
    return f"argument_{place}"


def _definition(tool: str, one: inspect.Parameter, hints: Mapping[str, Any]) -> tuple[Any, Any]:
    if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
        raise DeclarationError(f"{tool}: {one.name} must be an argument that can be given by name")
    if one.name not in hints:
        raise DeclarationError(f"{tool}: argument {one.name} has no type")
    if isinstance(one.default, FieldInfo):
        raise DeclarationError(f"{tool}: write {one.name} as Annotated[type, Field(…)], with a plain default")
    if one.default is one.empty:
        return (hints[one.name], Field(alias=one.name))
    return (hints[one.name], Field(one.default, alias=one.name))


class _Plain(GenerateJsonSchema):
    """Without titles, which say nothing; a default that JSON can't say is an error."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's own signature
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:  # noqa: ARG002 - so is this
        raise ValueError(kind)


def _json_schema(model: type[BaseModel], tool: str) -> dict[str, Any]:
    try:
        schema = model.model_json_schema(schema_generator=_Plain)
    except (PydanticUserError, ValueError) as refused:
        raise DeclarationError(f"{tool}: its arguments have no JSON Schema ({refused})") from None
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


def _check_defaults(tool: str, model: type[BaseModel], schema: Mapping[str, Any]) -> None:
    """A default outside of the schema would give one call two keys."""
    for argument in model.model_fields.values():
        name = str(argument.alias)
        if not argument.is_required() and "default" not in schema["properties"][name]:
            raise DeclarationError(f"{tool}: the default of {name} can't be said in its schema")


def _rules(refused: ValidationError) -> str:
    errors = refused.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"/{'/'.join(str(part) for part in error['loc'])}: {error['type']}" for error in errors)
