"""What every command and every record of a table has."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError


class Message(BaseModel):
    """A command or a table record; `type_name` is its ce_type's middle part."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type_name: ClassVar[str]


class TableLine(Message, ABC):
    """A line of a compacted topic that says itself under which key it lies."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The record key."""

    @classmethod
    def read(cls, key: str, value: bytes | None) -> Self | None:
        """What a record says; None where it is no such line, or lies under another's key."""
        try:
            line = cls.model_validate_json(value or b"")
        except ValidationError:
            return None
        return line if line.key == key else None
