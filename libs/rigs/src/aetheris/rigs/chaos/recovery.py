"""How long a killed service was missed (pure).

An executor: by each call that it had open, until that call was settled, reopened or parked. Any other service: until
the next event that takes it, of whichever job; where there was nothing to do that counts as missed too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from aetheris.rigs.chaos.observer import ObservedJob
from aetheris.rigs.chaos.schedule import FaultKind, Struck
from aetheris.runtime.process.installation import process_of

EXECUTOR = "executor"
_MOVES = (ev.ToolInvocationFinished, ev.InvocationReopened, ev.InvocationParked)
_TAKES: Mapping[str, tuple[type[Event], ...]] = {
    "planner": (ev.JobCreated, ev.PlanGenerated, ev.NodeFinished, ev.JobCompleted),
    "ledger": (ev.ToolInvocationStarted,),
    "gateway": (ev.JobCreated,),
    "prober": (ev.InvocationProbed, ev.EffectConfirmed, ev.ConfirmationFailed),
    "verifier": (ev.JobSealed,),
}


@dataclass(frozen=True)
class Recovery:
    """Of one kind of service: each time that it was missed, in seconds."""

    service: str
    missed_s: tuple[float, ...]

    @property
    def p50_s(self) -> float:
        """The median."""
        return median(self.missed_s)

    @property
    def max_s(self) -> float:
        """The longest."""
        return max(self.missed_s)


def recoveries(seen: Mapping[str, ObservedJob], struck: Sequence[Struck]) -> list[Recovery]:
    """One for each kind of service that was killed and missed, the executor first."""
    missed: dict[str, list[float]] = {EXECUTOR: []}
    for one in struck:
        if one.fault.kind is FaultKind.KILL and one.left_out is None:
            service = one.target.rpartition("-")[0]
            missed.setdefault(service, []).extend(
                _of_calls(seen, one) if service == EXECUTOR else _of_service(seen, one, _TAKES[service])
            )
    return [Recovery(service, tuple(times)) for service, times in missed.items() if times]


def _of_calls(seen: Mapping[str, ObservedJob], kill: Struck) -> Iterator[float]:
    for job in seen.values():
        for key in _open_at(job, kill):
            ends = (at_s for at_s, event in job.events if at_s > kill.begun_s and _moves(event, key))
            if (ended_s := next(ends, None)) is not None:
                yield ended_s - kill.begun_s


def _open_at(job: ObservedJob, kill: Struck) -> list[str]:
    """The keys of the calls that the killed executor was at."""
    at_work: dict[str, str] = {}
    for at_s, event in job.events:
        if at_s > kill.begun_s:
            break
        if isinstance(event, ev.ToolInvocationStarted):
            at_work[event.idempotency_key] = process_of(event.worker_id)
        elif isinstance(event, _MOVES):
            at_work.pop(event.idempotency_key, None)
    return [key for key, process in at_work.items() if process == kill.target]


def _moves(event: Event, key: str) -> bool:
    return isinstance(event, _MOVES) and event.idempotency_key == key


def _of_service(seen: Mapping[str, ObservedJob], kill: Struck, takes: tuple[type[Event], ...]) -> list[float]:
    signs = [
        at_s for job in seen.values() for at_s, event in job.events if at_s > kill.begun_s and isinstance(event, takes)
    ]
    return [min(signs) - kill.begun_s] if signs else []
