"""The count of a chaos run: each way in which the promise could be broken is seen."""

from collections.abc import Iterable
from typing import Any

from aetheris.protocol.base.keys import external_key
from aetheris.protocol.fold.workers import Names
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import WorkerEnd
from aetheris.protocol.messages.events import Event
from aetheris.rigs.chaos.observer import ObservedJob
from aetheris.rigs.chaos.schedule import FaultKind, JobPlan, ScheduledFault, Struck
from aetheris.rigs.chaos.verdict import ChaosVerdict, verdict
from tests.testkit.body_histories import with_bodies
from tests.testkit.histories import JOB, about, created, finished, fold, graph, planned, started

NODES = ("idempotent", "probeable", "opaque")
TOOLS = {name: {"effect_class": name} for name in NODES}
PLAN = planned(graph(*({"id": name, "tool": name, "args": {"tag": f"0/{name}"}} for name in NODES), **TOOLS))
DONE = [event for n in NODES for event in (started(n, f"{n}-1", tool=n), finished(n, f"{n}-1", tool=n))]
END = ev.JobCompleted(job_id=JOB)
PLAIN = JobPlan(0, {})


def effects(*keys: tuple[str, str], at_s: float = 0.0) -> list[dict[str, str]]:
    return [{"tag": f"0/{node}", "key": key, "at_s": str(at_s)} for node, key in keys]


def counted(
    events: Iterable[Event],
    calls: list[dict[str, str]],
    *struck: Struck,
    plan: JobPlan = PLAIN,
    names: Names | None = None,
    planned: Event = PLAN,
) -> ChaosVerdict:
    history = [planned, *events]
    seen = ObservedJob(fold(*history), [(float(place), event) for place, event in enumerate([created(), *history])])
    return verdict({JOB: plan}, {JOB: seen}, names or Names(lambda *_: True), calls, struck)


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
    assert verdict({JOB: PLAIN}, {}, Names(lambda *_: True), [], []).stuck == [f"{JOB}: never created"]


def test_a_body_waits_for_what_its_calls_wait_for() -> None:
    nodes = [{"id": name, "tool": name, "args": {"tag": f"0/{name}"}} for name in NODES]
    body = {"id": "body", "kind": "workflow", "tool": "flow", "args": {}}
    plan = with_bodies(graph(*nodes, body, **TOOLS, flow={"effect_class": "pure"}))
    runs = started("body", "b", tool="flow")
    hit = Struck(ScheduledFault(3, FaultKind.KILL, "w"), "w", 5.0, 5.0)
    assert counted([*parked(), runs], ONCE, hit, planned=plan).stuck == []
    assert len(counted([*DONE, runs], ONCE, planned=plan).stuck) == 1


def test_an_opaque_call_may_park_where_a_fault_of_its_own_hit_it() -> None:
    kill = ScheduledFault(3, FaultKind.KILL, "w")
    at_s = 6.0
    found = counted(parked(), ONCE, Struck(kill, "w", at_s, at_s))
    assert (found.holds, found.parked[0].fault, found.in_doubt[0].ended) == (True, "3 kill -9 w", "parked")
    assert not counted(parked(), ONCE).holds
    assert not counted(parked(), ONCE, Struck(kill, "another", at_s, at_s)).holds
    assert not counted(parked(), ONCE, Struck(kill, "w", 90.0, 90.0)).holds
    assert not counted(parked(), ONCE, Struck(kill, "w", at_s, at_s, left_out="it could not be done")).holds


def test_an_opaque_call_may_park_where_its_request_took_most_of_its_time_to_arrive() -> None:
    key = external_key(JOB, "opaque", 0)
    started_s = 6.0
    late, soon = (effects(("opaque", key), at_s=started_s + after_s) for after_s in (2.5, 1.5))
    assert counted(parked(), ONCE[:2] + late).parked[0].fault == "a busy machine: its request arrived after 2.5 s"
    assert not counted(parked(), ONCE[:2] + soon).holds


def test_a_probeable_call_may_park_only_while_its_worker_may_act() -> None:
    absent = effects(("idempotent", "k"), ("opaque", "k"))
    assert counted(parked("probeable"), absent).holds
    ended = ev.WorkerEnded(job_id=JOB, worker_id="w", incarnation="i1", how="lock")
    assert not counted([*parked("probeable"), ended], absent).holds
    text = f"{JOB} probeable: parked, its worker has ended, and there is no effect"
    assert counted([*parked("probeable"), ended], absent).settleable == [text]


