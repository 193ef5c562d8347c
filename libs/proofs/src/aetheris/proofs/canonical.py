"""Canonical JSON (RFC 8785) and its hash."""

import hashlib
from typing import Any

import rfc8785
from msgspec.json import Encoder

_MAX_EXACT = 2**53 - 1
_LEAST, _BEYOND = 1e-4, 1e15
"""Floats between are written without an exponent, by Python and by RFC 8785."""
ENCODE_ERRORS = (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError)


def canonical(value: Any) -> bytes:
    """The JCS bytes of a JSON value.

    Raises:
        ValueError: it has no canonical form (an integer beyond ±(2^53−1), NaN, a lone surrogate).
    """
    try:
        return _plainly(value) if _is_plain(value) else _with_floats(value)
    except ENCODE_ERRORS:
        raise ValueError("no canonical JSON form") from None


def json_hash(value: Any) -> str:
    """hex SHA-256(JCS(value)).

    Raises:
        ValueError: it has no canonical form.
    """
    return hashlib.sha256(canonical(value)).hexdigest()


def hash_or_empty(value: Any) -> str:
    """As `json_hash`, but empty for what has no canonical form: no recorded hash is equal to that."""
    try:
        return json_hash(value)
    except ValueError:
        return ""


_plainly = Encoder(order="sorted").encode
"""Writes plain values as RFC 8785 does, in a tenth of the time."""


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
    if kind is list:
        for inner in value:  # noqa: SIM110 - a generator takes twice as long
            if not (type(inner) is str or _is_plain(inner)):
                return False
        return True
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
    if kind is list:
        return [_plain_form(inner) for inner in value]
    if kind is float and (value == 0 or _LEAST <= abs(value) < _BEYOND):
        whole = int(value)
        return whole if whole == value else value
    if kind is int and -_MAX_EXACT <= value <= _MAX_EXACT:
        return value
    raise _NotPlain
