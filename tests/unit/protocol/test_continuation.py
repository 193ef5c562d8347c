"""What of an ended job's stream counts for the job that continues it: its end, its seal, and late evidence."""

from typing import Any

import pytest

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.state import Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.planning.continuation import EndedJob, NotContinuable, continues, ended
from tests.testkit import histories as h

PLAN = h.planned(h.graph({"id": "a"}, {"id": "b"}))
DONE = (h.started("a", "n-a"), h.finished("a", "n-a", result={"x": 7}))
END = ev.JobFailed(job_id=h.JOB, error="b failed", node_id="b")


def seal(count: int = 5, **changed: Any) -> ev.JobSealed:
    return h.sealed().model_copy(update={"event_count": count, "root": "r", "key_id": "k"} | changed)


def read(*events: ev.Event) -> EndedJob:
    found = ended(stream(h.created(), PLAN, *events))
    assert found is not None
    return found


def stream(*events: ev.Event) -> list[Record]:
    records: list[Record] = []
    for offset, event in enumerate(events):
        made = draft(Topic.JOBS_EVENTS, event, key=h.JOB, id=f"e{offset}", source="test", time="")
        records.append(Record(Topic.JOBS_EVENTS, 0, offset, 0, made.key, made.headers, made.value))
    return records


def test_the_first_seal_that_can_be_its_own_counts() -> None:
    own = seal()
    found = read(*DONE, END, own, seal(root="other"))
    assert (found.seal, found.job.terminal) == (own, END)
    assert [one.node_id for one in continues(found).adopted] == ["a"]


@pytest.mark.parametrize(
    "forged",
    [seal(tenant="umbrella"), seal(job_id="job-0"), seal(6), seal(0), seal(-1)],
    ids=["another tenant's", "another job's", "of more than there is", "of nothing", "of less"],
)
def test_a_seal_that_cannot_be_its_own_is_passed_over(forged: ev.JobSealed) -> None:
    lone = read(*DONE, END, forged)
    assert lone.seal is None
    with pytest.raises(NotContinuable) as refused:
        continues(lone)
    assert refused.value.code == "not_sealed"
    own = seal()
    assert read(*DONE, END, forged, own).seal == own


def test_a_seal_ahead_of_the_end_is_none() -> None:
    assert read(*DONE, seal(4), END).seal is None
    own = seal(6)
    assert read(*DONE, seal(4), END, own).seal == own


def test_what_lies_behind_the_seal_changes_no_plan_and_no_arguments() -> None:
    late = h.planned(h.graph({"id": "c"}), 1)
    asked: dict[str, Any] = {"args_hash": "x", "tool_version": "1", "rule": "r"}
    edit = (
        h.about(ev.ApprovalRequested, "b", form={}, **asked),
        h.about(ev.ApprovalDecided, "b", decision=Decision.EDIT, approver="eve", data={"to": "eve"}, **asked),
    )
    found = read(*DONE, END, seal(), late, *edit, ev.JobCompleted(job_id=h.JOB))
    entry = found.job.entry("b")
    assert entry is not None
    assert (list(found.job.entries), entry.node.args, found.job.terminal) == (["a", "b"], {}, END)


def test_a_report_that_comes_behind_the_seal_is_evidence() -> None:
    """A person had found that it was not executed, and it was: nobody runs it again without another word."""
    parked = h.about(ev.InvocationParked, "b", invocation_id="n-b", reason="?")
    denied = h.finished("b", "n-b", "permanent_failure", via="human")
    reported = (*DONE, h.started("b", "n-b"), parked, denied, END, seal(8))
    assert continues(read(*reported))
    late = read(*reported, h.finished("b", "n-b", via="late"))
    assert late.job.keys[h.key_of("b")].outcome is Settled.FAILED
    with pytest.raises(NotContinuable) as refused:
        continues(late)
    assert (refused.value.code, refused.value.details) == ("unsure", {"nodes": ["b"]})


def test_what_was_never_born_or_is_of_a_newer_version_is_not_continued() -> None:
    assert ended([]) is None
    assert ended(stream(PLAN, END)) is None
    records = stream(h.created(), PLAN, *DONE, END, seal())
    newer = [(name, b"io.aetheris.job_failed.v9" if name == "ce_type" else value) for name, value in records[3].headers]
    records[3] = Record(Topic.JOBS_EVENTS, 0, 3, 0, records[3].key, tuple(newer), records[3].value)
    found = ended(records)
    assert found is not None
    with pytest.raises(NotContinuable, match="newer version"):
        continues(found)
