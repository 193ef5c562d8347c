"""What came of a run, of whatever kind."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """`broken` is empty where every promise held, and `rule` names it where one did not."""

    seed: int
    broken: str
    rule: str
    faults: int
    records: int
    history: tuple[str, ...] = ()
