"""Canonical JSON (RFC 8785), strict: what it can't say exactly is refused, never rounded (docs/architecture.md)."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import rfc8785
from msgspec.json import Encoder

_MAX_EXACT = 2**53 - 1
_LEAST, _BEYOND = 1e-4, 1e15
"""Floats between are written without an exponent, by Python and by RFC 8785."""

JSON = dict[str, "JSON"] | list["JSON"] | str | int | float | bool | None


class InvalidArgs(ValueError):
    """Arguments that have no canonical form; `field` is a JSON Pointer to the place."""

    code = "invalid_args"

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field or '/'}: {rule}")
        self.field = field
        self.rule = rule


def parse(text: str | bytes) -> Any:
    """Parse JSON strictly.

    Raises:
        InvalidArgs: malformed, duplicate keys, NaN or infinities.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except InvalidArgs:
        raise
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidArgs("", f"not valid JSON{where}") from None


def canonical(value: Any) -> bytes:
    """The JCS bytes of a JSON value.

    Raises:
        InvalidArgs: an integer beyond ±(2^53−1), NaN, an infinity, a lone surrogate, or no JSON at all.
    """
    try:
        return _plainly(value) if _is_plain(value) else _with_floats(value)
    except RecursionError:
        raise InvalidArgs("", "nested too deep") from None
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        _find_offence(value, "")
        raise InvalidArgs("", "no canonical JSON form") from None


def is_longer(value: Any, most: int) -> bool:
    """Whether the JCS bytes of a value that has them are more than so many; of what is far from it none are made."""
    return _LONGEST * len(_anyhow(value)) > most and len(canonical(value)) > most


def digest(value: Any) -> str:
    """hex SHA-256 of the JCS bytes: each `…_hash` of the contracts."""
    return hashlib.sha256(canonical(value)).hexdigest()


_anyhow = Encoder().encode
_LONGEST = 8
"""So many times as long as msgspec's is no canonical form: what grows most is 1e20, by five."""
_plainly = Encoder(order="sorted").encode
"""What RFC 8785 and msgspec write alike: the latter takes a tenth of its time, and of json's."""


def _is_plain(value: Any) -> bool:
    """No float (they are written differently), only exact integers, only ASCII keys (they sort alike)."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is dict:
        for key, inner in value.items():
            if type(key) is not str or not key.isascii() or not (type(inner) is str or _is_plain(inner)):
                return False
        return True
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    return kind is int and -_MAX_EXACT <= value <= _MAX_EXACT


class _NotPlain(Exception):
    """Of what RFC 8785 alone knows the form."""


def _with_floats(value: Any) -> bytes:
    """Of what is not plain: mostly a plan, whose times and factors are floats."""
    try:
        return _plainly(_plain_form(value))
    except _NotPlain:
        return rfc8785.dumps(value)


def _plain_form(value: Any) -> Any:
    """The same with whole floats as integers: of the others, from 1e-4 to 1e15, both write the shortest digits alike.

    Raises:
        _NotPlain.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is dict:
        found: dict[str, Any] = {}
        for key, inner in value.items():
            if type(key) is not str or not key.isascii():
                raise _NotPlain
            found[key] = inner if type(inner) is str else _plain_form(inner)
        return found
    if kind is list or kind is tuple:
        return [_plain_form(inner) for inner in value]
    if kind is float and (value == 0 or _LEAST <= abs(value) < _BEYOND):
        whole = int(value)
        return whole if whole == value else value
    if kind is int and -_MAX_EXACT <= value <= _MAX_EXACT:
        return value
    raise _NotPlain


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidArgs(f"/{key}", "duplicate key")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise InvalidArgs("", f"{name} is not JSON")


def _find_offence(value: Any, at: str) -> None:
    """Name the place of what rfc8785 refused."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[Any, Any]", value).items():
            if not isinstance(key, str):
                raise InvalidArgs(at, "a key is not a string")
            _find_offence(key, f"{at}/{key.encode(errors='replace').decode()}")
            _find_offence(inner, f"{at}/{key.encode(errors='replace').decode()}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("list[Any]", value)):
            _find_offence(inner, f"{at}/{index}")
    else:
        try:
            rfc8785.dumps(value)
        except rfc8785.CanonicalizationError as error:
            raise InvalidArgs(at, _rule(error)) from None
        except UnicodeEncodeError:
            raise InvalidArgs(at, "lone surrogate") from None


def _rule(error: rfc8785.CanonicalizationError) -> str:
    if isinstance(error, rfc8785.IntegerDomainError):
        return "integer beyond ±(2^53−1)"
    if isinstance(error, rfc8785.FloatDomainError):
        return "NaN or infinite"
    return "no JSON value"
