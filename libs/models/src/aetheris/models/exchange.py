"""What a model is shown, and what comes of asking it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aetheris.protocol.planning.answers import ModelReply


class NotAnswered(Exception):
    """Nothing came of a request."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Busy(NotAnswered):
    """Asking again may help."""


class ModelRefused(NotAnswered):
    """Asking again won't."""


@dataclass(frozen=True, slots=True)
class ShownTool:
    """A tool as a model is shown it."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PricedReply:
    """An answer, and what it used: {model, input_tokens, output_tokens, cost_usd?}."""

    reply: ModelReply
    usage: dict[str, Any]
