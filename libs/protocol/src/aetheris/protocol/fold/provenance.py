"""Whose records are: of a signed job, those count that their writer has signed (docs/adr/0009-signed-records.md).

Stands before the fold: what is void here is not folded, as if it did not lie there. What a job's records say decides
alone, so everybody who reads the same prefix comes to the same; only which roots a process knows is its own affair.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, cast

from aetheris.protocol.base.ed25519 import verify
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.sealed import REMEMBERED
from aetheris.protocol.base.signing import (
    Certificate,
    RecordSignature,
    SignedPlace,
    born_of,
    is_certified,
    is_revocation,
    is_signed,
    read_certificate,
    read_revocation,
    read_signed,
)
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import EVENTS, SIGNING, KnownBy, Party, WriterRule, rule_of
from aetheris.protocol.fold.births import BirthJudge
from aetheris.protocol.fold.own_records import OwnRecords
from aetheris.protocol.fold.revocations import NONE_REVOKED, Revocations
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.protocol.messages.events import Event

CERTIFICATE = b',"certificate":'
"""Before a certificate, where a payload has one last."""
_LONGEST_CERTIFICATE = 2048
_FOLLOWING = frozenset(name for name, rule in EVENTS.items() if rule.known_by is KnownBy.FOLLOWS)
"""Types whose records are known by nothing, whatever they say."""
_LAST = frozenset({ev.JobSealed.event_type, ev.BirthRepeated.event_type})
_TOPIC = Topic.JOBS_EVENTS.value

IsRefused = Callable[[int, int, str], bool]


class Standing(Enum):
    """What a record is worth."""

    COUNTS = "counts"
    VOID = "void"
    UNKNOWN_ROOT = "unknown_root"
    """A birth under a root that this process was not told of: its job waits, and nothing of it is void."""


@dataclass(slots=True)
class JobSigners:
    """Of a signed job: its root's key id, the hash of its birth, and the keys that were certified in it."""

    installation: str
    born: str
    keys: dict[str, Certificate] = field(default_factory=dict[str, Certificate])
    revoked: set[str] = field(default_factory=set[str])
    """The keys of which its root has said, in the job, that nothing counts which they sign from there on."""


class Provenance:
    """Judges the records of jobs, each job's in log order.

    `roots`: key ids of the roots whose births count. If there are any, births without a root are void; where there are
    none, births under a root are of an unknown one. None: whatever root a birth names, and births without one; for who
    shows one job, read from where it lies, and looks at no partition.
    `revocations`: births are void that a key of these has signed behind its own.
    `refused`: whether a birth under a version of the rules, at an offset, of a job, lies behind a barrier that bars it.
    `own`: what this process has signed.
    """

    def __init__(
        self,
        roots: Collection[str] | None = None,
        revocations: Revocations = NONE_REVOKED,
        refused: IsRefused = lambda _rules, _offset, _job_id: False,
        own: OwnRecords | None = None,
    ) -> None:
        self._roots = roots
        self._revocations = revocations
        self._is_barred = refused
        self._own = OwnRecords() if own is None else own
        self._jobs: dict[str, JobSigners | None] = {}
        """None: a job whose records are not signed."""
        self._births = BirthJudge(of_any=roots is None)
        self._sealed: dict[str, None] = {}
        """Whose keys are still known: what is said behind a seal is judged, too."""

    def begin(self, since: int, live: Collection[tuple[str, int]] = ()) -> None:
        """From where records are read from here on; as of the judge of births."""
        self._births.begin(since, live)

    def judge(self, record: Record, event: Event) -> Standing:
        """What the next record is worth, of which `event` is the payload."""
        if event.event_type in _FOLLOWING:  # most are, and nothing is asked of them
            return Standing.COUNTS
        job_id = event.job_id
        if isinstance(event, ev.JobCreated):
            return Standing.COUNTS if job_id in self._jobs else self._birth(record, event)
        job = self._jobs.get(job_id)
        if job is not None and not self._is_their_writers(job, record, event):
            return Standing.VOID
        if event.event_type in _LAST:
            self._remember_for_a_while(job_id)
        return Standing.COUNTS

    def signers_of(self, job_id: str) -> JobSigners | None:
        """The keys of a signed job; None for any other."""
        return self._jobs.get(job_id)

    def forget(self, job_id: str) -> None:
        """A job is sealed, and nothing of it is judged here any more."""
        self._jobs.pop(job_id, None)

    def _birth(self, record: Record, event: ev.JobCreated) -> Standing:
        if self._is_barred(event.rules, record.offset, event.job_id):
            return Standing.VOID
        if event.installation is None:
            if self._roots:
                return Standing.VOID
            self._jobs[event.job_id] = None
            return Standing.COUNTS
        if self._roots is not None and event.installation not in self._roots:
            return Standing.UNKNOWN_ROOT
        if self._births.is_over(event.job_id) or not self._births.lies_where_written(record, event):
            return Standing.VOID
        job = JobSigners(event.installation, born_of(record.value))
        if not self._is_signed_by(job, Party.PLANNER, record, event) or self._is_refused(job, record):
            return Standing.VOID
        if not self._births.takes(event.job_id, record.offset, event.as_of):
            return Standing.VOID
        self._jobs[event.job_id] = job
        return Standing.COUNTS

    def _is_refused(self, job: JobSigners, record: Record) -> bool:
        told, by = self._revocations, job.installation
        return any(told.refuses(by, key_id, record.partition, record.offset) for key_id in job.keys)

    def _is_their_writers(self, job: JobSigners, record: Record, event: Event) -> bool:
        rule = writer_of(event)
        if rule is None:
            return False
        if isinstance(event, ev.KeyRevoked):
            return _revokes(job, event)
        is_signed = rule.known_by is KnownBy.SIGNATURE and rule.writer in SIGNING
        return not is_signed or self._is_signed_by(job, rule.writer, record, event)

    def _is_signed_by(self, job: JobSigners, writer: Party, record: Record, event: Event) -> bool:
        place = place_of(job.installation, event.event_type, event.job_id, job.born)
        own = self._own.take(record.value)
        known = None if own is None or own[0] != place else job.keys.get(own[1])
        if own is None or known is None:  # whose certificate is not known here, nobody else knows either
            return _is_signed_by(job, writer, record, place)
        return known.service == writer and own[1] not in job.revoked

    def _remember_for_a_while(self, job_id: str) -> None:
        if job_id in self._jobs:
            self._sealed[job_id] = None
        if len(self._sealed) > REMEMBERED:
            oldest = next(iter(self._sealed))
            del self._sealed[oldest], self._jobs[oldest]


