"""Where every choice of a simulated run comes from: a seed, or the recorded choices of an earlier run."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

SCALE = 1 << 16
_BITS = SCALE.bit_length()


class Tape:
    """Choices in the order in which they are asked for; 0 is always the harmless one.

    A run is repeated by its tape, and made simpler by turning choices into 0 or leaving some out.
    """

    def __init__(self, seed: int | None = None, recorded: Sequence[int] = ()) -> None:
        self.taken: list[int] = []
        self._recorded = recorded
        self._random = random.Random(seed) if seed is not None else None  # noqa: S311  it draws faults, not secrets

    def draw(self) -> int:
        """A number in [0, SCALE): recorded, else drawn from the seed, else 0."""
        place = len(self.taken)
        value = self._recorded[place] if place < len(self._recorded) else self._drawn()
        self.taken.append(value)
        return value

    def _drawn(self) -> int:
        """What `randrange(SCALE)` gives, in a fifth of the time."""
        if self._random is None:
            return 0
        value = self._random.getrandbits(_BITS)
        while value >= SCALE:
            value = self._random.getrandbits(_BITS)
        return value

    def below(self, count: int, least: int = 0) -> int:
        """A number in [0, count); a seed gives `least` or more, a recorded tape may give less."""
        drawn = len(self.taken) >= len(self._recorded) and self._random is not None
        value = self.draw()
        if drawn and least:
            number = least + value * (count - least) // SCALE
            self.taken[-1] = -(-number * SCALE // count)
            return number
        return value * count // SCALE

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.draw() >= SCALE * (1 - probability)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the harmless one."""
        return options[self.below(len(options))]
