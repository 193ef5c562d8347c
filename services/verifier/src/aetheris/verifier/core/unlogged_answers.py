"""What a partition's planner answered of submissions, on its way into the log of seals (pure)."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

from aetheris.proofs.log_lines import MOST
from aetheris.protocol.messages.submission_numbers import SubmissionAnswer


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
    """What a record of jobs.events says of a receipt."""

    offset: int
    receipt: str
    answer: SubmissionAnswer


@dataclass(frozen=True, slots=True)
class AnswerBatch:
    """What a line of the log of seals is to hold: with it, all below `up_to` lies there, but for what is `unjudged`."""

    answers: tuple[LoggedAnswer, ...]
    up_to: int
    unjudged: tuple[int, ...] = ()
    """The offsets of what may be answers, and nobody could tell."""


class Answers:
    """Those that no line of the log of seals holds yet, in log order. What is logged twice says no less."""

    def __init__(self) -> None:
        self._waiting: deque[LoggedAnswer] = deque()
        self._unjudged: list[int] = []
        self._next = 0

    def read(self, offset: int) -> None:
        """All was read up to here, whatever it is."""
        self._next = max(self._next, offset + 1)

    def add(self, offset: int, receipt: str, answer: SubmissionAnswer) -> None:
        """A birth, or a planner's word, that counts; `receipt` is its hash."""
        self._waiting.append(LoggedAnswer(offset, receipt, answer))

    def could_not_judge(self, offset: int) -> None:
        """It may be an answer: of a root, or a version, that is not known here. Of these the first 500 are named."""
        if len(self._unjudged) < MOST:
            self._unjudged.append(offset)

    def logged(self, up_to: int, unjudged: Collection[int] = ()) -> None:
        """A line says that all below this offset lies in the log of seals, but for what it could not judge."""
        left = (one for one in self._waiting if one.offset >= up_to or one.offset in unjudged)
        self._waiting = deque(sorted(left, key=lambda one: one.offset))  # checkpoints were read in no order

    def batch(self) -> AnswerBatch | None:
        """The oldest, as many as a line may hold; None where none waits."""
        taken = tuple(islice(self._waiting, MOST))
        if not taken:
            return None
        rest = self._waiting[MOST].offset if len(self._waiting) > MOST else self._next
        return AnswerBatch(taken, rest, tuple(offset for offset in self._unjudged if offset < rest))

    @property
    def is_full(self) -> bool:
        """Whether a line's worth waits."""
        return len(self._waiting) >= MOST

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> int | None:
        """The offset below which all is logged; None if nothing waits."""
        return self._waiting[0].offset if self._waiting else None
