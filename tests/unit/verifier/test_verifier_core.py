"""What the verifier takes under audit, and when it lets go."""

import gc
import json
import weakref
from pathlib import Path

import pytest

from aetheris.proofs import Audit
from aetheris.proofs.audit import violations_in
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import RULES_BARRIER_KEY
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import Event, JobCompleted, JobSealed, ViolationFound
from aetheris.protocol.tables.rules_orders import PartitionRules
from aetheris.verifier.core.partition import Partition
from tests.testkit.histories import JOB, created, finished, graph, planned, started
from tests.unit.protocol.test_rules_orders import barrier
from tests.unit.runtime.test_record_signatures import Installation, SignedJob, drafted

SEAL = JobSealed(
    job_id=JOB,
    tenant="acme",
    event_count=3,
    root="r",
    chain=2,
    tree="t",
    execution_hash="e",
    outcome_hash="o",
    sealed_at="2026-01-01T00:00:00+00:00",
    signature="s",
    key_id="k",
)


def record(event: Event, offset: int) -> Record:
    made = draft(Topic.JOBS_EVENTS, event, key=JOB, id=f"e{offset}", source="test", time="2026-01-01T00:00:00Z")
    return Record(made.topic, 0, offset, 0, made.key, made.headers, made.value)


def take(partition: Partition, event: Event, offset: int) -> bool:
    return partition.evolve(record(event, offset), event.event_type) is not None


def test_a_job_is_audited_from_its_birth_to_its_seal() -> None:
    partition = Partition()
    assert not take(partition, planned(graph({"id": "a"})), 4)
    assert take(partition, created(), 5)
    assert [creation_offset for _, creation_offset in partition.live()] == [5]
    assert partition.to_seal() == []
    assert take(partition, JobCompleted(job_id=JOB), 6)
    assert [job.job_id for job in partition.to_seal()] == [JOB]
    assert take(partition, SEAL, 7)
    assert [*partition.live()] == []
    assert partition.to_seal() == []


@pytest.mark.parametrize("how", ["garbage", "two types", "two times"])
@pytest.mark.parametrize("event", [SEAL, created()], ids=["seal", "creation"])
def test_what_says_nothing_neither_begins_an_audit_nor_ends_it(event: Event, how: str) -> None:
    partition, at = Partition(), 0
    if event is SEAL:
        assert take(partition, created(), 0)
        at = 1
    void = record(event, at)
    if how == "garbage":
        void = void.replaced(value=b"\xff")
    else:
        name = "ce_type" if how == "two types" else "ce_time"
        void = void.replaced(headers=(*void.headers, (name, b"x")))
    assert (partition.evolve(void, event.event_type) is None) == (event is not SEAL)
    assert [*partition.live()] == ([(JOB, 0)] if event is SEAL else [])


def test_what_came_between_the_end_and_a_seal_that_does_not_know_it_is_judged() -> None:
    """Both may come in one batch, when nobody has looked at the job since."""
    partition = Partition()
    history = (created(), planned(graph({"id": "a"})), JobCompleted(job_id=JOB), finished("a", "late"), SEAL)
    for offset, event in enumerate(history):
        take(partition, event, offset)
    found = violations_in(partition.odd[JOB].audit.history.facts)
    assert "success_without_valid_start" in {one.rule for one in found}
    assert not list(partition.jobs)
    assert [*partition.live()] == [(JOB, 0)], "held from its birth: no seal covers what came late"


def test_a_job_that_can_not_be_judged_stands_still_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    partition = Partition()
    assert take(partition, created(), 0)
    with monkeypatch.context() as patched:
        patched.setattr(Audit, "add", fail)
        assert take(partition, planned(graph({"id": "a"})), 1)
    assert [(one.job_id, type(one.error)) for one in partition.unjudged.take()] == [(JOB, RecursionError)]
    assert take(partition, finished("a", "late"), 2)
    assert take(partition, JobCompleted(job_id=JOB), 3)
    assert (partition.to_seal(), partition.odd, partition.moved) == ([], {}, {})
    assert [*partition.live()] == [(JOB, 0)], "a version that can judge it reads it again"
    assert partition.unjudged.take() == []


def test_a_job_whose_seal_knows_all_of_it_is_not_judged_again() -> None:
    partition = Partition()
    reported = ViolationFound(job_id=JOB, rule="r", event_id="e1", offset=1, message="m")
    for offset, event in enumerate((created(), planned(graph({"id": "a"})), JobCompleted(job_id=JOB), reported, SEAL)):
        take(partition, event, offset)
    assert partition.odd == {}


def test_a_late_repeat_of_a_birth_does_not_bring_a_sealed_job_back() -> None:
    partition = Partition()
    for offset, event in enumerate((created(), JobCompleted(job_id=JOB), SEAL)):
        take(partition, event, offset)
    assert not take(partition, created(), 9)
    assert [*partition.live()] == []


def test_what_is_seldom_lawful_is_judged_at_once_and_told_once() -> None:
    partition = Partition()
    plan = graph({"id": "a"})
    for offset, event in enumerate((created(), planned(plan), started("a", "n1"), finished("a", "n1"))):
        take(partition, event, offset)
    assert partition.odd == {}
    take(partition, finished("a", "nobody"), 4)
    job = partition.odd[JOB]
    found = violations_in(job.audit.history.facts)
    assert "success_without_valid_start" in {one.rule for one in found}
    assert len(job.untold(found)) == len(found)
    assert job.untold(found) == []


