"""Classes that name themselves: how a record's type leads to its payload's class."""

from typing import TypeVar

from aetheris.protocol.messages.message_base import Message
from aetheris.protocol.messages.record_struct import RecordStruct

M = TypeVar("M", bound=RecordStruct | Message)


def by_name(base: type[M], attribute: str) -> dict[str, type[M]]:
    """Every subclass that names itself in a class variable, under that name."""
    found: dict[str, type[M]] = {}
    for kind in base.__subclasses__():
        if attribute in kind.__dict__:
            found[getattr(kind, attribute)] = kind
        found |= by_name(kind, attribute)
    return found
