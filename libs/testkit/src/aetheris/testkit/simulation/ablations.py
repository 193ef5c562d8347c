"""What happens without each of the rules: the simulation must catch every one of these (docs/simulation.md)."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from aetheris.ledger.core import settlement
from aetheris.ledger.core.live_jobs import CurrentInvocation, DecisionContext, TimedDecision
from aetheris.ledger.core.settlement import JobKey
from aetheris.protocol.base.words import TryWord
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, PlanEntry
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.protocol.planning.gate import Vote
from aetheris.testkit.simulation.births_anywhere import BIRTHS
from aetheris.testkit.simulation.unchecked_births import (
    without_birth_in_executor,
    without_birth_in_ledger,
    without_birth_in_read_back,
)
from aetheris.testkit.simulation.unchecked_signatures import (
    under_whichever_root,
    whoever_is_certified,
    whoever_is_said_to_have_ended,
    without,
)
from aetheris.tool_executor.core.partition import DeclaredInvocation

Replace = Callable[[Any], Any]
"""From the real function, the one in its place."""


@dataclass(frozen=True)
class Ablation:
    """A rule left out: by replaced functions of the real code, or by another gate before the call."""

    name: str
    rule: str
    """What is left out, as docs/simulation.md says it."""
    caught_within: int
    """Seeds after which it was found, with room."""
    replaced: Mapping[str, Replace] = field(default_factory=dict[str, Replace])
    gate: str = "log"
    locks: str = "inherited"
    compared: bool = True
    """Whether folds that differ end a run: where a forgery is believed they do before anything comes of it."""

    @contextmanager
    def applied(self) -> Generator[None]:
        """The real code without the rule, for the length of the block."""
        with replaced(self.replaced):
            yield


def _new_attempt_on_reclaim(real: Callable[..., Any]) -> Callable[..., Any]:
    """The external key changes because a lease ran out, without a proof."""

    def reopen(state: KeyState) -> None:
        if state.unresolved:
            state.external_attempt += 1
        real(state)

    return reopen


def _stopped_by_revision(_: Callable[..., Any]) -> Callable[..., Any]:
    """A later revision escapes the stop, whatever it adds."""

    def is_stopped(job: JobState, _entry: PlanEntry) -> bool:
        return job.stopping is not None and job.revision <= job.stopping.up_to_revision

    return is_stopped


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


def _further_than_read(real: Callable[..., Any]) -> Callable[..., Any]:
    """A checkpoint is taken to reach some records further than it does."""

    def reached(chain: Any, end: int | None = None) -> Any:
        found = real(chain, end)
        if found is not None:
            found.as_of = min(found.as_of + 4, end - 1 if end is not None else found.as_of + 4)
        return found

    return reached


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


def _whatever_was_begun(real: Callable[..., Any]) -> Callable[..., Any]:
    def strays(core: Any, _begun: Any) -> Any:
        return real(core, {})

    return strays


def _never_forgotten(_: Callable[..., Any]) -> Callable[..., Any]:
    """The words of a try are there for ever."""

    def take(unread: Any, started: Any) -> Any:
        return vars(unread)["_words"].get((started.job_id, started.idempotency_key, started.invocation_id))

    return take


def _unreported(real: Callable[..., Any]) -> Callable[..., Any]:
    """Who restarts takes what had ended for reported."""

    def recover(core: Any, now_s: float = 0.0) -> Any:
        for progress in core.jobs.values():
            progress.settled.clear()
        return real(core, now_s)

    return recover


def _any_of_the_try(real: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever a word was said with, it serves for anything."""

    def is_word_of(invocation_id: str, _: TryWord, word: str | None) -> bool:
        return any(real(invocation_id, reported, word) for reported in TryWord)

    return is_word_of


def _whoever_says_so(real: Mapping[tuple[Via, Outcome], Any]) -> Any:
    return {(via, outcome): None for via in Via for outcome in Outcome} | dict(real)


