"""Ablations of what is made of a call in doubt: what its try said, who has ended, what is asked and kept outside."""

from collections.abc import Callable, Mapping
from typing import Any

from aetheris.ledger.core import settlement
from aetheris.ledger.core.live_jobs import CurrentInvocation, DecisionContext, TimedDecision
from aetheris.ledger.core.settlement import JobKey
from aetheris.protocol.base.words import TryWord
from aetheris.protocol.fold.state import JobState, KeyStatus, PlanEntry
from aetheris.protocol.fold.workers import LOCK, Ended, Name
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.testkit.simulation.ablations.ablation import Ablation, always
from aetheris.tool_executor.core.tries import DeclaredInvocation


def whoever_is_said_to_have_ended(real: Callable[[Name, str], list[str]]) -> Callable[[Name, str], list[str]]:
    """Of a worker's end: its incarnation does, too, where its word is asked for."""

    def ended_by(name: Name, word: str) -> list[str]:
        return [*real(name, word), *name.end(Ended(incarnation=word, how=LOCK))]

    return ended_by


def _not_found_is_final(real: Callable[..., Any]) -> Callable[..., Any]:
    """Reopens on the first "not found", whether or not the try may still act."""

    def probe(
        job_key: JobKey, invocation: CurrentInvocation, entry: PlanEntry, context: DecisionContext, now_s: float
    ) -> TimedDecision:
        if invocation.absent_s is None or job_key.state.status is not KeyStatus.STARTED:
            return real(job_key, invocation, entry, context, now_s)
        doubted = settlement.in_doubt(job_key, invocation.cause or "lease_expired")
        return TimedDecision((settlement.reopened(job_key, "probe", ({"not_found": True},), *doubted),), now_s + 1)

    return probe


def _unbounded(_: Any) -> Any:
    """A tool that states no bound is taken to have nothing under way."""
    return property(lambda pin: pin.settles_within_s or 0.0)


def _always_returned(real: Callable[..., Any]) -> Callable[..., Any]:
    """A timeout says as much as an exception, though its call acts on."""

    def in_doubt(invocation: DeclaredInvocation, error_class: str, *, returned: bool) -> Any:
        return real(invocation, error_class, returned=returned or bool(error_class))

    return in_doubt


def _never_tired(real: Callable[..., Any]) -> Callable[..., Any]:
    """A question that got no answer is not counted."""

    def note_unknown(invocation: CurrentInvocation, context: DecisionContext, now_s: float) -> None:
        real(invocation, context, now_s)
        invocation.unknowns = 1

    return note_unknown


def _also_ended(real: Callable[..., Any]) -> Callable[..., Any]:
    """Who has ended goes on, and may start."""

    def why_void(job: JobState, event: Any, *more: Any) -> Any:
        kept, job.ended_workers = job.ended_workers, {}
        try:
            return real(job, event, *more)
        finally:
            job.ended_workers = kept

    return why_void


def _whatever_was_begun(real: Callable[..., Any]) -> Callable[..., Any]:
    def strays(core: Any, _begun: Any) -> Any:
        return real(core, {})

    return strays


def _never_forgotten(_: Callable[..., Any]) -> Callable[..., Any]:
    """The words of a try are there for ever."""

    def take(unread: Any, started: Any) -> Any:
        return vars(unread)["_words"].get((started.job_id, started.idempotency_key, started.invocation_id))

    return take


def _any_of_the_try(real: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever a word was said with, it serves for anything."""

    def is_word_of(invocation_id: str, _: TryWord, word: str | None) -> bool:
        return any(real(invocation_id, reported, word) for reported in TryWord)

    return is_word_of


def _whoever_says_so(real: Mapping[tuple[Via, Outcome], Any]) -> Any:
    return {(via, outcome): None for via in Via for outcome in Outcome} | dict(real)


DOUBTS: tuple[Ablation, ...] = (
    Ablation(
        "with nothing under way where no bound is stated",
        '"not found" counts only when nothing can be under way any more, also where a tool states no bound',
        300,
        {"aetheris.protocol.plan.graph.ToolPin.settles_s": _unbounded},
    ),
    Ablation(
        "with a timeout taken as a return",
        "a timeout does not say that a try can act no more",
        600,
        {"aetheris.tool_executor.core.reports.in_doubt": _always_returned},
    ),
    Ablation(
        "with an effect store that is believed",
        "what lies in the effect store is held against what the try would have appended",
        300,
        {
            "aetheris.ledger.core.settlement._is_of": always(value=True),
            "aetheris.ledger.core.settlement._is_whole": always(value=True),
        },
    ),
    Ablation(
        "with those who have ended starting all the same",
        "who has ended starts nothing more, and ends when it reads so",
        100,
        {
            "aetheris.protocol.fold.rules.why_void": _also_ended,
            "aetheris.testkit.simulation.actors.executor.SimulatedExecutor._is_own": always(value=False),
        },
    ),
    Ablation(
        "with questions without end",
        "questions to the external system that get no answer are counted",
        100,
        {
            "aetheris.ledger.core.doubt.note_unknown": _never_tired,
            "aetheris.ledger.core.invocations.note_unknown": _never_tired,
        },
    ),
    Ablation(
        "with not-found taken as final",
        '"not found" counts only from a try that can act no more',
        100,
        {"aetheris.ledger.core.doubt._probe": _not_found_is_final},
    ),
    Ablation(
        "with strays that nobody reports",
        "who was cut off before a call says so when it is there again",
        1000,
        {"aetheris.tool_executor.core.partition.Partition.strays": always(())},
    ),
    Ablation(
        "with what was called taken for a stray",
        "what a process has called, in whichever of its partitions' lives, is no stray",
        100,
        {
            "aetheris.tool_executor.core.partition.Partition.strays": _whatever_was_begun,
            "aetheris.tool_executor.core.unread_tries.UnreadTries.take": _never_forgotten,
        },
    ),
    Ablation(
        "with reports that need no word",
        "how a try ended counts with its word only",
        100,
        {"aetheris.protocol.fold.rules.is_proved_end": always(value=True)},
    ),
    Ablation(
        "with one word for all that a try says",
        "each thing that a try may say has a word of its own",
        600,
        {"aetheris.protocol.fold.reports.is_word_of": _any_of_the_try},
    ),
    Ablation(
        "with a no-effect that anybody says",
        "only the try itself says that it took no effect",
        300,
        {"aetheris.protocol.fold.reports._ENDS": _whoever_says_so},
    ),
    Ablation(
        "with an end of a worker that anybody says",
        "a worker is known to have ended by its own word",
        300,
        {"aetheris.protocol.fold.workers.Name._ended_by": whoever_is_said_to_have_ended},
    ),
)
