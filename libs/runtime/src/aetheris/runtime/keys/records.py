"""What a service writes, signed: into jobs.events a round at a time, all of it under one signature or two."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.signing import SignedPlace, born_of
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import CHECKPOINTS, MESSAGES, SIGNED_MESSAGES, Party, signed_types
from aetheris.protocol.fold.own_records import OwnRecords
from aetheris.protocol.fold.provenance import CERTIFICATE, JobSigners, Provenance, Standing, place_of
from aetheris.protocol.fold.revocations import NONE_REVOKED, Revocations, ToldRevocation
from aetheris.protocol.messages import envelope
from aetheris.protocol.messages.events import BirthRepeated, Event, JobCreated
from aetheris.protocol.tables.rules_orders import PartitionRules, RulesOrders
from aetheris.protocol.tables.signed_messages import PIECE, PIECE_SIGNATURE, SignedMessages, message_place, piece_said
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.keys.signing import Signer, SigningKeyRevoked

_AT = 3
_BIRTH, _REPEATED = JobCreated.event_type, BirthRepeated.event_type


@dataclass(frozen=True, slots=True)
class BirthPlace:
    """Where births are written: a partition of jobs.events, and an offset there that is known to be taken, or -1."""

    partition: int
    as_of: int


class KnowsSigners(Protocol):
    """What says by what a job's records are signed: a judge of its records, or an audit of them."""

    def signers_of(self, job_id: str) -> JobSigners | None:
        """The keys of a signed job, each of which its records have brought already; None for any other."""
        ...


