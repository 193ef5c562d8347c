"""What the user hands in: read and checked before anything is sent."""

import sys
from pathlib import Path
from typing import Any, cast

from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.canonical import InvalidArgs, canonical, parse


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or on standard input for `-`.

    Raises:
        CommandError: it can't be read, or is no JSON object that has a canonical form; names file and place.
    """
    return json_object(read_bytes(path), "standard input" if path == Path("-") else str(path))


def json_object(text: str | bytes, name: str) -> dict[str, Any]:
    """A JSON object, parsed strictly; `name` says what it is.

    Raises:
        CommandError: no JSON object, a repeated key, or a number or text without a canonical form.
    """
    value = json_value(text, name)
    if not isinstance(value, dict):
        raise CommandError(Exit.BAD_INPUT, "invalid_args", f"{name}: must be a JSON object", field=name)
    return cast("dict[str, Any]", value)


def json_value(text: str | bytes, name: str) -> Any:
    """A JSON value, parsed strictly.

    Raises:
        CommandError: as `json_object`.
    """
    try:
        value = parse(text)
        canonical(value)
    except InvalidArgs as error:
        where = f"{name}{error.field and ' ' + error.field}"
        raise CommandError(Exit.BAD_INPUT, error.code, f"{where}: {error.rule}", field=error.field or name) from None
    return value


def read_bytes(path: Path) -> bytes:
    """A file, or standard input for `-`.

    Raises:
        CommandError: it can't be read.
    """
    try:
        return sys.stdin.buffer.read() if path == Path("-") else path.read_bytes()
    except OSError as error:
        reason = f"{path}: {error.strerror or 'cannot be read'}"
        raise CommandError(Exit.BAD_INPUT, "unreadable_file", reason, file=str(path)) from None
