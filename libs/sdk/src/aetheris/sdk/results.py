"""What a tool returns, as JSON that stays readable, and that `$ref` reaches (docs/tools.md, "What a result may hold").

A result comes after its effect, so nothing in it is an error: each kind that JSON lacks has a form of its own, at its
own place, and what has none says its type. What can never be recorded is refused where it is declared.
"""

import base64
import inspect
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from enum import Enum
from fractions import Fraction
from itertools import islice
from numbers import Integral, Rational, Real
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, PydanticSchemaGenerationError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import canonical
from aetheris.sdk.outcomes import Partial, Result
from aetheris.sdk.schema import DeclarationError, hints_of

MOST_YIELDED = 10_000
"""Items of an iterator that are taken; a longer one may have no end."""
_MAX_EXACT = 2**53 - 1
_WRITTEN_WITHOUT_EXPONENT = 1e21
_BYTES = (bytes, bytearray, memoryview)
_ITERATORS = (Iterator, Generator)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def recorded(value: Any) -> tuple[Any, bytes]:
    """A result as it is recorded, and its canonical bytes."""
    form = value
    with suppress(Exception):  # a result's own code may raise anything; what nests too deep stays whole
        form = value if _is_plain(value) else _readable(value, 0)
    return recordable.result(form)


def check_returned(function: Callable[..., Any], tool: str) -> None:
    """Refuse what a function is declared to return, if no record can ever hold it.

    Raises:
        DeclarationError: naming the type; or a generator function, of which nothing would run.
    """
    plain = inspect.unwrap(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise DeclarationError(f"{tool}: yields, and a call of it would do nothing: return a list")
    for kind in _kinds(hints_of(function, tool).get("return", Any)):
        try:
            TypeAdapter(kind).json_schema(mode="serialization")
        except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
            called = getattr(kind, "__name__", kind)
            rule = f"returns {called}, which JSON can't say: return a dict, a dataclass or a pydantic model"
            raise DeclarationError(f"{tool}: {rule}") from None


def _kinds(returned: Any) -> Iterator[Any]:
    """What may come back, without what is ours, and what awaits it."""
    if get_origin(returned) is Coroutine or getattr(get_origin(returned), "__name__", "") == "Awaitable":
        yield from _kinds(get_args(returned)[-1])
    elif get_origin(returned) is not None and _is_union(returned):
        for one in get_args(returned):
            yield from _kinds(one)
    elif returned not in (Result, Partial, None):
        yield returned


def _is_union(kind: Any) -> bool:
    return getattr(get_origin(kind), "__name__", "") in ("Union", "UnionType")


def _is_plain(value: Any) -> bool:
    """Whether it is JSON already, as most results are; far faster than to make it so."""
    kind = type(value)
    if kind is str:
        return value.isascii()
    if kind in (int, float):
        return -_MAX_EXACT <= value <= _MAX_EXACT
    if kind is dict:
        for key, inner in value.items():
            if type(key) is not str or not key.isascii() or not _is_plain(inner):
                return False
        return True
    return all(map(_is_plain, value)) if kind is list else value is None or kind is bool


def _readable(value: Any, level: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _readable(value.value, level)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Integral):
        return _whole(int(value))
    if isinstance(value, Real) and not isinstance(value, Rational):
        return _number(float(value))
    if isinstance(value, _BYTES):
        return {"$base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, Fraction):  # of which pydantic before 2.13 knows nothing
        return str(value)
    return _container(value, level)


def _container(value: Any, level: int) -> Any:
    if level >= recordable.MAX_DEPTH:
        raise RecursionError("nested too deep")
    if isinstance(value, Mapping):
        return _object(cast("Mapping[Any, Any]", value), level)
    if isinstance(value, list | tuple | deque):
        return [_readable(one, level + 1) for one in cast("Sequence[Any]", value)]
    if isinstance(value, set | frozenset):
        items = (_readable(one, level + 1) for one in cast("frozenset[Any]", value))
        return sorted(items, key=canonical)  # in an order that two processes share
    return _other(value, level)


def _other(value: Any, level: int) -> Any:
    """What has a form by pydantic's rules, an iterator's items, or the type's name."""
    try:
        if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
            return _readable(_dumped(value), level)
        if isinstance(value, _ITERATORS):
            return _yielded(cast("Iterator[Any]", value), level)
        return _readable(_ANY.dump_python(value, mode="json"), level)
    except RecursionError:
        raise
    except Exception:  # noqa: BLE001  its own code may raise anything
        return {"$unserialisable": recordable.text(type(value).__name__)}


def _dumped(value: Any) -> Any:
    """As its own serialisers have it for JSON; where that would lose something, as they have it for Python."""
    kept = _ANY.dump_python(value)
    if not _loses(kept):
        with suppress(Exception):
            return _ANY.dump_python(value, mode="json")
    return kept


def _loses(value: Any) -> bool:
    """Whether pydantic's JSON would say NaN as null, bytes as text, a set in any order, or two keys as one."""
    if isinstance(value, Mapping):
        held = cast("Mapping[Any, Any]", value)
        return any(not isinstance(key, str) or _loses(inner) for key, inner in held.items())
    if isinstance(value, list | tuple | deque):
        return any(map(_loses, cast("Sequence[Any]", value)))
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, (*_BYTES, set, frozenset, *_ITERATORS))


def _yielded(items: Iterator[Any], level: int) -> Any:
    taken = list(islice(items, MOST_YIELDED + 1))
    if len(taken) > MOST_YIELDED:
        raise ValueError("has no end that could be awaited")
    return _readable(taken, level)


def _object(value: Mapping[Any, Any], level: int) -> Any:
    """An object where its keys stay apart as texts; else a list of pairs."""
    names = [_key(key) for key in value]
    if None not in names and len(set(names)) == len(names):
        return {name: _readable(inner, level + 1) for name, inner in zip(names, value.values(), strict=True)}
    pairs = [[_readable(key, level + 3), _readable(inner, level + 3)] for key, inner in value.items()]
    return {"$pairs": pairs}


def _key(key: Any) -> str | None:
    """A key as text; None where it has none."""
    if isinstance(key, str):
        return _text(key)
    if isinstance(key, _BYTES):
        return None
    with suppress(Exception):  # its own code may raise anything
        return _text(next(iter(_ANY.dump_python({key: None}, mode="json"))))
    return None


def _text(value: str) -> str:
    plain = str.__str__(value)
    return plain if plain.isascii() else plain.encode("utf-8", "backslashreplace").decode()


def _whole(value: int) -> Any:
    if -_MAX_EXACT <= value <= _MAX_EXACT:
        return value
    try:
        return str(value)
    except ValueError:  # Python writes no more digits than sys.set_int_max_str_digits says
        return hex(value)


def _number(value: float) -> Any:
    """JSON writes a whole one without a fraction, so a large one would come back as an integer that is not exact."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if _MAX_EXACT < abs(value) < _WRITTEN_WITHOUT_EXPONENT:
        return str(int(value))
    return value