def test_a_probeable_call_is_not_left_to_a_human_once_anybody_could_know() -> None:
    absent, key = effects(("idempotent", "k"), ("opaque", "k")), external_key(JOB, "probeable", 0)
    for at_s, since in ((1.0, "when it was parked"), (12.5, "4.5 s later")):
        found = counted(parked("probeable"), absent + effects(("probeable", key), at_s=at_s))
        reported = [f"{JOB} probeable: parked, and its effect is there to be found, since {since}"]
        assert (found.holds, found.settleable) == (False, reported)
    names = Names(lambda *_: True)
    ended = WorkerEnd(worker_id="w", incarnation="i1", by="ann", evidence="seen")
    names.take(ended.key, ended.model_dump_json().encode())
    assert len(counted(parked("probeable"), absent, names=names).settleable) == 1


UNDO = JobPlan(0, {}, cancelled=True, undone=True)
UNDOABLE = planned(
    graph(
        *(
            {
                "id": name,
                "tool": name,
                "args": {"tag": f"0/{name}"},
                "compensate_with": {"tool": "opaque", "args": {"tag": f"0/{name}/undo"}},
            }
            for name in NODES
        ),
        **TOOLS,
    )
)
CANCELLED = ev.JobCancelled(job_id=JOB, by="ann", reason="r")


def test_what_is_undone_is_undone_once_and_nothing_else_is() -> None:
    did, undo = effects(("idempotent", "k")), effects(("idempotent/undo", "u"))

    def after(calls: list[dict[str, str]], end: Event = CANCELLED, done: int = 2) -> ChaosVerdict:
        return counted([*DONE[:done], end], calls, plan=UNDO, planned=UNDOABLE)

    found = after(did + undo)
    assert (found.holds, found.undone, found.to_undo, found.called_off) == (True, 1, 1, 2)
    assert len(after(did).lost) == 1
    assert len(after(did + undo + undo).duplicates) == 1
    assert len(after(undo, done=0).duplicates) == 1
    assert len(after(ONCE + undo, END, done=6).duplicates) == 1
    assert after(ONCE, END, done=6).holds


def test_a_job_that_was_to_fail_has_and_another_has_lost_its_steps() -> None:
    failed = ev.JobFailed(job_id=JOB, error="it always does")
    assert counted([*DONE[:2], failed], ONCE[:1], plan=JobPlan(0, {}, undone=True)).holds
    assert len(counted([*DONE[:2], failed], ONCE[:1]).lost) == 2


def test_a_model_may_go_on_without_a_call_that_surely_failed() -> None:
    failed = [*DONE[:4], started("opaque", "opaque-1", tool="opaque")]
    failed.append(finished("opaque", "opaque-1", "permanent_failure", tool="opaque"))
    found = counted([*failed, END], ONCE[:2], plan=JobPlan(0, {}, goal="[]"))
    assert (found.holds, found.called_off) == (True, 1)
    assert not counted([*failed, END], ONCE[:2]).holds
    assert not counted([*DONE, END], ONCE[:2], plan=JobPlan(0, {}, goal="[]")).holds


def test_a_job_that_a_model_plans_may_fail_before_it_has_asked_for_a_call() -> None:
    over = ev.JobFailed(job_id=JOB, error="limit_failed_turns")
    found = counted([*DONE[:4], over], ONCE[:2], plan=JobPlan(0, {}, goal="[]"))
    assert (found.holds, found.called_off, len(found.failed)) == (True, 1, 1)
    assert len(counted([*DONE[:4], over], ONCE[:2]).lost) == 1


def test_an_idempotent_call_is_never_left_to_a_human() -> None:
    assert len(counted(parked("idempotent"), ONCE).settleable) == 1


def test_a_step_of_a_cancelled_job_need_not_have_an_effect() -> None:
    found = counted([*DONE[:2], CANCELLED], ONCE[:1])
    assert (found.holds, found.called_off, found.observed) == (True, 2, 1)
    assert counted([*DONE, CANCELLED], ONCE[:1]).lost


def test_a_parked_step_without_an_effect_waits_and_is_not_lost() -> None:
    found = counted(parked(), ONCE[:2], Struck(ScheduledFault(0, FaultKind.RESET), "", 0.0, 20.0))
    assert (found.waiting, found.observed, found.holds) == (1, 2, True)
