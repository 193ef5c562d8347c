"""Ablations of what people say and are asked: votes, cancels, releases, pauses, freezes."""

from collections.abc import Callable, Sequence
from typing import Any

from aetheris.protocol.planning.gate import Vote
from aetheris.testkit.simulation.ablations.ablation import Ablation, always


def _twice(real: Callable[..., Any]) -> Callable[..., Any]:
    """One yes is taken for two."""
    return lambda *what: 2 * real(*what)


def _whoever_voted(_: Callable[..., Any]) -> Callable[..., Any]:
    """Every vote counts, whose it ever is."""

    def names(_asked: object, _job: object, votes: Sequence[Vote]) -> tuple[str, ...]:
        return tuple(vote.who.id for vote in votes)

    return names


def _no_requests(_: Any) -> Any:
    """Whatever a job asks, its line in the index names nothing."""
    return property(lambda _: ())


PEOPLE: tuple[Ablation, ...] = (
    Ablation(
        "with one yes for two",
        "as many different principals say yes as the rule asks for",
        300,
        {"aetheris.ledger.core.votes.votes_that_count": _twice},
    ),
    Ablation(
        "with anybody's yes",
        "only who may say yes is counted, and once",
        300,
        {
            "aetheris.ledger.core.approvals.may_not_answer": always(None),
            "aetheris.ledger.core.votes.votes_that_count": _whoever_voted,
        },
    ),
    Ablation(
        "with a step's cancel unheard",
        "what a human says about a step is decided",
        100,
        {
            "aetheris.ledger.core.human_commands._call_off": always(()),
            "aetheris.ledger.core.human_commands._is_open": always(value=False),
        },
    ),
    Ablation(
        "with a step's cancel decided once",
        "a step's cancel is held until the log has it",
        300,
        {"aetheris.ledger.core.human_commands._is_open": always(value=False)},
    ),
    Ablation(
        "with a release that nobody hears",
        "a tool that a person has released from quarantine is called again",
        300,
        {"aetheris.ledger.core.tool_failures.ToolFailures.release": always(value=False)},
    ),
    Ablation(
        "with failures from before a release",
        "what a tool failed before its release, in the log, holds nobody's calls",
        1000,
        {"aetheris.ledger.core.quarantine.Quarantine.counts": always(value=True)},
    ),
    Ablation(
        "with a list of no requests",
        "open requests are in the list of jobs",
        300,
        {"aetheris.planner.core.progress.JobProgress.open_requests": _no_requests},
    ),
    Ablation(
        "with a pause that only its readers keep",
        "a `started` behind a pause is void (planner, ledger and executor keep to it all the same)",
        100,
        {"aetheris.protocol.fold.start.is_held": always(value=False)},
    ),
    Ablation(
        "with a freeze that only its readers keep",
        "a `started` behind a job's freeze is void (ledger and executor keep to what is ordered all the same)",
        1000,
        {"aetheris.protocol.fold.start.frozen_by": always(None)},
    ),
)
