"""What a pause holds back, and which word on it counts: the next one by its number, whoever says it, however late."""

import pytest

from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import JobState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from tests.testkit.histories import JOB, finished, fold, graph, key_of, planned, started
from tests.testkit.tries import try_of

PLAN = planned(graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}))
CANCEL = ev.CancelRequested(job_id=JOB, by="ann", compensate=True)


def paused(number: int = 1, by: str = "bob") -> ev.JobPaused:
    return ev.JobPaused(job_id=JOB, number=number, by=by, reason="look")


def resumed(number: int = 1, by: str = "bob") -> ev.JobResumed:
    return ev.JobResumed(job_id=JOB, number=number, by=by)


def by_whom(job: JobState) -> str | None:
    return job.paused.by if job.paused is not None else None


def test_a_start_behind_a_pause_is_void_and_counts_behind_its_end() -> None:
    assert start_is_void(fold(PLAN, paused()), started("a", "n1")) == "the job is paused"
    assert start_is_void(fold(PLAN, paused(), resumed()), started("a", "n1")) is None


def test_what_is_under_way_settles() -> None:
    job = fold(PLAN, started("a", "n1"), paused(), finished("a", "n1"))
    assert job.keys[key_of("a")].outcome is Settled.SUCCESS
    again = ev.InvocationReopened(
        job_id=JOB, node_id="a", idempotency_key=key_of("a"), invocation_id=try_of("n1"), next_token=2, by="policy"
    )
    job = fold(PLAN, started("a", "n1"), paused(), again)
    assert job.keys[key_of("a")].status is KeyStatus.REOPENED
    assert start_is_void(job, started("a", "n2", token=2)) == "the job is paused"


def test_what_was_void_behind_a_pause_stays_void_when_it_comes_again_behind_its_end() -> None:
    job = fold(PLAN, paused(), started("a", "n1"), resumed(), started("a", "n1"))
    assert key_of("a") not in job.keys
    assert start_is_void(job, started("a", "n2")) is None


@pytest.mark.parametrize(
    ("events", "by"),
    [
        ((paused(), paused(1, "eve")), "bob"),
        ((paused(), paused(2, "eve")), "bob"),
        ((paused(2),), None),
        ((paused(), resumed(), paused(1, "eve")), None),
        ((paused(), resumed(), paused(2, "eve")), "eve"),
        ((paused(), resumed(), paused(2, "eve"), resumed(1)), "eve"),
        ((paused(), resumed(2)), "bob"),
        ((resumed(), paused()), "bob"),
        ((paused(), CANCEL), None),
        ((CANCEL, paused()), None),
        ((paused(), ev.JobCompleted(job_id=JOB)), None),
        ((ev.JobCompleted(job_id=JOB), paused()), None),
    ],
)
def test_only_the_next_pause_counts_and_only_its_own_end_or_a_cancel_ends_it(
    events: tuple[Event, ...], by: str | None
) -> None:
    assert by_whom(fold(PLAN, *events)) == by
