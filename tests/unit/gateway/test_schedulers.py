"""What is kept, and shown, of what schedulers tell: who lies, comes often, comes back or never comes again."""

from datetime import UTC, datetime, timedelta

import pytest

from aetheris.gateway.core.problems import ConflictProblem
from aetheris.gateway.core.schedulers import (
    KEPT,
    MOST_SCHEDULERS,
    JobStanding,
    ToldScheduler,
    field_of,
    read,
    replacement,
    shown,
)
from aetheris.protocol.api_schedules import RefusedStart, SchedulerReport, StartedJob, ToldStart

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LAST = StartedJob(job_id="job-1", at=NOW, occasion="due 12:00")


def report(scheduler: str = "s-0", **more: object) -> SchedulerReport:
    start = ToldStart(kind="schedule", name="nightly", when="30 2 * * *", next_at=NOW + timedelta(hours=1))
    return SchedulerReport.model_validate({"scheduler": scheduler, "starts": (start.model_copy(update=more),)})


def kept(*told: ToldScheduler) -> dict[str, ToldScheduler]:
    return {field_of(one.by, one.report.scheduler): one for one in told}


def test_what_a_scheduler_has_forgotten_since_a_restart_is_kept() -> None:
    refused = RefusedStart(code="bad_plan", at=NOW, occasion="due 11:00")
    before = ToldScheduler(by="ann", at=NOW, report=report(last=LAST, refused=refused))
    (start,) = replacement(kept(before), "ann", report(), NOW).told.report.starts
    assert (start.last, start.refused) == (LAST, refused)
    later = LAST.model_copy(update={"job_id": "job-2"})
    (start,) = replacement(kept(before), "ann", report(last=later), NOW).told.report.starts
    assert (start.last, start.refused) == (later, refused)
    (start,) = replacement(kept(before), "bob", report(), NOW).told.report.starts
    assert start.last is None, "another principal's scheduler of the same name is another one"


def test_a_file_that_can_not_be_used_leaves_what_there_was_and_says_why() -> None:
    before = ToldScheduler(by="ann", at=NOW, report=report(last=LAST))
    fault = SchedulerReport(scheduler="s-0", fault="starts.toml:3: schedule 1: cron: five fields")
    told = replacement(kept(before), "ann", fault, NOW).told
    (view,) = shown([told], "t", {}, NOW)
    assert view.fault == fault.fault
    assert [(one.name, one.next_at) for one in view.starts] == [("nightly", None)]


def test_a_job_is_shown_only_beside_the_scheduler_that_submitted_it_in_its_own_tenant() -> None:
    told = ToldScheduler(by="ann", at=NOW, report=report(last=LAST))
    for standing, status in (
        (JobStanding("t", "ann", "failed"), "failed"),
        (JobStanding("other", "ann", "failed"), None),
        (JobStanding("t", "bob", "failed"), None),
    ):
        (view,) = shown([told], "t", {"job-1": standing}, NOW)
        assert view.starts[0].last is not None
        assert view.starts[0].last.status == status


def test_one_that_tells_nothing_any_more_is_silent_and_then_gone() -> None:
    told = ToldScheduler(by="ann", at=NOW, report=report())
    assert [one.is_heard for one in shown([told], "t", {}, NOW + timedelta(seconds=170))] == [True]
    assert [one.is_heard for one in shown([told], "t", {}, NOW + timedelta(seconds=190))] == [False]
    gone = NOW + KEPT + timedelta(seconds=1)
    assert shown([told], "t", {}, gone) == ()
    assert replacement(kept(told), "ann", report("s-1"), gone).gone == (field_of("ann", "s-0"),)


def test_however_many_names_one_principal_makes_up_few_are_kept() -> None:
    many = kept(*(ToldScheduler(by="ann", at=NOW, report=report(f"s-{at}")) for at in range(MOST_SCHEDULERS)))
    with pytest.raises(ConflictProblem, match="8 others"):
        replacement(many, "ann", report("new"), NOW + timedelta(seconds=60))
    assert replacement(many, "ann", report("s-3"), NOW + timedelta(seconds=60)).gone == ()
    assert replacement(many, "bob", report("new"), NOW).gone == ()
    assert len(replacement(many, "ann", report("new"), NOW + timedelta(seconds=200)).gone) == 1


def test_what_can_not_be_read_is_none() -> None:
    told = ToldScheduler(by="ann", at=NOW, report=report())
    assert read({"a": b"{", "b": b"[]", "c": told.model_dump_json().encode()}) == {"c": told}
