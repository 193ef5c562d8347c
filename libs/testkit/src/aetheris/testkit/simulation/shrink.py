"""The shortest history that still breaks the same promise: choices left out, or turned harmless."""

from collections.abc import Iterator

from aetheris.testkit.simulation.ablations import NONE, Ablation
from aetheris.testkit.simulation.run import JobsOutcome, simulate

Tape = tuple[int, ...]
MOST_TRIES = 3000


def shrink(found: JobsOutcome, ablation: Ablation = NONE, most_tries: int | None = None) -> JobsOutcome:
    """The smallest run found from `found` on, with its history; it breaks the same rule."""
    most = MOST_TRIES if most_tries is None else most_tries
    best, tries, better = found, 0, True
    while better and tries < most:
        better = False
        for candidate in _Pass(best):
            tries += 1
            again = simulate(found.seed, ablation=ablation, recorded=candidate.tape, longest=candidate.best.steps)
            if again.rule == found.rule and _size(again) < _size(candidate.best):
                candidate.accept(again)
                best, better = again, True
            if tries >= most:
                break
    return simulate(found.seed, ablation=ablation, recorded=best.tape, traced=True)


class _Pass:
    """One pass over a tape, large blocks first; what is accepted is gone on from at once."""

    def __init__(self, best: JobsOutcome) -> None:
        self.best = best
        self.tape: Tape = best.tape
        self._accepted = False

    def accept(self, better: JobsOutcome) -> None:
        """The last candidate was one."""
        self.best, self._accepted = better, True

    def __iter__(self) -> Iterator["_Pass"]:
        length = len(self.best.tape) // 2
        while length >= 1:
            start = 0
            while start < len(self.best.tape):
                yield from self._block(start, length)
                start += 0 if self._accepted else length
            length //= 2

    def _block(self, start: int, length: int) -> Iterator["_Pass"]:
        """Without the block; else with the block harmless."""
        self._accepted = False
        tape = self.best.tape
        self.tape = tape[:start] + tape[start + length :]
        yield self
        if not self._accepted and any(tape[start : start + length]):
            self.tape = tape[:start] + (0,) * len(tape[start : start + length]) + tape[start + length :]
            yield self


def _size(outcome: JobsOutcome) -> tuple[int, int, int]:
    """Fewer steps first, then fewer faults, then fewer choices that are not harmless."""
    return outcome.steps, outcome.faults, sum(value != 0 for value in outcome.tape)
