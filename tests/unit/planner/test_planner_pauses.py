"""A paused job: nothing more is planned or asked for; each word is about one pause, and does its work once."""

from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, ListedPause, Pause, Resume
from tests.testkit.histories import JOB, TENANT
from tests.testkit.planners import (
    CHAIN,
    WIDE,
    Planner,
    PlannerSurroundings,
    events_of,
    of_type,
    ran,
    requests,
    started_planner,
    submit,
)
from tests.unit.planner.test_planner_compensation import DONE, FAILED, PLAN
from tests.unit.planner.test_planner_stuck import AFTER_S


def pause(number: int = 1, by: str = "bob") -> Pause:
    return Pause(job_id=JOB, by=by, tenant=TENANT, number=number, reason="look")


def resume(number: int = 1, by: str = "bob") -> Resume:
    return Resume(job_id=JOB, by=by, tenant=TENANT, number=number)


def hear(planner: Planner, command: Pause | Resume, command_id: str = "cmd-9", offset: int = 9) -> Planner:
    word = planner.core.pause(command, command_id, offset)
    planner.write([word] if word is not None else [])
    return planner.settle()


def ended(surroundings: PlannerSurroundings) -> list[str]:
    return [one.event_type for one in surroundings.log if isinstance(one, ev.TERMINAL)]


def test_the_pause_is_recorded_with_who_and_why_and_nothing_is_asked_for_until_it_is_over() -> None:
    planner = started_planner(WIDE).happens(ran("a")[0], ran("b")[0])
    planner.take()
    hear(planner, pause())
    (recorded,) = of_type(planner.surroundings, ev.JobPaused)
    assert (recorded.number, recorded.by, recorded.reason, recorded.caused_by) == (1, "bob", "look", "cmd-9")
    planner.happens(ran("a")[1], ran("b")[1])
    assert requests(planner.take()) == []
    listed = planner.surroundings.index[JOB]
    assert (listed.status, listed.paused) == ("paused", ListedPause(number=1, by="bob", reason="look"))
    hear(planner, resume(by="eve"), "cmd-10")
    (over,) = of_type(planner.surroundings, ev.JobResumed)
    assert (over.number, over.by) == (1, "eve")
    assert [one.body.nodes for one in requests(planner.take())] == [("c",)]
    assert (planner.surroundings.index[JOB].status, planner.surroundings.index[JOB].paused) == ("running", None)


def test_what_was_asked_for_before_is_asked_for_again_behind_the_end_also_after_a_restart() -> None:
    planner = started_planner(CHAIN)
    planner.take()
    hear(planner, pause())
    assert requests(planner.surroundings.planner().restore().take()) == []
    hear(planner, resume(), "cmd-10")
    assert [one.body.nodes for one in requests(planner.take())] == [("a", "b", "c")]


def test_of_two_at_once_the_first_counts_and_words_that_come_late_or_again_do_nothing() -> None:
    planner = started_planner(CHAIN)
    for number, words in enumerate(((pause(), pause(by="eve")), (resume(), resume(by="eve"))), 1):
        for word in words:
            decided = planner.core.pause(word, f"cmd-{number}-{word.by}", 9)
            planner.write([decided] if decided is not None else [])
        planner.settle()
    for late in (pause(), resume()):
        hear(planner, late)
        hear(planner.surroundings.planner().restore(), late)
    assert [
        (one.event_type, one.by) for one in planner.surroundings.log if isinstance(one, ev.JobPaused | ev.JobResumed)
    ] == [
        ("job_paused", "bob"),
        ("job_resumed", "bob"),
    ]
    hear(planner, pause(2), "cmd-11")
    hear(planner, resume(1), "cmd-12")
    listed = planner.surroundings.index[JOB]
    assert (listed.status, listed.paused and listed.paused.number) == ("paused", 2)


def test_a_word_about_what_is_not_folded_yet_is_held_and_read_again_after_a_restart() -> None:
    planner = started_planner(CHAIN)
    paused = planner.core.pause(pause(), "cmd-9", 40)
    assert paused is not None
    assert planner.core.pause(resume(), "cmd-10", 41) is None
    assert planner.core.low_water() == 41
    planner.write([paused])
    planner.settle()
    assert planner.core.low_water() is None
    assert len(of_type(planner.surroundings, ev.JobResumed)) == 1


def test_a_word_before_the_birth_is_folded_is_held() -> None:
    planner = PlannerSurroundings().planner()
    planner.submit(submit(CHAIN))
    assert planner.core.pause(pause(), "cmd-9", 40) is None
    planner.settle()
    assert len(of_type(planner.surroundings, ev.JobPaused)) == 1
    assert planner.core.pause(Pause(job_id="unknown", by="bob", tenant=TENANT, number=1), "cmd-9", 41) is None
    assert planner.core.low_water() is None


def test_a_job_whose_last_step_settles_under_a_pause_is_complete() -> None:
    planner = started_planner(CHAIN).happens(*ran("a"), *ran("b"), ran("c")[0])
    hear(planner, pause())
    planner.happens(ran("c")[1])
    assert ended(planner.surroundings) == ["job_completed"]


def test_a_failure_under_a_pause_stops_the_job_and_undoes_nothing_until_it_is_resumed() -> None:
    planner = started_planner(PLAN).happens(*DONE, FAILED[0])
    hear(planner, pause())
    planner.happens(FAILED[1])
    assert len(of_type(planner.surroundings, ev.JobStopping)) == 1
    assert len(of_type(planner.surroundings, ev.PlanGenerated)) == 1
    assert ended(planner.surroundings) == []
    hear(planner, resume(), "cmd-10")
    assert len(of_type(planner.surroundings, ev.PlanGenerated)) == 2


def test_a_cancel_ends_the_pause_and_what_it_undoes_goes_on() -> None:
    planner = started_planner(PLAN).happens(*DONE)
    hear(planner, pause())
    planner.cancel(Cancel(job_id=JOB, by="eve", tenant=TENANT, compensate=True))
    planner.settle()
    assert requests(planner.take())[-1].body.nodes == ("b.undo", "a.undo")
    hear(planner, pause(2), "cmd-11")
    assert len(of_type(planner.surroundings, ev.JobPaused)) == 1


def test_a_paused_job_is_not_stuck_but_what_is_under_way_of_it_may_be() -> None:
    planner = started_planner(CHAIN)
    hear(planner, pause())
    assert planner.core.stuck(10 * AFTER_S) == []
    assert planner.core.watch.moving == 0
    hear(planner, resume(), "cmd-10")
    planner.happens(ran("a")[0])
    hear(planner, pause(2), "cmd-11")
    assert len(planner.core.stuck(100 * AFTER_S)) == 1
    assert events_of(planner.take())[-1] != "job_completed"
