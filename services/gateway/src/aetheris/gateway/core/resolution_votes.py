"""A word on a parked call, or on what could not be confirmed, where the rule asks for several; pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aetheris.gateway.core.answers import ObservedEvent
from aetheris.protocol.api import VoteCount
from aetheris.protocol.base import recordable
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages.events import ResolutionVoted
from aetheris.protocol.planning.approvals import deciders_of, resolvers
from aetheris.protocol.planning.resolutions import Verdict, verdict_of, words_on_confirmation, words_on_parked


@dataclass(frozen=True, slots=True)
class VoteTally:
    """Who says the same with this word; `stands`: it was his last word already."""

    count: VoteCount
    stands: bool

    @property
    def is_enough(self) -> bool:
        """Whether this word is the last one that is needed."""
        return len(self.count.given) >= self.count.needed

    def settles(self, command_id: str, event: ObservedEvent) -> bool:
        """Whether the event says that the word is in the log; of the last one that is needed, what it came to."""
        if event.caused_by != command_id:
            return False
        return event.event_type != "resolution_voted" or not self.is_enough


def on_parked(job: JobState, state: KeyState, who: RecordedPrincipal, verdict: str, result: Any) -> VoteTally | None:
    """Of a word on a parked call; None where it is enough by itself."""
    needed = resolvers(job, state).approvals
    if needed == 1 or verdict == "retry" or who.breaks_glass:
        return None
    said = (verdict, _hash(result) if verdict == "happened" else None)
    return _tally(words_on_parked(job, state), who, said, needed)


def on_confirmation(job: JobState, who: RecordedPrincipal) -> VoteTally | None:
    """Of a word on what could not be confirmed; None where it is enough by itself."""
    asked = job.open_waits["confirmation", None]
    needed = deciders_of(asked).approvals
    return _tally(words_on_confirmation(job, asked), who, ("accepted", None), needed) if needed > 1 else None


def _hash(result: Any) -> str:
    return hashlib.sha256(recordable.result(result)[1]).hexdigest()


def _tally(words: Sequence[ResolutionVoted], who: RecordedPrincipal, said: Verdict, needed: int) -> VoteTally:
    same = [word.by for word in words if verdict_of(word) == said and word.by not in who.names]
    stands = any(word.by == who.id and verdict_of(word) == said for word in words)
    return VoteTally(VoteCount(given=(*same, who.id), needed=needed), stands)
