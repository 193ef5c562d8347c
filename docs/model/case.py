"""What a case is: one specification, its constants, and what must come of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Value = bool | int | str | Sequence[str]
"""A constant: strings are TLA+ strings, sequences are sets of strings."""

Constants = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Case:
    """A run of TLC. `violates` is the property that must fail; None: all must hold."""

    name: str
    module: str
    constants: Constants
    invariants: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    violates: str | None = None
    spec: str = "Spec"
    view: str | None = None
    long: bool = False
