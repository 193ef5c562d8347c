"""On which Kafka cluster the log is: elsewhere it is a copy, and a copy lacks what came last."""

from typing import ClassVar

from pydantic import Field

from aetheris.protocol.messages.message_base import Message

LOG_HOME_KEY = "log:home"
"""The record key: no job, tenant or tool has a name with a colon."""


class LogHome(Message):
    """policies: the log is on this cluster from here on; numbered from 1, so that an earlier one doesn't come back."""

    type_name: ClassVar[str] = "log_home"
    number: int = Field(ge=1)
    cluster: str = Field(min_length=1, max_length=255)
    """As its brokers call it."""
    at: str

    @property
    def key(self) -> str:
        """The record key: there is one."""
        return LOG_HOME_KEY
