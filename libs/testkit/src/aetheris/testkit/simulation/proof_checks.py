"""What the proofs must find over the history of a run: what really happened, and nothing else."""

from collections.abc import Iterable, Sequence

from aetheris.proofs import ProofReport, RawRecord, verify
from aetheris.proofs.authorship import since_birth
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import PartitionBarrier
from aetheris.protocol.messages.events import JobSealed
from aetheris.testkit.simulation.checks import Broken, SimulationObserver
from aetheris.testkit.simulation.external_system import SimulatedExternalSystem
from aetheris.testkit.simulation.installation import installation
from aetheris.testkit.simulation.log import SimLog

TRUTHS = frozenset({"second_success", "contradicts_settlement", "truth_differs"})
"""What the proofs find where what really happened differs from what a human or the ledger recorded."""


def histories(logs: Iterable[SimLog], observer: SimulationObserver) -> dict[str, Sequence[RawRecord]]:
    """By job: its records, as they would lie in Kafka."""
    found: dict[str, list[RawRecord]] = {}
    for log, entry in ((one, entry) for one in logs for entry in one.topics[Topic.JOBS_EVENTS]):
        job_id, is_forged = entry.body.job_id, entry.record.offset in log.forged
        known = observer.jobs.get(job_id)
        if (
            known is None
            or entry.record.offset < known.creation_offset
            or (isinstance(entry.body, JobSealed | PartitionBarrier) and not is_forged)
        ):
            continue  # a made-up job has no history; what seals say no key of the run has signed
        record = log.written(entry)
        raw = RawRecord(record.offset, record.key, record.headers, record.value)
        found.setdefault(job_id, []).append(raw)
    return {job_id: since_birth(held, {installation()}) for job_id, held in found.items()}


def check_proofs(logs: Iterable[SimLog], observer: SimulationObserver, external: SimulatedExternalSystem) -> None:
    """The proofs over the final history find nothing but what really happened."""
    for job_id, records in histories(logs, observer).items():
        report = verify(records)
        _check_report(observer.jobs[job_id], report, external)
        late = [one.offset for one in report.notes if one.rule == "activation_decreases"]
        if late != observer.activations.went_back.get(job_id, []):
            raise Broken("proofs.activation_decreases", f"{job_id}: they name {late}")
        named = {one.offset for one in report.unproven}
        void = {one.offset for one in records} & observer.void.get(job_id, set())
        if named != void:
            raise Broken("proofs.unproven", f"{job_id}: they name {sorted(named)}, and void are {sorted(void)}")


def _check_report(job: JobState, report: ProofReport, external: SimulatedExternalSystem) -> None:
    for found in report.violations:
        if found.rule in TRUTHS and _is_true(job, found.rule, external):
            continue
        raise Broken(f"proofs.{found.rule}", f"{job.job_id}, offset {found.offset}: {found.message}")


def _is_true(job: JobState, rule: str, external: SimulatedExternalSystem) -> bool:
    least = 2 if rule == "second_success" else 1
    return any(len(external.results.get((job.job_id, node_id), ())) >= least for node_id in job.entries)
