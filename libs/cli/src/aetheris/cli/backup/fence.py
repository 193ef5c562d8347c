"""The fence of a restored log, as records: which jobs were open where it ends, and what holds them (docs/backup.md)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pydantic import ValidationError

from aetheris.protocol.base.ids import derived, event_id
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import Sequence, fold_into
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import FreezeOrder, JobIndexEntry, Submit
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_event, draft
from aetheris.protocol.messages.log_homes import LogHome
from aetheris.protocol.planning.restored import HeldJob, freezes, is_open, pause, uncertain
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.runtime.keys.records import RecordKeys

SOURCE = "aetheris/restore"
_BIRTH = b"io.aetheris.job_created.v1"


@dataclass(frozen=True, slots=True)
class RestoreOrder:
    """Whose word a restore is: it stands in all that holds something."""

    by: str
    at: str
    """RFC 3339."""
    reason: str


@dataclass(slots=True)
class _Folded:
    numbers: Sequence = field(default_factory=Sequence)
    state: JobState | None = None


class PartitionFence:
    """Of one partition of jobs.events: give it each record in its order, then ask what holds its open jobs."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._jobs: dict[str, _Folded] = {}
        self._sealed: set[str] = set()
        self.tenants: dict[str, None] = {}

    def take(self, record: Record) -> None:
        """Fold the next record."""
        job_id = (record.key or b"").decode(errors="replace")
        found = self._jobs.get(job_id)
        if found is None:
            if record.header("ce_type") != _BIRTH or job_id in self._sealed:
                return
            found = self._jobs[job_id] = _Folded()
        found.state = fold_into(found.state, record, found.numbers)
        if found.state is None:
            del self._jobs[job_id]
        elif found.state.sealed:
            self._sealed.add(job_id)
            del self._jobs[job_id]

    def held(self, keys: RecordKeys, word: RestoreOrder, begin: int) -> Iterator[tuple[HeldJob, Group]]:
        """Each open job, and what pauses it, signed, to lie from offset `begin` on; nothing where it can't be paused.

        Raises:
            CertificateNotInForce, SigningKeyRevoked.
        """
        for job_id, found in self._jobs.items():
            job = found.state
            if job is None or not is_open(job):
                continue
            self.tenants[job.created.tenant] = None
            steps = tuple(uncertain(job))  # as the backup has them
            group = self._paused(job, found, keys, word, begin)
            begin += len(group)
            yield (
                HeldJob(
                    job_id, job.created.tenant, job.created.submitted_by, self._partition, job.paused is not None, steps
                ),
                group,
            )

    def _paused(self, job: JobState, found: _Folded, keys: RecordKeys, word: RestoreOrder, begin: int) -> Group:
        drafts: list[Draft] = []
        for event in pause(job, word.by, word.reason):
            id_ = event_id(job.job_id, event.event_type, "restored", str(event.number), word.at)
            drafts.append(draft(Topic.JOBS_EVENTS, event, key=job.job_id, id=id_, source=SOURCE, time=word.at))
        if not drafts:
            return ()
        (group,) = keys.signed([tuple(drafts)], found.numbers)
        for at, one in enumerate(group, begin):
            fold_into(job, Record(one.topic, self._partition, at, 0, one.key, one.headers, one.value), found.numbers)
        return group


@dataclass
class TenantsSeen:
    """The tenants that a backup knows: each may have had jobs behind its end."""

    names: dict[str, None] = field(default_factory=dict[str, None])

    def take(self, record: Record) -> None:
        """A record of jobs.index, jobs.commands or jobs.events."""
        if record.topic == Topic.JOBS_INDEX:
            line = _index_line(record.value)
            if line is not None:
                self.names[line.tenant] = None
        elif record.topic == Topic.JOBS_COMMANDS:
            if (tenant := _submitted(record.value)) is not None:
                self.names[tenant] = None
        elif record.header("ce_type") == _BIRTH:
            tenant = _born(record)
            if tenant is not None:
                self.names[tenant] = None


def frozen(
    orders: FreezeOrders, tenants: Iterable[str], keys: RecordKeys, word: RestoreOrder
) -> list[tuple[FreezeOrder, Draft]]:
    """What freezes each of these tenants, signed; raises CertificateNotInForce."""
    found = list(freezes(orders, tenants, word.by, word.at, word.reason))
    drafts = [
        draft(
            Topic.FREEZES,
            order,
            key=order.key,
            id=derived("restored", order.key, str(order.number), str(order.frozen), word.at),
            source=SOURCE,
            time=word.at,
            partition=0,
        )
        for order in found
    ]
    return list(zip(found, keys.together(drafts), strict=True))


def settled(home: LogHome, keys: RecordKeys) -> Draft:
    """That the log is on these brokers, signed; raises CertificateNotInForce."""
    id_ = derived("restored", home.key, str(home.number), home.at)
    (said,) = keys.together([draft(Topic.POLICIES, home, key=home.key, id=id_, source=SOURCE, time=home.at)])
    return said


def _index_line(value: bytes) -> JobIndexEntry | None:
    try:
        return JobIndexEntry.model_validate_json(value)
    except ValidationError:
        return None


def _born(record: Record) -> str | None:
    """Whose job is created; None of what nobody can read, whoever wrote it."""
    try:
        decoded = decode_event(record)
    except Undecodable:
        return None
    if isinstance(decoded, Envelope) and isinstance(decoded.body, ev.JobCreated):
        return decoded.body.tenant
    return None


def _submitted(value: bytes) -> str | None:
    try:
        return Submit.model_validate_json(value).tenant
    except ValidationError:
        return None
