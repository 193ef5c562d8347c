"""The tries that a process has declared, and whose `started` it has not read back; pure."""

from aetheris.protocol.base.words import TryWords

KEPT = 100_000
"""So many are known at a time. Of one that is forgotten nothing can be said, and it is in doubt for the ledger."""


class UnreadTries:
    """Their words, whichever partitions the process has by then: it never called them, and can still say so."""

    def __init__(self) -> None:
        self._words: dict[str, TryWords] = {}

    def put(self, words: TryWords) -> None:
        """One whose `started` is about to be appended."""
        self._words[words.invocation_id] = words
        if len(self._words) > KEPT:
            del self._words[next(iter(self._words))]

    def take(self, invocation_id: str) -> TryWords | None:
        """Of one that is read, or lies nowhere, the words, which are then forgotten; None where it is unknown."""
        return self._words.pop(invocation_id, None)
