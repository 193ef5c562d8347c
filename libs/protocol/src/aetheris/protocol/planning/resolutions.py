"""What several people say of a parked call, or of what could not be confirmed, and what that comes to; pure."""

from collections.abc import Sequence

from aetheris.protocol.base.principals import speaker
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages.events import JobWaiting, ResolutionVoted
from aetheris.protocol.planning.approvals import Owned, deciders_of, resolvers
from aetheris.protocol.planning.gate import Deciders, HumanAction, Matter, gate

Verdict = tuple[str, str | None]
"""What is said; of what happened also the hash of its result."""


def verdict_of(vote: ResolutionVoted) -> Verdict:
    """What somebody has said."""
    return vote.verdict, vote.output_hash


def last_words(
    deciders: Deciders, job: Owned, votes: Sequence[ResolutionVoted], action: HumanAction
) -> tuple[ResolutionVoted, ...]:
    """Of each who may say it, what he said last, in log order; who acts in another's place is one voice with that one.

    Each may change his mind until the last word that is needed has been said.
    """
    heard: set[str] = set()
    found: list[ResolutionVoted] = []
    for vote in reversed(votes):
        who = speaker(vote.by, job.tenant, vote.principal)
        if heard & who.names or gate(deciders, who, action, Matter(job.tenant, job.submitted_by)) is not None:
            continue
        heard |= who.names
        found.append(vote)
    return tuple(reversed(found))


def agreed(deciders: Deciders, words: Sequence[ResolutionVoted]) -> tuple[ResolutionVoted, ...]:
    """Those that say the same, where they are as many as must; else none."""
    for word in words:
        same = tuple(one for one in words if verdict_of(one) == verdict_of(word))
        if len(same) >= deciders.approvals:
            return same
    return ()


def words_on_parked(job: JobState, state: KeyState) -> tuple[ResolutionVoted, ...]:
    """What counts of what was said of a parked call."""
    votes = [vote for _, vote in state.resolutions]
    return last_words(resolvers(job, state), job.created, votes, HumanAction.RESOLVE)


def words_on_confirmation(job: JobState, asked: JobWaiting) -> tuple[ResolutionVoted, ...]:
    """What counts of what was said of what could not be confirmed."""
    votes = [vote for vote in job.acceptances if vote.correlation_key == asked.correlation_key]
    return last_words(deciders_of(asked), job.created, votes, HumanAction.ACCEPT)
