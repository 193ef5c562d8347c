"""Ablations of where births count."""

from collections.abc import Callable
from typing import Any

from aetheris.testkit.simulation.ablations.ablation import Ablation, always


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


_LIES = "aetheris.protocol.fold.births.BirthJudge.lies_where_written"

BIRTHS: tuple[Ablation, ...] = (
    Ablation(
        "with births wherever they lie",
        "a birth counts where it was written, and no more",
        300,
        {_LIES: always(value=True)},
        compared=False,
    ),
    Ablation(
        "with births of whichever partition",
        "a birth is of one partition",
        300,
        {_LIES: wherever_it_lies},
        compared=False,
    ),
    Ablation(
        "with restarts at the mark",
        "who restarts knows the jobs that are within reach of his mark",
        600,
        {
            "aetheris.protocol.base.sealed.in_reach": at_the_mark,
            "aetheris.protocol.fold.births.BirthJudge.begin": always(value=None),
        },
        compared=False,
    ),
    Ablation(
        "with births under earlier rules",
        "behind a partition's barrier of later rules no job is created under earlier ones",
        300,
        {"aetheris.protocol.tables.rules_orders.PartitionRules.refuses": always(value=False)},
        compared=False,
    ),
)
