"""What every command and every record of a table has."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A command or a table record; `type_name` is its ce_type's middle part."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type_name: ClassVar[str]
