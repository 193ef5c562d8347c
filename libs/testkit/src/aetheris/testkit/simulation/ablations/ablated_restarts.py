"""Ablations of how a process that starts knows what was: checkpoints, marks, what is taken up again."""

from collections.abc import Callable
from typing import Any

from aetheris.testkit.simulation.ablations.ablation import Ablation, always


def _further_than_read(real: Callable[..., Any]) -> Callable[..., Any]:
    """A checkpoint is taken to reach some records further than it does."""

    def reached(chain: Any, end: int | None = None) -> Any:
        found = real(chain, end)
        if found is not None:
            found.as_of = min(found.as_of + 4, end - 1 if end is not None else found.as_of + 4)
        return found

    return reached


def _unreported(real: Callable[..., Any]) -> Callable[..., Any]:
    """Who restarts takes what had ended for reported."""

    def recover(core: Any, now_s: float = 0.0) -> Any:
        for progress in core.jobs.each():
            progress.settled.clear()
        return real(core, now_s)

    return recover


def _passed_over(_: Callable[..., Any]) -> Callable[..., Any]:
    """What can't be read is taken for a record of a type that says nothing here."""

    def needs_upgrade(core: Any, _job_id: str, offset: int, **_more: Any) -> None:
        if hasattr(core, "pass_over"):
            core.pass_over(offset)

    return needs_upgrade


_CANNOT_READ = tuple(
    f"aetheris.{name}.core.partition.Partition.needs_upgrade" for name in ("planner", "ledger", "tool_executor")
)


RESTARTS: tuple[Ablation, ...] = (
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
        {"aetheris.runtime.worker.checkpoints.Checkpoints._needed": always(1 << 60)},
    ),
    Ablation(
        "with a restart that reports no ended node",
        "who restarts reports the nodes that had ended and were not reported",
        300,
        {"aetheris.planner.core.partition.Partition.recover": _unreported},
    ),
    Ablation(
        "with a record of a later version passed over",
        "a job waits behind a record that its reader cannot read",
        100,
        dict.fromkeys(_CANNOT_READ, _passed_over),
    ),
    Ablation(
        "with a ledger that forgets what is asked of a job that it cannot read",
        "what is asked of a job that its ledger cannot read is kept for who can",
        700,
        {"aetheris.ledger.core.node_requests.NodeRequests.waits_for_upgrade": always(False)},
    ),
    Ablation(
        "with a ledger that takes nothing up",
        "a ledger that restarts goes on with every call that is open",
        300,
        {"aetheris.ledger.core.due_times.DueTimes.put_all": always(None)},
    ),
)
