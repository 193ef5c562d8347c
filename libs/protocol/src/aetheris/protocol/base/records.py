"""Records as they lie in a log, and records still to be appended: exact bytes, no meaning.

They are structs, as one is made for every record: that costs a quarter of what a dataclass does, and none of them leads
back to itself, so that Python's collector need not look at them. Nobody changes one.
"""

from collections.abc import Collection
from typing import Any, Self

from msgspec import Struct, structs

Headers = tuple[tuple[str, bytes], ...]

KNOWN_BY = ("ce_id", "ce_type", "ce_time", "ce_source")
"""The headers that a sealed job's proof covers, in its order: a record that has one of them twice says nothing."""


class _Raw(Struct, gc=False):
    def replaced(self, **fields: Any) -> Self:
        """The same with other values of these fields."""
        return structs.replace(self, **fields)


class Record(_Raw, gc=False):
    """One record of a log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    headers: Headers
    value: bytes

    def header(self, name: str) -> bytes | None:
        """The first header of that name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def repeated(self) -> Collection[str]:
        """Those of the headers by which it is known that it has more than once: nobody can say which of them counts."""
        if len(dict(self.headers)) == len(self.headers):
            return ()
        names = [name for name, _ in self.headers]
        return [name for name in KNOWN_BY if names.count(name) > 1]

    def identity(self) -> tuple[bytes | None, bytes | None]:
        """Its ce_id and its ce_type."""
        id_ = type_ = None
        for key, value in self.headers:
            if key == "ce_id" and id_ is None:
                id_ = value
            elif key == "ce_type" and type_ is None:
                type_ = value
            if id_ is not None and type_ is not None:
                break
        return id_, type_


class Draft(_Raw, gc=False):
    """A record to be appended; its key decides the partition, unless one is named."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers = ()
    partition: int | None = None


Group = tuple[Draft, ...]
"""Drafts of one topic and one partition that are written whole or not at all."""
