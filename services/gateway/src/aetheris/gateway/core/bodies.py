"""The bodies of requests, parsed strictly: refusals name the field."""

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.protocol import api
from aetheris.protocol.api_models import RequestModel
from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import InvalidArgs, canonical, parse
from aetheris.protocol.base.hidden_values import MARK, hidden_at
from aetheris.protocol.base.nesting import nests_deeper
from aetheris.protocol.base.references import HIDDEN
from aetheris.protocol.plan.graph import MAX_PLAN_BYTES

MAX_BODY_BYTES = 512 * 1024
MAX_PAYLOAD_BYTES = 64 * 1024
"""Of a signal: it lies in the log twice, and in the arguments of whoever refers to it."""

Loc = Iterable[int | str]
Kind = TypeVar("Kind", bound=RequestModel)


def read(kind: type[Kind], raw: bytes) -> Kind:
    """A request's body; no body is an empty object.

    Raises:
        BadRequest: naming the field.
    """
    return validated(kind, parsed(raw)[0])


def read_signal(raw: bytes) -> api.SignalBody:
    """The body of a signal, whose payload is small; raises BadRequest."""
    wanted = read(api.SignalBody, raw)
    if len(canonical(wanted.payload)) > MAX_PAYLOAD_BYTES:
        raise BadRequestProblem("bad_request", "payload", f"larger than {MAX_PAYLOAD_BYTES // 1024} KiB")
    return wanted


def parsed(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """A request's JSON object, parsed strictly, and its canonical form.

    Raises:
        BadRequest: naming the field.
    """
    try:
        value: Any = parse(raw) if raw else {}
        canonised = canonical(value)
    except InvalidArgs as error:
        raise BadRequestProblem(error.code, _dotted(error.field), error.rule) from None
    hidden = hidden_at(value) if MARK in canonised else None
    if hidden is not None:
        raise BadRequestProblem("hidden_in_input", _dotted(hidden), f"{HIDDEN} is what the gateway alone writes")
    if nests_deeper(canonised, recordable.MAX_DEPTH):
        raise BadRequestProblem(InvalidArgs.code, "body", f"nested deeper than {recordable.MAX_DEPTH} levels")
    if not isinstance(value, dict):
        raise BadRequestProblem("bad_request", "body", "must be a JSON object")
    return cast("dict[str, Any]", value), canonised


def validated(kind: type[Kind], body: dict[str, Any]) -> Kind:
    """A body of that kind; raises BadRequest."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise invalid(error) from None


def invalid(error: ValidationError, within: str = "", code: str = "bad_request") -> BadRequestProblem:
    """The refusal of what a model refuses, naming the first field."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return BadRequestProblem(code, field_path(first["loc"], within) or "body", first["msg"])


def plan_too_large(limit: int = MAX_PLAN_BYTES) -> BadRequestProblem:
    """The refusal of a plan, or of a body that no plan needs; `limit` in bytes."""
    return BadRequestProblem("invalid_plan", "plan", f"larger than {limit // 1024} KiB")


def field_path(loc: Loc, within: str = "") -> str:
    """("nodes", 0, "args") as `nodes[0].args`."""
    path = within
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _dotted(pointer: str) -> str:
    """A JSON Pointer as a field path."""
    parts = pointer.split("/")[1:]
    return field_path(int(part) if part.isdecimal() else part for part in parts) or "body"
