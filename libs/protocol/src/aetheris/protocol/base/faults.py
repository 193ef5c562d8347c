"""What is wrong in a file that somebody wrote, in words, and on which line, as well as its text tells."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from pydantic import ValidationError

_HEADER = re.compile(r"^\s*\[")
_LIKE = 0.75
"""How much a key must look like another to be taken for a slip of the pen."""


def first_fault(error: ValidationError, known: Iterable[str] = ()) -> tuple[tuple[str | int, ...], str]:
    """Where the first fault is, and what it is, without any value; `known` are the keys that the outermost may have."""
    errors = error.errors(include_input=False, include_url=False)
    # a key that doesn't exist is often the one that another fault misses
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    place = first["loc"]
    match first["type"]:
        case "extra_forbidden":
            return place, no_such_key(str(place[-1]), known if len(place) == 1 else ())
        case "missing":
            return place, "is missing"
        case _:
            return place, first["msg"].removeprefix("Value error, ")


def no_such_key(key: str, known: Iterable[str]) -> str:
    """That there is no such key, and which one was meant, or which there are."""
    names = sorted(known)
    near = like(key, names)
    if near is not None:
        return f"there is no such key; did you mean {near}?"
    return "there is no such key" + (f"; there are {', '.join(names)}" if names else "")


class StrangeKey(ValueError):
    """A document holds something else than it may; `line` is where, if that can be told."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


class FileFault(ValueError):
    """A file of settings can't be used; `line` is where, if that can be told."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def toml_document(text: str, known: Sequence[str], most_bytes: int) -> dict[str, Any]:
    """A file of TOML that has no keys but these.

    Raises:
        FileFault: it is larger, no TOML, or has another key.
    """
    if len(text.encode(errors="surrogatepass")) > most_bytes:
        raise FileFault(f"larger than {most_bytes // 1024} KiB")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileFault(f"is not TOML: {error}", toml_error_line(error)) from None
    except (RecursionError, ValueError) as error:
        raise FileFault(f"can't be read ({type(error).__name__})") from None
    for key in document:
        if key not in known:
            raise FileFault(f"{key}: {no_such_key(key, known)}", toml_key_line(text, key))
    return document


def only_array(text: str, document: Mapping[str, Any], array: str, *also: str) -> list[Any]:
    """The entries of a TOML document that holds this one `[[array]]`, or nothing; `also` could have stood there.

    Raises:
        StrangeKey: it holds anything else.
    """
    for key in document:
        if key != array:
            raise StrangeKey(f"{key}: {no_such_key(key, (array, *also))}", toml_key_line(text, key))
    entries = document.get(array, [])
    if not isinstance(entries, list):
        raise StrangeKey(f"{array}: is no [[{array}]]", toml_key_line(text, array))
    return cast("list[Any]", entries)


def like(word: str, known: Iterable[str]) -> str | None:
    """The one of these words that it was probably meant to be."""
    return next(iter(get_close_matches(word, list(known), 1, _LIKE)), None)


def toml_line(text: str, array: str, index: int, field: str | int | None = None) -> int | None:
    """The line of a field of the index-th `[[array]]`; where it can't be found, that of the table's head."""
    lines = text.splitlines()
    head = re.compile(rf"^\s*\[\[\s*{re.escape(array)}\s*\]\]")
    heads = [place for place, line in enumerate(lines) if head.match(line)]
    if index >= len(heads):
        return None
    for place, line in enumerate(lines[heads[index] + 1 :], heads[index] + 1):
        if _HEADER.match(line):
            break
        if field is not None and _assigns(line, str(field)):
            return place + 1
    return heads[index] + 1


def toml_key_line(text: str, *keys: str) -> int | None:
    """The line of a key of a document: its last name, in the table that the others name."""
    table, inside = list(keys[:-1]), len(keys) == 1
    for place, line in enumerate(text.splitlines(), 1):
        if _HEADER.match(line):
            named = line.split("]")[0].strip(" \t[").split(".")
            if [one.strip().strip('"') for one in named] == list(keys):
                return place
            inside = [one.strip().strip('"') for one in named] == table
        elif inside and _assigns(line, keys[-1]):
            return place
    return None


def json_line(text: str, keys: Sequence[str | int]) -> int | None:
    """The line of the innermost of these names that stands in a JSON text, each looked for behind the one before."""
    at, behind = None, 0
    for key in keys:
        found = re.compile(rf"{re.escape(_quoted(key))}\s*:").search(text, behind)
        if found is not None:
            at, behind = found.span()
    return None if at is None else text.count("\n", 0, at) + 1


def placed(path: object, line: int | None) -> str:
    """A file and the line in it, as compilers have it."""
    return f"{path}" if line is None else f"{path}:{line}"


def toml_error_line(reported: object) -> int | None:
    """The line that an error of tomllib names."""
    found = re.search(r"line (\d+)", str(reported))
    return int(found.group(1)) if found else None


def _assigns(line: str, key: str) -> bool:
    return re.match(rf'^\s*"?{re.escape(key)}"?\s*[=.]', line) is not None


def _quoted(key: str | int) -> str:
    return f'"{key}"'
