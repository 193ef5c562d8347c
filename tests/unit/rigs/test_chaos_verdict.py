"""The count of a chaos run: each way in which the promise could be broken is seen."""

from collections.abc import Iterable
from typing import Any

from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from aetheris.rigs.chaos.observer import Seen
from aetheris.rigs.chaos.schedule import Fault, Kind, Struck
from aetheris.rigs.chaos.verdict import Verdict, verdict
from tests.testkit.histories import JOB, about, created, finished, fold, graph, planned, started

NODES = ("idempotent", "probeable", "opaque")
TOOLS = {name: {"effect_class": name} for name in NODES}
PLAN = planned(graph(*({"id": name, "tool": name} for name in NODES), **TOOLS))
DONE = [event for n in NODES for event in (started(n, f"{n}-1", tool=n), finished(n, f"{n}-1", tool=n))]
END = ev.JobCompleted(job_id=JOB)


def effects(*keys: tuple[str, str]) -> list[dict[str, str]]:
    return [{"tag": f"0/{node}", "key": key} for node, key in keys]


def counted(events: Iterable[Event], calls: list[dict[str, str]], *struck: Struck) -> Verdict:
    history = [PLAN, *events]
    seen = Seen(fold(*history), [(float(place), event) for place, event in enumerate([created(), *history])])
    return verdict({JOB: 0}, {JOB: seen}, calls, struck)


ONCE = effects(("idempotent", "k"), ("probeable", "k"), ("opaque", "k"))


def parked(tool: str = "opaque", **more: Any) -> list[Event]:
    others = [event for event in DONE if getattr(event, "node_id", "") != tool]
    doubt = about(ev.InvocationInDoubt, tool, tool=tool, invocation_id="n", error_class="worker_ended")
    park = about(ev.InvocationParked, tool, tool=tool, invocation_id="n", reason="r", **more)
    return [*others, started(tool, "n", tool=tool), doubt, park]


def test_once_each_holds() -> None:
    found = counted([*DONE, END], ONCE)
    assert (found.holds, found.expected, found.observed, found.completed) == (True, 3, 3, 1)


def test_a_repeat_under_the_same_key_is_no_duplicate_of_an_idempotent_call_only() -> None:
    assert counted([*DONE, END], ONCE + effects(("idempotent", "k"))).repeats == 1
    assert counted([*DONE, END], ONCE + effects(("idempotent", "k"))).holds
    assert len(counted([*DONE, END], ONCE + effects(("idempotent", "k2"))).duplicates) == 1
    assert len(counted([*DONE, END], ONCE + effects(("probeable", "k"))).duplicates) == 1
    assert not counted([*DONE, END], ONCE + effects(("opaque", "k"))).holds


def test_what_is_recorded_as_done_and_is_not_there_is_lost() -> None:
    found = counted([*DONE, END], ONCE[:2])
    assert (len(found.lost), found.holds) == (1, False)


def test_a_job_that_neither_ended_nor_waits_is_stuck() -> None:
    assert not counted(DONE[:3], ONCE).holds
    assert counted(DONE[:3], ONCE).stuck == [f"{JOB}: idempotent settled, probeable started"]
    assert verdict({JOB: 0}, {}, [], []).stuck == [f"{JOB}: never born"]


def test_an_opaque_call_may_park_where_a_fault_of_its_own_hit_it() -> None:
    kill = Fault(3, Kind.KILL, "w")
    at_s = 6.0
    found = counted(parked(), ONCE, Struck(kill, "w", at_s, at_s))
    assert (found.holds, found.parked[0].fault, found.in_doubt[0].ended) == (True, "3 kill -9 w", "parked")
    assert not counted(parked(), ONCE).holds
    assert not counted(parked(), ONCE, Struck(kill, "another", at_s, at_s)).holds
    assert not counted(parked(), ONCE, Struck(kill, "w", 90.0, 90.0)).holds
    assert not counted(parked(), ONCE, Struck(kill, "w", at_s, at_s, left_out="it could not be done")).holds


def test_a_probeable_call_may_park_only_while_its_worker_may_act() -> None:
    absent = effects(("idempotent", "k"), ("opaque", "k"))
    assert counted(parked("probeable"), absent).holds
    found = counted(parked("probeable"), ONCE)
    assert (found.holds, found.settleable) == (False, [f"{JOB} probeable: parked, and its effect is there to be found"])
    ended = ev.WorkerEnded(job_id=JOB, worker_id="w", incarnation="i1", how="lock")
    assert not counted([*parked("probeable"), ended], absent).holds


def test_an_idempotent_call_is_never_left_to_a_human() -> None:
    assert len(counted(parked("idempotent"), ONCE).settleable) == 1


def test_a_step_of_a_cancelled_job_need_not_have_an_effect() -> None:
    cancelled = ev.JobCancelled(job_id=JOB, by="ann", reason="r")
    found = counted([*DONE[:2], cancelled], ONCE[:1])
    assert (found.holds, found.called_off, found.observed) == (True, 2, 1)
    assert counted([*DONE, cancelled], ONCE[:1]).lost


def test_a_parked_step_without_an_effect_waits_and_is_not_lost() -> None:
    found = counted(parked(), ONCE[:2], Struck(Fault(0, Kind.RESET), "", 0.0, 20.0))
    assert (found.waiting, found.observed, found.holds) == (1, 2, True)
