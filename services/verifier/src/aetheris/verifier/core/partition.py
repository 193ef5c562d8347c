"""What the verifier decides: which jobs to audit, when one is to be sealed, what a seal says (pure)."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from msgspec.structs import asdict

from aetheris.proofs import Audit, ProofReport, RawRecord, Violation
from aetheris.proofs.amendments import is_late_fact
from aetheris.proofs.due_amendments import DueAmendment
from aetheris.proofs.log_lines import receipt_hash
from aetheris.proofs.records import Fact
from aetheris.proofs.seals import seal_payload
from aetheris.protocol.base.job_table import QUIET, JobTable, Resting
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.sealed import REACH, SealedNames
from aetheris.protocol.fold.births import BirthJudge
from aetheris.protocol.fold.provenance import JobSigners
from aetheris.protocol.fold.unjudged import Unjudged
from aetheris.protocol.messages.events import (
    BirthRepeated,
    ConfirmationFailed,
    JobCreated,
    JobSealed,
    ToolInvocationFinished,
    ToolInvocationStarted,
    ViolationFound,
)
from aetheris.protocol.tables.rules_orders import PartitionRules
from aetheris.verifier.core.amendments import LateJobs
from aetheris.verifier.core.job_metrics import JobTimes

Sign = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Adds key_id and signature to a seal's payload."""


_LONG = 2_000
"""Records, from which on a job stays awake: to pack it would keep others waiting."""


class OpenJob(NamedTuple):
    """What an interim seal says of a job that has not ended: so many records, and the root of their tree, in hex."""

    job_id: str
    tenant: str
    records: int
    tree: str


@dataclass(slots=True)
class AuditedJob:
    """A job under audit: created at `birth`, not sealed yet as far as the log says."""

    job_id: str
    creation_offset: int
    tenant: str
    trace: bool | None = None
    """Whether its submission wants it traced."""
    receipt: str | None = None
    """What the log of seals calls the receipt of its submission; None where it has none."""
    audit: Audit = field(default_factory=Audit)
    sealing: bool = False
    large: str | None = None
    """The hash of a large result of its, where it has any: what is to be asked for before it is judged."""
    reported: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """(rule, offset) of the violations that are in the log, or on their way there."""
    looked: int = 0
    """How many records had come when it was last judged."""
    is_known: bool = False
    """Whether it is of those whose records are judged here; one under another root, or other rules, waits."""
    needs_upgrade: bool = False
    """Whether this version has failed to judge it: it stands still, and is not sealed."""
    times: JobTimes = field(default_factory=JobTimes)
    """What metrics go by, and nothing else."""
    _started: set[str] = field(default_factory=set[str])

    def looks_odd(self, event_type: str, fact: Fact) -> bool:
        """Whether its latest record, which says this, is seldom lawful: the job is to be judged at once."""
        if event_type == ToolInvocationStarted.event_type:
            self._started.add(fact.invocation_id)
            return False
        if event_type == ViolationFound.event_type:
            offset = fact.body.get("offset")
            self.reported.add((fact.text("rule"), offset if isinstance(offset, int) else -1))
            return False
        unstarted = fact.invocation_id not in self._started
        return unstarted or len(self.audit.history.closings.get(fact.key, ())) > 1

    def came_late(self) -> bool:
        """Whether its latest record, a seal, says nothing of what came just before it."""
        *facts, seal = self.audit.history.facts
        covered = seal.body.get("event_count")
        late = facts[covered:] if isinstance(covered, int) and covered >= 0 else facts
        return any(fact.type != ViolationFound.event_type for fact in late)

    def late_facts(self) -> list[int]:
        """The offsets of what came just before its latest record, a seal, which says nothing of it."""
        *facts, seal = self.audit.history.facts
        covered = seal.body.get("event_count")
        begin = covered if isinstance(covered, int) and covered >= 0 else len(facts)
        authors = self.audit.history.authors
        return [fact.offset for fact in facts[begin:] if fact.type in _LATE and is_late_fact(fact, authors)]

    @property
    def signers(self) -> JobSigners | None:
        """What its records are signed by; None where they are not."""
        authors = self.audit.history.authors
        return (
            None
            if authors.installation is None
            else JobSigners(authors.installation, authors.born, revoked=authors.revoked)
        )

    @property
    def is_read(self) -> bool:
        """Whether its creation is of a version, and under rules, that are judged here."""
        return self.audit.history.created is not None

    def untold(self, found: Iterable[Violation]) -> list[Violation]:
        """Violations that nobody has told yet; they count as told from now on."""
        fresh = [one for one in found if (one.rule, one.offset) not in self.reported]
        self.reported.update((one.rule, one.offset) for one in fresh)
        return fresh


@dataclass(slots=True)
class MovedJob:
    """`looked`: how many records it had when it was last judged; `lasts`: whether it was there a round ago."""

    looked: int
    lasts: bool


AuditedJobTable = JobTable[AuditedJob, OpenJob | None]

_SEALED, _REPEATED = JobSealed.event_type, BirthRepeated.event_type
_HASH = re.compile(r"[0-9a-f]{64}")
_TELLING = frozenset({ToolInvocationStarted.event_type, ToolInvocationFinished.event_type, ViolationFound.event_type})


