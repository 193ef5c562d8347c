"""How long a killed service was missed."""

from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from aetheris.rigs.chaos.observer import ObservedJob
from aetheris.rigs.chaos.recovery import recoveries
from aetheris.rigs.chaos.schedule import FaultKind, ScheduledFault, Struck
from tests.testkit.histories import JOB, created, finished, fold, graph, planned, started

PLAN = planned(graph({"id": "a"}, {"id": "b"}))
START = started("a", "n1").model_copy(update={"worker_id": "executor-0"})


def seen(*events: tuple[float, Event]) -> dict[str, ObservedJob]:
    return {JOB: ObservedJob(fold(PLAN), [(0.0, created()), (0.0, PLAN), *events])}


def killed(target: str, at_s: float) -> Struck:
    return Struck(ScheduledFault(0, FaultKind.KILL, target), target, at_s, at_s)


def missed(history: dict[str, ObservedJob], *struck: Struck) -> dict[str, tuple[float, ...]]:
    return {one.service: one.missed_s for one in recoveries(history, struck)}


def test_an_executor_is_missed_by_the_calls_it_had_open() -> None:
    history = seen((1.0, START), (5.0, finished("a", "n1")))
    assert missed(history, killed("executor-0", 2.0)) == {"executor": (3.0,)}
    assert missed(history, killed("executor-1", 2.0)) == {}
    assert missed(history, killed("executor-0", 0.5), killed("executor-0", 6.0)) == {}


def test_another_service_is_missed_until_the_next_event_that_takes_it() -> None:
    history = seen((1.0, START), (4.0, ev.JobCompleted(job_id=JOB)))
    assert missed(history, killed("ledger-0", 0.5), killed("planner-0", 2.0)) == {"ledger": (0.5,), "planner": (2.0,)}
    assert missed(history, killed("verifier-0", 2.0)) == {}
