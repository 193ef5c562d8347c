"""What came behind a seal: who is looked at, when an amendment may be made, and up to where the log is held."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from aetheris.proofs.due_amendments import DueAmendment
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.messages.events import JobCompleted
from aetheris.verifier.core.amendments import LONGEST_PAUSE, LateJobs, may_amend_at
from aetheris.verifier.core.partition import Partition
from tests.testkit.histories import JOB, created, finished
from tests.unit.verifier.test_verifier_core import SEAL, record, take

AT = "2026-01-01T00:00:00+00:00"


def sealed_before(start: int) -> Partition:
    """Who restarts there knows nothing of a job that was sealed below."""
    partition = Partition()
    partition.begin(start)
    return partition


def due(first: str, last: str) -> DueAmendment:
    return DueAmendment(first_sealed_at=first, last_sealed_at=last, offsets=(7,), stated={})


def later(moment: str, **by: float) -> str:
    return (datetime.fromisoformat(moment) + timedelta(**by)).isoformat()


def test_what_comes_behind_a_seal_holds_the_log_from_there() -> None:
    partition = Partition()
    for offset, event in enumerate((created(), JobCompleted(job_id=JOB), SEAL.model_copy(update={"event_count": 2}))):
        take(partition, event, offset)
    assert [*partition.live()] == []
    take(partition, finished("a", "n1"), 9)
    take(partition, finished("a", "n2"), 12)
    assert [*partition.live()] == [(JOB, 9)]
    job = partition.late.next_due(0.0)
    assert job is not None
    partition.late.settle(job, 9)
    assert [*partition.live()] == [(JOB, 10)], "the second has not been looked at"
    partition.late.settle(job, 12)
    assert [*partition.live()] == []


def test_who_restarts_looks_at_what_lies_above_the_mark_and_at_no_more() -> None:
    """What lies below was seen to by who set the mark: it would lie lower else."""
    partition = sealed_before(1000)
    take(partition, finished("a", "n1"), 1000 + REACH - 1)
    assert [*partition.live()] == []
    take(partition, finished("a", "n1"), 1000 + REACH)
    assert [*partition.live()] == [(JOB, 1000 + REACH)]
    fresh = sealed_before(1000)
    fresh.restored()
    take(fresh, finished("a", "n1"), 1001)
    assert [*fresh.live()] == [(JOB, 1001)], "nobody has read before what comes when all is read"


def test_who_reads_from_the_first_record_looks_at_all_of_it() -> None:
    partition = sealed_before(0)
    take(partition, finished("a", "n1"), 3)
    assert [*partition.live()] == [(JOB, 3)]


def test_an_amendment_is_looked_at_for_another_auditor_may_have_made_one_beside_it() -> None:
    partition = Partition()
    take(partition, SEAL, 3)
    assert [*partition.live()] == []
    take(partition, SEAL.model_copy(update={"amends": "0" * 64, "consistency": ()}), 4)
    assert [*partition.live()] == [(JOB, 4)]


def test_what_is_no_end_makes_nobody_look() -> None:
    partition = Partition()
    for offset, event in enumerate((JobCompleted(job_id=JOB), SEAL)):
        partition.evolve(record(event, offset).replaced(value=b"\xff"), event.event_type)
    assert [*partition.live()] == []


@pytest.mark.parametrize(
    ("last", "pause"),
    [
        (AT, timedelta(0)),
        (later(AT, seconds=3), timedelta(seconds=3)),
        (later(AT, minutes=20), timedelta(minutes=20)),
        (later(AT, days=3), LONGEST_PAUSE),
        (later(AT, days=-3), timedelta(0)),
    ],
    ids=["first", "at once", "minutes", "days", "back"],
)
def test_amendments_come_ever_more_seldom(last: str, pause: timedelta) -> None:
    assert may_amend_at(due(AT, last)) == datetime.fromisoformat(last) + pause


def test_times_that_are_none_hold_nothing_up() -> None:
    assert may_amend_at(due("once", AT)) is None


def test_whose_look_was_due_first_comes_first() -> None:
    late = LateJobs()
    for name, due_s in (("a", 3.0), ("b", 1.0), ("c", float("inf"))):
        late.note(name, 1)
        job = late.next_due(0.0)
        assert job is not None
        late.look_at(job, due_s)
    asked: Callable[[float], str | None] = lambda now_s: None if (one := late.next_due(now_s)) is None else one.job_id  # noqa: E731
    assert [asked(0.5), asked(2.0), asked(9.0)] == [None, "b", "b"]
    assert late.next_s() == 1.0