_LATE = frozenset({ToolInvocationFinished.event_type, ConfirmationFailed.event_type})
"""What may come to light behind a seal."""
_AMENDS = b'"amends"'
"""In an amendment, and anywhere else by chance or malice: that costs a look."""


class NewerVersion(Exception):
    """A job that goes on has a record that only a newer version reads: this one would seal what it does not know."""


class Partition:
    """The live jobs of one partition."""

    def __init__(self, roots: Collection[str] = (), rules: PartitionRules | None = None) -> None:
        """`roots`: key ids of those whose jobs count; where there are none, jobs without a root do.

        `rules`: what its edge knows of the rules under which jobs are created there.
        """
        self._roots = roots
        self._known = roots or (None,)
        self._rules = rules or PartitionRules()
        self._births = BirthJudge()
        self.jobs: AuditedJobTable = JobTable(lambda job: job.creation_offset, self._may_rest, open_job)
        self.ended: dict[str, AuditedJob] = {}
        """Of these the jobs that have ended, whose seal isn't read yet."""
        self.odd: dict[str, AuditedJob] = {}
        """Jobs that are to be judged at once."""
        self.moved: dict[str, MovedJob] = {}
        """Jobs that have come on since they were judged; they may rest until it is their turn."""
        self.late = LateJobs()
        """Jobs in which something came behind their seal."""
        self.looked_at: set[str] = set()
        """Jobs that are being judged beside the partition's turns."""
        self._late_from = 0
        """Below, who was here before has seen to what came late, or the mark would not lie where it does."""
        self._forgotten = SealedNames()
        self.unjudged = Unjudged()

    def evolve(self, record: Record, event_type: str, named: Mapping[str, bytes] | None = None) -> AuditedJob | None:
        """Take the next record of the log; the job that it belongs to, if it is under audit.

        `named`: its headers by name, where they are known.
        A job is known from its birth on; what is sealed is forgotten.
        """
        job_id = (record.key or b"").decode("utf-8", "replace")
        job = self.jobs.get(job_id)
        if job is None:
            if event_type == ViolationFound.event_type and job_id in self.odd:
                self._note_told(self.odd[job_id], record)
            self._note_late(job_id, record, event_type)
            if event_type != JobCreated.event_type or job_id in self._forgotten or self._births.is_over(job_id):
                return None
            created = _created(record)
            if created is not None and self._rules.refuses(created.rules, record.offset, job_id):
                return None
            if created is not None and created.installation and not self._births.lies_where_written(record, created):
                return None
            job = self.jobs[job_id] = AuditedJob(job_id, record.offset, *_asked(created))
        last = self._added(job, record, named)
        if last is None:
            return job
        history = job.audit.history
        if last.type == JobCreated.event_type:
            job.is_known = history.created is not None and history.authors.installation in self._known
        if last.claims or not last.body:
            event_type = ""  # it says nothing
        if last.at == 0 and (self._is_void(job) or not self._takes(job)):
            del self.jobs[job_id]
            return None
        if history.references and job.large is None:
            job.large = _large(last.body)
        if history.end is not None:
            self.ended[job_id] = job
        if event_type in _TELLING and history.created is not None:
            if job_id not in self.moved:
                self.moved[job_id] = MovedJob(job.looked, job.looked > 0)
            if job.looks_odd(event_type, last):
                self.odd[job_id] = job
        if event_type == _SEALED or (event_type == _REPEATED and _is_later(job)):
            del self.jobs[job_id]
            self.ended.pop(job_id, None)
            self.moved.pop(job_id, None)
            self._forgotten.add(job_id)
            if event_type == _SEALED and job.is_read and job.came_late():
                self.odd[job_id] = job
                for offset in job.late_facts():
                    self.late.note(job_id, offset, held_from=job.creation_offset)
        return job

    def _note_told(self, job: AuditedJob, record: Record) -> None:
        """Behind the seal of a job that is yet to be judged it is told what is wrong with it: by us, a life ago."""
        fact = self._added(job, record)
        if fact is not None and not fact.claims:
            job.looks_odd(ViolationFound.event_type, fact)

    def begin(self, since: int, live: Collection[tuple[str, int]] = ()) -> None:
        """From where records are read from here on; as of the judge of births."""
        self._births.begin(since, live)
        self._late_from = since + REACH if since else 0

    def restored(self) -> None:
        """What is read from now on nobody has read before."""
        self._late_from = 0

    def _note_late(self, job_id: str, record: Record, event_type: str) -> None:
        """Of a job that is not under audit: behind its seal, if it has one."""
        is_seal = event_type == JobSealed.event_type and _AMENDS in record.value
        is_told = event_type == ViolationFound.event_type and job_id in self.late
        if (event_type in _LATE or is_seal or is_told) and record.offset >= self._late_from:
            self.late.note(job_id, record.offset)

    def _takes(self, job: AuditedJob) -> bool:
        as_of = job.audit.last.body.get("as_of")
        return self._births.takes(job.job_id, job.creation_offset, as_of if isinstance(as_of, int) else None)

    def _added(self, job: AuditedJob, record: Record, named: Mapping[str, bytes] | None = None) -> Fact | None:
        """What it says, as the audit took it; a job that stands still takes nothing more."""
        if job.needs_upgrade:
            return None
        try:
            fact = job.audit.add(record, named)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            return self.stand_still(job, error)
        if fact.at and not (fact.type or fact.claims or job.audit.ended) and job.audit.is_newer(fact):
            return self.stand_still(job, NewerVersion())
        return fact

    def stand_still(self, job: AuditedJob, error: Exception) -> None:
        """Judge it no more: it waits, unsealed, for a version that can."""
        self.unjudged.note(job, error)
        self.moved.pop(job.job_id, None)
        self.odd.pop(job.job_id, None)

    def to_seal(self) -> list[AuditedJob]:
        """Jobs that have ended and are not being sealed yet."""
        return [job for job in self.ended.values() if not job.sealing and not job.needs_upgrade and job.is_known]

    def oldest_end(self) -> float | None:
        """When the job ended that waits longest for its seal, in seconds since 1970; from any thread."""
        ends = (job.times.ended_s for job in tuple(self.ended.values()) if not job.needs_upgrade)
        return min((ended_s for ended_s in ends if ended_s), default=None)

    def _is_void(self, job: AuditedJob) -> bool:
        """Whether its first record creates nothing: it can't be read, or nobody who may has signed it."""
        authors, created = job.audit.history.authors, job.audit.history.created
        says_nothing = bool(job.audit.last.claims) or not job.audit.last.body
        return says_nothing or (created is not None and bool(self._roots) and not authors.installation)

    def due_for_a_look(self) -> list[str]:
        """Jobs that have come on, and were there a round ago already: brief ones are judged at their end."""
        due = [(moved.looked, job_id) for job_id, moved in self.moved.items() if moved.lasts]
        for moved in self.moved.values():
            moved.lasts = True
        return [job_id for _, job_id in sorted(due, key=lambda one: one[0])]

    def rest(self, quiet: int = QUIET) -> Resting:
        """Let jobs rest that nobody has asked for in a while; between turns."""
        self.jobs.rest(quiet)
        return self.jobs.resting

    def _may_rest(self, job: AuditedJob) -> bool:
        """Whether nobody is to look at it before its next record comes."""
        if job.needs_upgrade or job.sealing or job.audit.chain.count > _LONG:
            return False
        return not any(job.job_id in held for held in (self.odd, self.ended, self.looked_at))

    def live(self) -> Iterator[tuple[str, int]]:
        """The jobs that are not sealed, each with its birth; and those with what no seal covers, from there on."""
        yield from self.jobs.births()
        yield from self.late.held()
        yield from self._rules.needed()


