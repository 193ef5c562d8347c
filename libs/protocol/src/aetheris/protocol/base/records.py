"""Records as they lie in a log, and records still to be appended: exact bytes, no meaning.

What is made for every record is never changed, and yet not `frozen`: that makes its making ten times as dear.
"""

from collections.abc import Collection
from dataclasses import dataclass

Headers = tuple[tuple[str, bytes], ...]

KNOWN_BY = ("ce_id", "ce_type", "ce_time", "ce_source")
"""The headers that a sealed job's proof covers, in its order: a record that has one of them twice says nothing."""


@dataclass(slots=True)
class Record:
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


@dataclass(slots=True)
class Draft:
    """A record to be appended; its key decides the partition, unless one is named."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers = ()
    partition: int | None = None


Group = tuple[Draft, ...]
"""Drafts of one topic and one partition that are written whole or not at all."""