class RecordSigner:
    """Of a process: signs what the table asks of the parties that it is (docs/adr/0009-signed-records.md)."""

    def __init__(self, signers: Mapping[Party, Signer], clock: Clock) -> None:
        self._clock = clock
        self._signers = signers
        self.own = OwnRecords()
        """What it has signed of jobs' events."""
        self._by_type = {name: signer for party, signer in signers.items() for name in signed_types(party)}

    def signed(
        self,
        groups: Sequence[Group],
        provenance: KnowsSigners,
        revocations: Revocations = NONE_REVOKED,
        place: BirthPlace | None = None,
    ) -> Sequence[Group]:
        """The groups, with their records signed that are of signed jobs, or begin one, which is written at `place`.

        `provenance` has judged what this process has read; a job that it does not know keeps its records as they are.
        What begins a job is followed by what its root has revoked, so that nothing can lie between.

        Raises:
            CertificateNotInForce.
            SigningKeyRevoked: a job to be written to carries that.
            ValueError: a job begins, and no place is named.
        """
        asked = [any(self._signer(draft) is not None for draft in group) for group in groups]
        if not any(asked):
            return groups
        own = [group for group, is_asked in zip(groups, asked, strict=True) if is_asked]
        signed = iter(self._signed_groups(own, provenance, revocations, place))
        return [next(signed) if is_asked else group for group, is_asked in zip(groups, asked, strict=True)]

    def _signed_groups(
        self, groups: Sequence[Group], provenance: KnowsSigners, revocations: Revocations, place: BirthPlace | None
    ) -> list[Group]:
        born = {draft.key: draft for draft in self._births(groups, place)}
        told = [one for signer in self._signers.values() for one in revocations.of(signer.certificate.installation)]
        begun = [tuple(_followed(group, born, told)) for group in groups]
        places = [self._places(group, provenance, born) for group in begun]
        taken = iter(self._signed_events([one for found in places for one in found.values()]))
        return [
            tuple(next(taken) if at in found else one for at, one in enumerate(group))
            for group, found in zip(begun, places, strict=True)
        ]

    def check(self) -> None:
        """Whether all its certificates are in force; raises CertificateNotInForce."""
        for signer in self._signers.values():
            signer.check(self._clock.now())

    def messages(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Commands and lines of tables, in their order: where the table asks that of this process, each is signed and
        has its certificate, those of a key under one signature.

        Raises:
            CertificateNotInForce.
        """
        asked = [(at, one) for at, draft in enumerate(drafts) if (one := self._message(draft)) is not None]
        signed = dict(zip([at for at, _ in asked], self._signed([one for _, one in asked]), strict=True))
        return [signed.get(at, draft) for at, draft in enumerate(drafts)]

    def message(self, draft: Draft) -> Draft:
        """One of them; raises CertificateNotInForce."""
        return self.messages([draft])[0]

    def piece(self, draft: Draft) -> Draft:
        """A piece of a checkpoint, signed by the service whose topic it is; raises CertificateNotInForce."""
        writer = CHECKPOINTS.get(draft.topic)
        signer = self._signers.get(writer) if writer is not None else None
        if signer is None or draft.partition is None:
            return draft
        said = _with_certificate(piece_said(draft.partition, draft.value), signer)
        place = message_place(signer.certificate.installation, draft.topic, PIECE, draft.key.decode())
        (value,) = signer.sign([(place, said)], self._clock.now())
        return draft.replaced(headers=(*draft.headers, (PIECE_SIGNATURE, value)))

    def _message(self, draft: Draft) -> "_ToSign | None":
        named = (str(draft.topic), _type(draft))
        signer = self._signers.get(MESSAGES[named].writer) if named in SIGNED_MESSAGES else None
        if signer is None:
            return None
        place = message_place(signer.certificate.installation, *named, draft.key.decode())
        return _ToSign(_saying(draft, _with_certificate(draft.value, signer)), place, signer)

    def _births(self, groups: Sequence[Group], place: BirthPlace | None) -> list[Draft]:
        """Signed first: what follows them names them by their bytes."""
        found = [(draft, signer) for draft, signer in self._asked(groups) if _type(draft) == _BIRTH]
        if found and place is None:
            raise ValueError("who creates a job says where it is written")
        begun = [_begun(draft, signer, place) for draft, signer in found] if place is not None else ()
        return self._signed_events(begun)

    def _asked(self, groups: Sequence[Group]) -> Iterator[tuple[Draft, Signer]]:
        for group in groups:
            for draft in group:
                signer = self._signer(draft)
                if signer is not None:
                    yield draft, signer

    def _places(self, group: Group, provenance: KnowsSigners, born: Mapping[bytes, Draft]) -> "dict[int, _ToSign]":
        """What is to be signed of a group, by its place; it brings the certificates that its job lacks, as renewed."""
        found: dict[int, _ToSign] = {}
        carried: set[str] = set()
        for at, draft in enumerate(group):
            signer, name = self._signer(draft), _type(draft)
            if signer is None or name == _BIRTH:
                carried |= {signer.key_id} if signer is not None else set()
                continue
            job = provenance.signers_of(draft.key.decode())
            birth = born.get(draft.key)
            if job is None and birth is None and name != _REPEATED:
                continue
            if job is not None and signer.certificate.key_id in job.revoked:
                raise _revoked(signer)
            installation = signer.certificate.installation if job is None else job.installation
            is_known = signer.key_id in carried or (
                birth is None and job is not None and job.keys.get(signer.key_id) == signer.certificate
            )
            value = draft.value if is_known else _with_certificate(draft.value, signer)
            carried.add(signer.key_id)
            named = born_of(birth.value) if birth is not None else job.born if job is not None else None
            place = place_of(installation, name, draft.key.decode(), named)
            found[at] = _ToSign(_saying(draft, value), place, signer)
        return found

    def _signed_events(self, records: "Sequence[_ToSign]") -> list[Draft]:
        signed = self._signed(records)
        for one, draft in zip(records, signed, strict=True):
            self.own.keep(draft.value, one.place, one.signer.key_id)
        return signed

    def _signed(self, records: "Sequence[_ToSign]") -> list[Draft]:
        """In their order; one signature for all of a key."""
        signed: dict[int, Draft] = {}
        now = self._clock.now()
        for signer in dict.fromkeys(one.signer for one in records):
            own = [(at, one) for at, one in enumerate(records) if one.signer is signer]
            values = signer.sign([(one.place, one.draft.value) for _, one in own], now)
            signed |= {at: _saying(one.draft, value) for (at, one), value in zip(own, values, strict=True)}
        return [signed[at] for at in range(len(records))]

    def _signer(self, draft: Draft) -> Signer | None:
        return self._by_type.get(_type(draft)) if draft.topic == Topic.JOBS_EVENTS else None


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """Of a process: the key ids of the roots whose jobs it knows, and what it signs with, if it does."""

    roots: Collection[str] = ()
    signer: RecordSigner | None = None
    revocations: Revocations = NONE_REVOKED
    """What it brings into jobs; births and messages of those keys count no more."""

    def provenance(self, rules: PartitionRules | None = None) -> Provenance:
        """A judge of a partition's records, from here on, by its barriers of rules."""
        own = None if self.signer is None else self.signer.own
        refused = {} if rules is None else {"refused": rules.refuses}
        return Provenance(self.roots, self.revocations, own=own, **refused)

    def signed(
        self, groups: Sequence[Group], provenance: KnowsSigners, place: BirthPlace | None = None
    ) -> Sequence[Group]:
        """The groups, signed where that is asked for; `place` where jobs begin. Raises as RecordSigner.signed."""
        if self.signer is None:
            return groups
        return self.signer.signed(groups, provenance, self.revocations, place)

    def message(self, draft: Draft) -> Draft:
        """A message, signed where that is asked for; raises CertificateNotInForce."""
        return self.together([draft])[0]

    def together(self, drafts: Sequence[Draft]) -> Sequence[Draft]:
        """Messages in their order, signed where that is asked for, together; raises CertificateNotInForce."""
        return drafts if self.signer is None else self.signer.messages(drafts)

    def piece(self, draft: Draft) -> Draft:
        """A piece of a checkpoint, signed where that is asked for; raises CertificateNotInForce."""
        return draft if self.signer is None else self.signer.piece(draft)

    @property
    def messages(self) -> SignedMessages:
        """A judge of messages."""
        return SignedMessages(self.roots, self.revocations)


class PartitionRecords:
    """Of one partition: judges what is read there, in log order, and signs what is written."""

    def __init__(self, keys: RecordKeys, partition: int, orders: RulesOrders | None = None) -> None:
        """`orders`: what this process has read of them."""
        self._keys = keys
        self._partition = partition
        self.rules = PartitionRules(orders, partition)
        self._provenance = keys.provenance(self.rules)
        self._read = self._appended = -1

    def begin(self, since: int, live: Collection[tuple[str, int]] = ()) -> None:
        """As of the judge: from where records are read from here on."""
        self._provenance.begin(since, live)

    def read(self, offset: int) -> None:
        """The record at this offset was read: what is created from now on says that it is taken."""
        self._read = max(self._read, offset)

    def appended(self, offset: int) -> None:
        """The last offset that this process has filled itself, -1 if none: taken, too. It falls where that is lost."""
        self._appended = offset

    def judge(self, record: Record, event: Event) -> Standing:
        """What the next record is worth, of which `event` is the payload."""
        return self._provenance.judge(record, event)

    def signers_of(self, job_id: str) -> JobSigners | None:
        """By what the records of a signed job are known; None for any other."""
        return self._provenance.signers_of(job_id)

    def signed(self, groups: Sequence[Group]) -> Sequence[Group]:
        """The groups, signed where that is asked for.

        Raises:
            CertificateNotInForce, SigningKeyRevoked.
        """
        place = BirthPlace(self._partition, max(self._read, self._appended))
        return self._keys.signed(groups, self._provenance, place)


UNSIGNED = RecordKeys()
"""Of a process that knows no root, and signs nothing."""


@dataclass(slots=True)  # not frozen, though never changed: that makes the making of each dear
class _ToSign:
    draft: Draft
    place: SignedPlace
    signer: Signer


def _revoked(signer: Signer) -> SigningKeyRevoked:
    held = signer.certificate
    return SigningKeyRevoked(
        f"the root has revoked the key {held.key_id} of this {held.service}: "
        "give it another with `aetheris root certify --new-key`"
    )


def _begun(draft: Draft, signer: Signer, where: BirthPlace) -> _ToSign:
    installation = signer.certificate.installation
    said = where.as_of, installation.encode(), where.partition
    value = draft.value[:-1] + b',"as_of":%d,"installation":"%b","partition":%d}' % said
    place = place_of(installation, _BIRTH, draft.key.decode(), None)
    return _ToSign(_saying(draft, _with_certificate(value, signer)), place, signer)


def _followed(group: Group, born: Mapping[bytes, Draft], told: Sequence[ToldRevocation]) -> Iterator[Draft]:
    """A group with its births as they are signed, each before what their root has revoked."""
    for one in group:
        if _type(one) != _BIRTH or one.key not in born:
            yield one
            continue
        yield born[one.key]
        yield from (_carried(born[one.key], revoked) for revoked in told)


def _carried(birth: Draft, told: ToldRevocation) -> Draft:
    """A revocation in a new job, in the words of who creates it."""
    said = {name: value.decode() for name, value in birth.headers}
    event = told.event(birth.key.decode())
    id_ = event_id(event.job_id, event.event_type, event.key_id)
    source, time = said["ce_source"], said["ce_time"]
    return envelope.draft(
        Topic.JOBS_EVENTS, event, key=event.job_id, id=id_, source=source, time=time, partition=birth.partition
    )


def _saying(draft: Draft, value: bytes) -> Draft:
    """The same with another value; cheaper than `replaced`, and done for each record."""
    return Draft(draft.topic, draft.key, value, draft.headers, draft.partition)


def _with_certificate(value: bytes, signer: Signer) -> bytes:
    return value[:-1] + CERTIFICATE + signer.certificate_json + b"}"


def _type(draft: Draft) -> str:
    headers = draft.headers
    if len(headers) > _AT and headers[_AT][0] == "ce_type":  # where `envelope.draft` has it
        return _name(headers[_AT][1])
    for name, value in headers:
        if name == "ce_type":
            return _name(value)
    return ""


@lru_cache(maxsize=256)
def _name(ce_type: bytes) -> str:
    """There are few, and each record is asked for its own several times."""
    return ce_type.decode().split(".")[2]
