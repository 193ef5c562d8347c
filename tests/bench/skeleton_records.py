"""What the skeleton makes of a record: nothing, or what every service owes to each by the contract.

The latter is done to the events of an exported job, over and over, whatever the record at hand holds: a job's next
record stands for the next of that stream, and where it ends another job begins.
"""

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.cli import streamfile
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import fold_event
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.envelope import Envelope, decode_event
from aetheris.protocol.messages.envelope import draft as event_draft
from aetheris.protocol.messages.events import Event
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.verifier.core.partition import AuditedJob, raw, sealed
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.reports import report_on
from tests.bench.records import STREAM

SIZES = {
    "submit": 915,
    "job_created": 963,
    "plan_generated": 979,
    "tool_request": 233,
    "tool_grant": 615,
    "tool_invocation_started": 822,
    "tool_invocation_finished": 528,
    "command_committed": 342,
    "node_finished": 210,
    "job_completed": 266,
    "job_sealed": 503,
    "job_index": 260,
    "ledger_record": 581,
}
"""Bytes of a record's value in W1, on average."""
COMPLETED_LINE = b'{"status": "completed", "x": "' + b"x" * 228 + b'"}'
_VALUES = {kind: b'{"status": "running", "x": "' + b"x" * (size - 30) + b'"}' for kind, size in SIZES.items()}
_CE = (("ce_specversion", b"1.0"), ("ce_id", b"x" * 36), ("ce_source", b"x" * 16))
_PASSED_ON = frozenset({"ce_type", "ce_subject"})
"""What the skeleton reads of a record, as its parts write it."""
_TAIL = (("ce_time", b"x" * 27), ("content-type", b"application/json"))


def draft(topic: Topic, kind: str, job: bytes, subject: bytes = b"", value: bytes | None = None) -> Draft:
    """A record of that kind, about a job, or one of its nodes; nothing is computed."""
    headers = (*_CE, ("ce_type", kind.encode()), ("ce_subject", subject), *_TAIL)
    return Draft(topic, job, _VALUES[kind] if value is None else value, headers)


class Skipped:
    """Records are passed on, and nothing is done to them."""

    def write(self, topic: Topic, kind: str, job: bytes, subject: bytes = b"") -> Draft:
        """A record of that kind."""
        return draft(topic, kind, job, subject)

    def fold(self, job: bytes) -> None:
        """The job's next event was read."""

    def audit(self, job: bytes) -> None:
        """The job's next event was read by the one who judges it."""


class Owed(Skipped):
    """Events are written from their models, decoded and folded, or audited and at their job's end sealed."""

    def __init__(self) -> None:
        raws = streamfile.read(STREAM).raw()
        self._records = [Record(Topic.JOBS_EVENTS, 0, one.offset, 0, one.key, one.headers, one.value) for one in raws]
        found = [decode_event(record) for record in self._records]
        self._bodies: Mapping[str, Event] = {
            one.body.event_type: one.body for one in found if isinstance(one, Envelope)
        }
        self._folded: dict[bytes, tuple[int, JobState | None]] = {}
        self._audited: dict[bytes, tuple[int, AuditedJob]] = {}
        self._keys = SealKeys(Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate())
        self._blobs = FolderBlobs(STREAM.parent)
        self._clock = SystemClock()

    def write(self, topic: Topic, kind: str, job: bytes, subject: bytes = b"") -> Draft:
        """Events from their models; the few others as they are."""
        body = self._bodies.get(kind)
        if body is None:
            return draft(topic, kind, job, subject)
        name, now = job.decode(), self._clock.now().isoformat()
        made = event_draft(topic, body, key=name, id=event_id(name, kind, now), source="aetheris/bench", time=now)
        headers = (*((key, value) for key, value in made.headers if key not in _PASSED_ON), ("ce_type", kind.encode()))
        return Draft(topic, job, made.value, (*headers, ("ce_subject", subject)))

    def fold(self, job: bytes) -> None:
        """Decode and fold."""
        at, state = self._folded.get(job, (0, None))
        found = decode_event(self._records[at], UNREAD)
        if isinstance(found, Envelope):
            state, _ = fold_event(state, found.body, at)
        self._folded[job] = (at + 1, state)
        if at + 1 == len(self._records):
            del self._folded[job]

    def audit(self, job: bytes) -> None:
        """Audit; at the job's end judge, and sign."""
        at, live = self._audited.get(job) or (0, AuditedJob("", 0, ""))
        live.audit.add(raw(self._records[at]))
        self._audited[job] = (at + 1, live)
        if at + 2 == len(self._records):  # only its seal comes behind this
            sealed(live, report_on(live.audit, self._keys.trusted, self._blobs), self._keys.sign, "")
        elif at + 1 == len(self._records):
            del self._audited[job]