def _forged(name: str, rule: str, caught_within: int, path: str, without: Replace) -> Ablation:
    return Ablation(name, rule, caught_within, {f"aetheris.protocol.{path}": without}, compared=False)


def _always(value: object) -> Replace:
    def always(*_: object, **__: object) -> object:
        return value

    return lambda _: always


ABLATIONS: tuple[Ablation, ...] = (
    Ablation("without read-back", "the read-back before a call", 100, gate="none"),
    Ablation("with a Redis lock instead", "the log as the lock (a Redis lock instead)", 100, gate="redis"),
    Ablation(
        "without birth",
        "the birth that every message carries",
        600,
        {
            "aetheris.tool_executor.core.partition.Partition._in_force": without_birth_in_executor,
            "aetheris.tool_executor.core.partition.Partition._created": without_birth_in_read_back,
            "aetheris.ledger.core.node_requests._in_force": without_birth_in_ledger,
        },
    ),
    Ablation(
        "with a new attempt on reclaim",
        "the external key that stays until a proof (a new attempt on reclaim)",
        100,
        {"aetheris.protocol.fold.rules._reopen": _new_attempt_on_reclaim},
    ),
    Ablation(
        "without the node guard",
        "the node guard, in fold, ledger and planner",
        300,
        {
            "aetheris.protocol.fold.start._node_is_taken": _always(None),
            "aetheris.ledger.core.adjudication._is_known": _always(value=False),
            "aetheris.ledger.core.adjudication._blocked_by": _always(None),
            "aetheris.planner.core.ready_nodes.is_untouched": _always(value=True),
        },
    ),
    Ablation(
        "with a stop judged by revision",
        "a stop judged by the entry, not by the revision in force",
        600,
        {
            "aetheris.protocol.fold.start.is_stopped": _stopped_by_revision,
            "aetheris.protocol.fold.job_waits.is_stopped": _stopped_by_revision,
            "aetheris.ledger.core.adjudication.is_stopped": _stopped_by_revision,
            "aetheris.tool_executor.core.partition.is_stopped": _stopped_by_revision,
            "aetheris.protocol.fold.revisions._compensates": _always(value=True),
        },
    ),
    Ablation(
        "with nothing under way where no bound is stated",
        '"not found" counts only when nothing can be under way any more, also where a tool states no bound',
        300,
        {"aetheris.protocol.plan.graph.ToolPin.settles_s": _unbounded},
    ),
    Ablation(
        "with checkpoints that say more than they hold",
        "the end of what a checkpoint holds (taken to reach four records further)",
        100,
        {"aetheris.protocol.base.checkpoints.Chain.reached": _further_than_read},
    ),
    Ablation(
        "with a mark that rests on no checkpoint",
        "a whole checkpoint below a mark (a mark passes all that was read)",
        100,
        {"aetheris.runtime.worker.checkpoints.Checkpoints._needed": _always(1 << 60)},
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
            "aetheris.ledger.core.settlement._is_of": _always(value=True),
            "aetheris.ledger.core.settlement._is_whole": _always(value=True),
        },
    ),
    Ablation(
        "with those who have ended starting all the same",
        "who has ended starts nothing more, and ends when it reads so",
        100,
        {
            "aetheris.protocol.fold.rules.why_void": _also_ended,
            "aetheris.testkit.simulation.actors.executor.SimulatedExecutor._is_own": _always(value=False),
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
        {"aetheris.tool_executor.core.partition.Partition.strays": _always(())},
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
            "aetheris.ledger.core.approvals.may_not_answer": _always(None),
            "aetheris.ledger.core.votes.votes_that_count": _whoever_voted,
        },
    ),
    Ablation(
        "without the guard beyond a job",
        "an equal irreversible call of another job in the session or tenant, done, or under way",
        600,
        {
            "aetheris.ledger.core.adjudication._done_elsewhere": _always(None),
            "aetheris.ledger.core.adjudication._wait_for_another": _always(None),
        },
    ),
    Ablation(
        "with a line of a call that is over",
        "an open line that lands behind the end of its call is followed by how the call stands",
        600,
        {"aetheris.ledger.core.outdated_lines.OutdatedLines._corrected": _always(None)},
    ),
    Ablation(
        "with a step's cancel unheard",
        "what a human says about a step is decided",
        100,
        {
            "aetheris.ledger.core.human_commands._call_off": _always(()),
            "aetheris.ledger.core.human_commands._is_open": _always(value=False),
        },
    ),
    Ablation(
        "with a step's cancel decided once",
        "a step's cancel is held until the log has it",
        300,
        {"aetheris.ledger.core.human_commands._is_open": _always(value=False)},
    ),
    Ablation(
        "with a release that nobody hears",
        "a tool that a person has released from quarantine is called again",
        300,
        {"aetheris.ledger.core.tool_failures.ToolFailures.release": _always(value=False)},
    ),
    Ablation(
        "with failures from before a release",
        "what a tool failed before its release, in the log, holds nobody's calls",
        1000,
        {"aetheris.ledger.core.quarantine.Quarantine.counts": _always(value=True)},
    ),
    Ablation(
        "with a restart that reports no ended node",
        "who restarts reports the nodes that had ended and were not reported",
        300,
        {"aetheris.planner.core.partition.Partition.recover": _unreported},
    ),
    Ablation(
        "with a ledger that takes nothing up",
        "a ledger that restarts goes on with every call that is open",
        300,
        {"aetheris.ledger.core.due_times.DueTimes.put_all": _always(None)},
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
        {"aetheris.protocol.fold.start.is_held": _always(value=False)},
    ),
    Ablation(
        "with reports that need no word",
        "how a try ended counts with its word only",
        100,
        {"aetheris.protocol.fold.rules.is_proved_end": _always(value=True)},
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
    Ablation(
        "with a freeze that only its readers keep",
        "a `started` behind a job's freeze is void (ledger and executor keep to what is ordered all the same)",
        1000,
        {"aetheris.protocol.fold.start.frozen_by": _always(None)},
    ),
    _forged(
        "with records that nobody signs",
        "what its writer has not signed is void",
        100,
        "fold.provenance.Provenance._is_their_writers",
        _always(value=True),
    ),
    _forged(
        "with whoever is certified",
        "a key signs only what the table says its service writes",
        300,
        "fold.provenance._is_signed_by",
        whoever_is_certified,
    ),
    _forged(
        "with certificates of whichever root",
        "a certificate is of the root that the job's birth names",
        300,
        "fold.provenance.is_certified_under",
        under_whichever_root,
    ),
    *(
        _forged(
            f"with signatures for whichever {member}",
            f"a signature is for one {member}",
            600,
            "base.signing.statement",
            without("born" if member == "birth" else member),
        )
        for member in ("birth", "key", "topic", "type", "installation")
    ),
    *(Ablation(*one, compared=False) for one in BIRTHS),
)

NONE = Ablation("nothing left out", "nothing", 0)


@contextmanager
def replaced(functions: Mapping[str, Replace]) -> Generator[None]:
    kept: list[tuple[Any, str, Any]] = []
    try:
        for path, replace in functions.items():
            owner, name = _owner(path)
            kept.append((owner, name, getattr(owner, name)))
            setattr(owner, name, replace(getattr(owner, name)))
        yield
    finally:
        for owner, name, real in reversed(kept):
            setattr(owner, name, real)


def _owner(path: str) -> tuple[Any, str]:
    """The module or class that a dotted path's last part lies in."""
    before, name = path.rsplit(".", 1)
    try:
        return import_module(before), name
    except ModuleNotFoundError:
        module, cls = before.rsplit(".", 1)
        return getattr(import_module(module), cls), name
