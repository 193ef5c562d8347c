"""The secrets that this process could give away: those of tools, as far as it can read them (docs/secrets.md).

Executors check the file and refuse a wrong one; here what can't be read can't be printed either.
"""

import os
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from aetheris.sdk.redaction import NOTHING, SHORTEST, Redactor


def known(path: Path | None) -> Redactor:
    """Of the values that the file's secrets have now."""
    values = {} if path is None else {name: value for name, value in _values(path) if len(value) >= SHORTEST}
    return Redactor(values) if values else NOTHING


def _values(path: Path) -> Iterator[tuple[str, str]]:
    entries: list[Any] = []
    with suppress(OSError, ValueError, TypeError):
        entries = list(tomllib.loads(path.read_text()).get("secrets", ()))
    for one in entries:
        with suppress(OSError, ValueError, TypeError, LookupError):
            yield str(one["name"]), _value(one, path.parent)


def _value(one: dict[str, Any], folder: Path) -> str:
    if "env" in one:
        return os.environ[one["env"]]
    return (folder / one["file"]).read_text().removesuffix("\n").removesuffix("\r")