def writer_of(event: Event) -> WriterRule | None:
    """Who may write this, and by what it is known; None: nobody."""
    if isinstance(event, ev.ToolInvocationFinished):
        return _rule_of_end(event.via, event.outcome)
    if isinstance(event, ev.InvocationInDoubt):
        has_word = event.word is not None
        return rule_of(event.event_type, returned=event.returned, has_word=has_word)
    if isinstance(event, (ev.JobWaiting, ev.WaitCompleted)):
        return rule_of(event.event_type, wait_type=event.wait_type)
    return rule_of(event.event_type)


@lru_cache(maxsize=64)
def _rule_of_end(via: Via, outcome: Outcome) -> WriterRule | None:
    """Asked for with each call that ends."""
    return rule_of(ev.ToolInvocationFinished.event_type, via=via, outcome=outcome)


def place_of(installation: str, event_type: str, job_id: str, born: str | None) -> SignedPlace:
    """Where an event counts. What makes a job known, or says that it was created before, has no creation to name."""
    is_of_birth = event_type in (ev.JobCreated.event_type, ev.BirthRepeated.event_type)
    return SignedPlace(installation, _TOPIC, event_type, job_id, None if is_of_birth else born)


def _revokes(job: JobSigners, event: ev.KeyRevoked) -> bool:
    revocation = read_revocation(event.model_dump())
    if revocation is None or not is_revocation(revocation, job.installation, verify):
        return False
    job.revoked.add(revocation.key_id)
    return True


def _is_signed_by(job: JobSigners, writer: Party, record: Record, place: SignedPlace) -> bool:
    found = read_signed(record.value)
    if found is None:
        return False
    payload, signature = found
    if signature.key_id in job.revoked:
        return False
    certificate = job.keys.get(signature.key_id) or _carried(job, payload, signature)
    if certificate is None or certificate.service != writer:
        return False
    if not is_signed(place, payload, signature, certificate.public_key, verify):
        return False
    job.keys[signature.key_id] = certificate
    return True


def _carried(job: JobSigners, payload: bytes, signature: RecordSignature) -> Certificate | None:
    """The certificate that a record has with it, if it is of its key and under the job's root."""
    certificate = last_certificate(payload)
    if certificate is None:
        certificate = _read_anywhere(payload)
    if certificate is None or certificate.key_id != signature.key_id:
        return None
    return certificate if is_certified_under(certificate, job.installation) else None


def last_certificate(payload: bytes) -> Certificate | None:
    """The certificate that stands last in a payload; the rest of it, which may be long, is not parsed."""
    _, found, last = payload[-_LONGEST_CERTIFICATE:].rpartition(CERTIFICATE)
    return _read(last[:-1]) if found else None


@lru_cache(maxsize=1024)
def _read(certificate: bytes) -> Certificate | None:
    """From its JSON. Most records that have one have it last, and it is the same in job after job."""
    try:
        return read_certificate(json.loads(certificate))
    except (ValueError, RecursionError):
        return None


def _read_anywhere(payload: bytes) -> Certificate | None:
    try:
        body: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return read_certificate(cast("dict[str, Any]", body).get("certificate")) if isinstance(body, dict) else None


@lru_cache(maxsize=1024)
def is_certified_under(certificate: Certificate, installation: str) -> bool:
    """Whether a root's key has certified it; what was asked before is not verified again."""
    return is_certified(certificate, installation, verify)