def open_job(job: AuditedJob) -> OpenJob | None:
    """What an interim seal says of it now; None where this version has failed to judge it."""
    count = job.audit.chain.count
    return None if job.needs_upgrade else OpenJob(job.job_id, job.tenant, count, job.audit.chain.tree(count))


def raw(record: Record) -> RawRecord:
    """A record as the proofs take it."""
    return RawRecord(record.offset, record.key, record.headers, record.value)


def sealed(job: AuditedJob, report: ProofReport, sign: Sign, sealed_at: str, salt: str) -> JobSealed:
    """The seal over the job up to its end: the log alone says over what, whoever seals, and when."""
    signed = sign(
        seal_payload(
            tenant=job.tenant,
            job_id=job.job_id,
            event_count=report.event_count,
            root=report.event_chain_root_hash,
            tree=report.event_tree_root_hash,
            execution_hash=report.execution_hash,
            outcome_hash=report.outcome_hash,
            sealed_at=sealed_at,
            salt=salt,
            calls=report.calls,
        )
    )
    return JobSealed(**signed)


def amended(due: DueAmendment, sign: Sign, sealed_at: str, salt: str) -> JobSealed:
    """The seal that amends the one before."""
    return JobSealed.model_validate(sign(due.payload(sealed_at=sealed_at, salt=salt)))


def _is_later(job: AuditedJob) -> bool:
    """Whether its latest record says that it was created before what was taken for its creation."""
    created = job.audit.last.body.get("birth")
    return isinstance(created, int) and created < job.creation_offset


def _large(said: Mapping[str, Any]) -> str | None:
    """The hash of the large result that a record refers to."""
    refers = said.get("result_ref")
    sha256: object = cast("dict[str, Any]", refers).get("sha256") if isinstance(refers, dict) else None
    return sha256 if isinstance(sha256, str) and _HASH.fullmatch(sha256) else None


def _created(record: Record) -> JobCreated | None:
    try:
        return JobCreated.read(record.value)
    except ValueError:
        return None


def _asked(created: JobCreated | None) -> tuple[str, bool | None, str | None]:
    """Of a birth: the tenant, whether it wants to be traced, and what its receipt is called."""
    if created is None:
        return "", None, None
    number, receipt = created.receipt, None
    if number is not None:
        receipt = receipt_hash(created.job_id, created.tenant, created.request_hash, asdict(number))
    return created.tenant, None if created.options is None else created.options.trace, receipt
