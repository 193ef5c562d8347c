"""Models that name themselves: how a record's type leads to its payload's model."""

from typing import TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def by_name(base: type[M], attribute: str) -> dict[str, type[M]]:
    """Every subclass that names itself in a class variable, under that name."""
    found: dict[str, type[M]] = {}
    for kind in base.__subclasses__():
        if attribute in kind.__dict__:
            found[getattr(kind, attribute)] = kind
        found |= by_name(kind, attribute)
    return found
