"""Taking secrets out of what a tool says: its result, its errors, what it prints (docs/secrets.md).

A secret is found as it is, and as it is commonly written: in JSON, in a URL, in HTML, as hex, and in base64 at any
place of a longer value. What a tool made of it otherwise (a hash, its reverse, half of it) is not found.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote, quote_plus

from aetheris.sdk.outcomes import StateChange

SHORTEST = 8
"""Characters of a secret: a shorter one would be found everywhere."""
SHORTEST_HIDDEN = 4
"""The same of a person's value."""
_BYTES_OF = ("$raw", "$base64")
"""Names under which a result has bytes, in base64."""
_LONG_LINE = 16
"""Characters from which on a line of a longer secret is one by itself."""


class Redactor:
    """Puts `[secret name@version]` where a secret's value is."""

    def __init__(self, secrets: Mapping[str, str], hidden: Iterable[str] = ()) -> None:
        """`secrets`: name@version → value; `hidden`: of persons' values, which `[hidden]` stands for."""
        forms = {form: f"[secret {name}]" for name, value in secrets.items() for form in _forms(value)}
        forms |= {form: "[hidden]" for value in hidden for form in _forms(value) if len(form) >= SHORTEST_HIDDEN}
        self._names = forms
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """A text without secrets."""
        if self._pattern is None or not any(form in text for form in self._names):  # far faster than the pattern
            return text
        return self._pattern.sub(lambda found: self._names[found.group()], text)

    def value(self, value: Any) -> Any:
        """A JSON value without secrets, in its strings, names and numbers."""
        return value if self._pattern is None else self._value(value)

    def change(self, change: StateChange) -> StateChange:
        """A recorded change without secrets."""
        if self._pattern is None:
            return change
        return replace(change, **{name: self.text(value) for name, value in change.payload().items()})

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            held = cast("dict[str, Any]", value)
            for kept in _BYTES_OF:
                if held.keys() == {kept} and isinstance(held[kept], str):
                    return {kept: self._raw(held[kept])}
            return {self.text(name): self._value(inner) for name, inner in held.items()}
        if isinstance(value, list | tuple):
            return [self._value(inner) for inner in cast("list[Any]", value)]
        if isinstance(value, int | float):
            text = json.dumps(value)
            clean = self.text(text)
            return value if clean == text else clean
        return value

    def _raw(self, encoded: str) -> str:
        """Bytes that were kept because JSON can't say them (`results`, `recordable`)."""
        try:
            text = base64.b64decode(encoded, validate=True).decode("latin-1")
        except ValueError:
            return self.text(encoded)
        return base64.b64encode(self.text(text).encode("latin-1")).decode()


NOTHING = Redactor({})
"""Where no secret was given, nothing is looked for."""


def _forms(value: str) -> Iterator[str]:
    lines = [line for line in value.splitlines() if len(line) >= _LONG_LINE] if "\n" in value else []
    for text in (value, *lines):
        data = text.encode()
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield repr(text)[1:-1]
        yield html.escape(text)
        yield data.decode("latin-1")
        for written in (quote(text), quote(text, safe=""), quote_plus(text), data.hex()):
            yield written
            yield written.lower()
            yield written.upper()
        yield from _base64_forms(data)


def _base64_forms(data: bytes) -> Iterator[str]:
    """The characters that don't depend on what stands before or after, for each place in the groups of three."""
    for before in range(3):
        padded = bytes(before) + data
        whole = len(padded) // 3 * 3
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded[:whole]).decode()[(0, 2, 3)[before] :]
