"""The tries that a process has declared, and whose `started` it has not read back; pure."""

from aetheris.protocol.base.words import TryWords
from aetheris.protocol.messages.events import ToolInvocationStarted

KEPT = 100_000
"""So many are known at a time. Of one that is forgotten nothing can be said, and it is in doubt for the ledger."""

_Call = tuple[str, str, str]
"""Job, key and invocation: who reads a try's name in the log may write it as one of another call, in any partition."""


class UnreadTries:
    """Their words, whichever partitions the process has by then: it never called them, and can still say so."""

    def __init__(self) -> None:
        self._words: dict[_Call, TryWords] = {}

    def put(self, started: ToolInvocationStarted, words: TryWords) -> None:
        """One whose `started` is about to be appended."""
        self._words[_call(started)] = words
        if len(self._words) > KEPT:
            del self._words[next(iter(self._words))]

    def take(self, started: ToolInvocationStarted) -> TryWords | None:
        """Of one that is read, or lies nowhere, the words, which are then forgotten; None where it is unknown."""
        return self._words.pop(_call(started), None)


def _call(started: ToolInvocationStarted) -> _Call:
    return started.job_id, started.idempotency_key, started.invocation_id
