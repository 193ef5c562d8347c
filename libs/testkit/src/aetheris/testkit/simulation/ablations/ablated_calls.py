"""Ablations of what keeps a call from being made twice: the log's order, births, keys, and guards."""

from collections.abc import Callable
from typing import Any

from aetheris.protocol.fold.state import JobState, KeyState, PlanEntry
from aetheris.testkit.simulation.ablations.ablation import Ablation, always
from aetheris.tool_executor.core.tries import DeclaredInvocation


def without_birth_in_executor(real: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever birth a grant names, the fold's own is taken for it."""

    def in_force(core: Any, grant: Any, node_id: str) -> Any:
        job = core.jobs.get(grant.job_id)
        return real(core, grant if job is None else grant.model_copy(update={"birth": job.creation_offset}), node_id)

    return in_force


def without_birth_in_read_back(_: Callable[..., Any]) -> Callable[..., Any]:
    def born(core: Any, invocation: DeclaredInvocation) -> Any:
        return core.jobs.get(invocation.started.job_id)

    return born


def without_birth_in_ledger(real: Callable[..., Any]) -> Callable[..., Any]:
    def in_force(job: Any, request: Any) -> Any:
        return real(job, request.model_copy(update={"birth": job.state.creation_offset}))

    return in_force


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


CALLS: tuple[Ablation, ...] = (
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
            "aetheris.protocol.fold.start._node_is_taken": always(None),
            "aetheris.ledger.core.adjudication._is_known": always(value=False),
            "aetheris.ledger.core.adjudication._blocked_by": always(None),
            "aetheris.planner.core.ready_nodes.is_untouched": always(value=True),
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
            "aetheris.protocol.fold.revisions._compensates": always(value=True),
        },
    ),
    Ablation(
        "without the guard beyond a job",
        "an equal irreversible call of another job in the session or tenant, done, or under way",
        600,
        {
            "aetheris.ledger.core.adjudication._done_elsewhere": always(None),
            "aetheris.ledger.core.adjudication._wait_for_another": always(None),
        },
    ),
    Ablation(
        "with a line of a call that is over",
        "an open line that lands behind the end of its call is followed by how the call stands",
        600,
        {"aetheris.ledger.core.outdated_lines.OutdatedLines._corrected": always(None)},
    ),
    Ablation(
        "with an executor that nobody hears of",
        "a call that waits for an executor goes on when one comes that serves it",
        300,
        {"aetheris.ledger.core.placement.CallPlacement.changed": always(value=False)},
    ),
)
