"""What a live process says of itself where others see it: in the consumer group of its service."""

from typing import NamedTuple


class Attendant(NamedTuple):
    """The versions of the rules that it knows, and its own, where it says so."""

    rules: frozenset[int]
    version: str | None = None
