"""What the verifier takes under audit, and when it lets go."""

from aetheris.protocol.envelope import draft
from aetheris.protocol.events import Event, JobCompleted, JobSealed
from aetheris.protocol.records import Record
from aetheris.protocol.topics import Topic
from aetheris.verifier.core import Partition
from tests.histories import JOB, created, graph, planned

SEAL = JobSealed(
    job_id=JOB, tenant="acme", event_count=3, root="r", execution_hash="e", outcome_hash="o", signature="s", key_id="k"
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
    assert partition.mark() == 5
    assert partition.to_seal() == []
    assert take(partition, JobCompleted(job_id=JOB), 6)
    assert [job.job_id for job in partition.to_seal()] == [JOB]
    assert take(partition, SEAL, 7)
    assert partition.mark() is None


def test_a_late_repeat_of_a_birth_does_not_bring_a_sealed_job_back() -> None:
    partition = Partition()
    for offset, event in enumerate((created(), JobCompleted(job_id=JOB), SEAL)):
        take(partition, event, offset)
    assert not take(partition, created(), 9)
    assert partition.mark() is None
