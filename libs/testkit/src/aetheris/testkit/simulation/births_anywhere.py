"""Where births count, its rules left out, for `ablations`."""

from collections.abc import Callable, Mapping
from typing import Any


def wherever_it_lies(real: Callable[..., bool]) -> Callable[..., bool]:
    """A birth counts in whichever partition."""

    def lies_there(reader: Any, record: Any, event: Any) -> bool:
        return real(reader, record, event.model_copy(update={"partition": record.partition}))

    return lies_there


def at_the_mark(_: Callable[..., int]) -> Callable[..., int]:
    """Who restarts reads from his mark on."""

    def begins(mark: int, _reach: int = 0) -> int:
        return mark

    return begins


def whatever(value: object) -> Callable[[Any], Callable[..., object]]:
    """It is always this."""

    def always(*_: object, **__: object) -> object:
        return value

    return lambda _: always


_LIES = "aetheris.protocol.fold.provenance.Provenance._lies_where_written"

BIRTHS: tuple[tuple[str, str, int, Mapping[str, Callable[[Any], Any]]], ...] = (
    (
        "with births wherever they lie",
        "a birth counts where it was written, and no more",
        300,
        {_LIES: whatever(value=True)},
    ),
    ("with births of whichever partition", "a birth is of one partition", 300, {_LIES: wherever_it_lies}),
    (
        "with restarts at the mark",
        "who restarts knows the jobs that are within reach of his mark",
        600,
        {
            "aetheris.protocol.base.sealed.in_reach": at_the_mark,
            "aetheris.protocol.fold.provenance.Provenance.begin": whatever(value=None),
        },
    ),
)
"""Name, rule, seeds after which it was found with room, what is replaced."""