def test_what_the_log_has_told_is_not_told_again() -> None:
    partition = Partition()
    for offset, event in enumerate((created(), finished("a", "nobody"))):
        take(partition, event, offset)
    job = partition.jobs[JOB]
    (found,) = [one for one in violations_in(job.audit.history.facts) if one.rule == "success_without_valid_start"]
    reported = ViolationFound(job_id=JOB, rule=found.rule, event_id="e1", offset=found.offset, message=found.message)
    take(partition, reported, 2)
    assert job.untold([found]) == []


def test_who_restarts_tells_of_a_sealed_job_only_what_nobody_has_told() -> None:
    """What was told a life ago lies behind the seal."""
    partition = Partition()
    history = (created(), planned(graph({"id": "a"})), JobCompleted(job_id=JOB), finished("a", "late"), SEAL)
    for offset, event in enumerate(history):
        take(partition, event, offset)
    job = partition.odd[JOB]
    found = violations_in(job.audit.history.facts)
    for offset, one in enumerate(found, start=len(history)):
        said = ViolationFound(job_id=JOB, rule=one.rule, event_id=one.event_id, offset=one.offset, message=one.message)
        take(partition, said, offset)
    assert job.untold(found) == []
    assert not list(partition.jobs)


def test_what_no_auditor_has_signed_is_not_told_behind_a_seal_either(tmp_path: Path) -> None:
    signed = SignedJob(Installation(tmp_path))
    partition = Partition({signed.installation.id})
    seal = SEAL.model_copy(update={"job_id": signed.job_id, "event_count": 1})
    said = ViolationFound(job_id=signed.job_id, rule="after_seal", event_id="e", offset=1, message="m")
    signed.write(Party.AUDITOR, seal)
    signed.judge(drafted(said))
    signed.write(Party.AUDITOR, said.model_copy(update={"offset": 2}))
    for one in signed.records:
        partition.evolve(one, (one.header("ce_type") or b"").decode().split(".")[2])
    assert partition.odd[signed.job_id].reported == {("after_seal", 2)}


def test_a_brief_job_is_never_judged_in_turn() -> None:
    partition = Partition()
    for offset, event in enumerate((created(), planned(graph({"id": "a"})), started("a", "n1"))):
        take(partition, event, offset)
    assert partition.due_for_a_look() == []
    assert partition.due_for_a_look() == [JOB]
    take(partition, JobCompleted(job_id=JOB), 6)
    take(partition, SEAL, 7)
    assert partition.due_for_a_look() == []


def test_a_sealed_job_leaves_memory_without_the_collector() -> None:
    partition = Partition()
    for offset, event in enumerate((created(), planned(graph()), JobCompleted(job_id=JOB))):
        take(partition, event, offset)
    (job,) = partition.to_seal()
    report = job.audit.report()
    history = weakref.ref(job.audit.history)
    gc.disable()
    try:
        take(partition, SEAL.model_copy(update={"event_count": 3}), 3)
        del job, report
        assert history() is None
    finally:
        gc.enable()


def test_a_birth_behind_a_barrier_of_later_rules_begins_no_audit() -> None:
    rules = PartitionRules()
    partition = Partition(rules=rules)
    assert take(partition, created(), 5)
    rules.passed(barrier(2), 6)
    other = created().model_copy(update={"job_id": "late"})
    made = draft(Topic.JOBS_EVENTS, other, key="late", id="e", source="test", time="2026-01-01T00:00:00Z")
    late = Record(made.topic, 0, 7, 0, made.key, made.headers, made.value)
    assert partition.evolve(late, other.event_type) is None
    assert list(partition.jobs) == [JOB]
    assert list(partition.live()) == [(JOB, 5), (RULES_BARRIER_KEY, 6)]


@pytest.mark.parametrize("said", [{"outcome": "undone"}, {"via": "newer"}])
def test_a_job_that_goes_on_with_a_record_of_a_newer_version_is_not_sealed(said: dict[str, str]) -> None:
    """Nor behind what an upgraded planner writes of its end; behind an end that was read, it is a violation."""
    partition = Partition()
    take(partition, created(), 0)
    take(partition, planned(graph({"id": "a"})), 1)
    end = record(finished("a", "n1"), 2)
    newer = end.replaced(value=json.dumps(json.loads(end.value) | said).encode())
    assert partition.evolve(newer, "tool_invocation_finished") is not None
    assert [failure.job_id for failure in partition.unjudged.take()] == [JOB]
    assert take(partition, JobCompleted(job_id=JOB), 3)
    assert (partition.to_seal(), [offset for _, offset in partition.live()]) == ([], [0])
    after = Partition()
    for offset, event in enumerate((created(), planned(graph({"id": "a"})), JobCompleted(job_id=JOB))):
        take(after, event, offset)
    job = after.evolve(newer.replaced(offset=3), "tool_invocation_finished")
    assert [one.job_id for one in after.to_seal()] == [JOB]
    assert job is not None
    assert "unknown_version" in {one.rule for one in job.audit.broken_records}
