"""Signed jobs: proofs, script and services find the same records to be their writers', and no other."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from aetheris.proofs import Audit, RawRecord, authorship
from aetheris.proofs.authorship import since_birth
from aetheris.proofs.findings import ProofReport
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.signing import born_of
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Provenance, Standing, place_of
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_event, draft
from aetheris.protocol.messages.events import Event
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import load_key, load_service_key, make_installation, revoked
from aetheris.runtime.keys.records import BirthPlace, RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer
from tests.testkit import standalone

PARTIES = (Party.PLANNER, Party.LEDGER, Party.PROBER, Party.AUDITOR)
HISTORIES = 400
JOB = "job-1"
KEY = "k" * 64


class SignedLog:
    """A job's log, each record signed by whose it is."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        self.root = make_installation(folder, PARTIES, now - timedelta(days=1), now + timedelta(days=1))
        held = {party: load_service_key(folder, party) for party in PARTIES}
        signers = {party: Signer(key.private_key, key.certificate) for party, key in held.items()}
        self._keys = RecordKeys({self.root}, RecordSigner(signers, SystemClock()))
        self.provenance = self._keys.provenance()
        self.records: list[RawRecord] = []

    def write(self, *events: Event) -> None:
        self.sign(*map(drafted, events))

    def sign(self, *drafts: Draft) -> None:
        """Records, under one signature of each of their writers."""
        (group,) = self._keys.signed([drafts], self.provenance, BirthPlace(0, -1))
        for one in group:
            self.put(one)

    def put(self, one: Draft) -> None:
        self.records.append(RawRecord(len(self.records), one.key, one.headers, one.value))
        judged(self.provenance, self.records[-1])


def drafted(event: Event) -> Draft:
    id_ = event_id(event.job_id, event.event_type, event.model_dump_json())
    return draft(Topic.JOBS_EVENTS, event, key=event.job_id, id=id_, source="s", time="2026-01-01T00:00:00Z")


def judged(provenance: Provenance, raw: RawRecord) -> Standing | None:
    """As services judge it; None for what they can't decode."""
    record = Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value)
    try:
        found = decode_event(record)
    except Undecodable:
        return None
    return provenance.judge(record, found.body) if isinstance(found, Envelope) else None


def whole(folder: Path) -> SignedLog:
    """A job whose call was allowed and given up."""
    log = SignedLog(folder)
    graph = {"nodes": [{"id": "a", "tool": "t", "args": {}}], "tools": {}}
    said: dict[str, Any] = {"revision": 0, "plan_hash": "h", "planner": "p", "planner_version": "1"}
    log.write(
        born(),
        ev.PlanGenerated.model_validate({"job_id": JOB, "task_graph": graph} | said),
    )
    log.write(allowed())
    log.write(ended("ledger", "permanent_failure"), ev.JobPaused(job_id=JOB, number=1, by="ann"))
    log.put(drafted(revocation(folder, Party.AUDITOR)))
    log.write(ev.JobFailed(job_id=JOB, error="e"))
    return log


def revocation(folder: Path, party: Party) -> Event:
    key_id = load_service_key(folder, party).certificate.key_id
    made = revoked(load_key(folder / "root.pem"), key_id, datetime.now(UTC), "stolen")
    return ev.KeyRevoked.model_validate({"job_id": JOB} | made.to_json())


def born() -> ev.JobCreated:
    return ev.JobCreated(job_id=JOB, tenant="t", submitted_by="ann", request_hash="h")


def about(**more: Any) -> dict[str, Any]:
    return {"job_id": JOB, "node_id": "a", "idempotency_key": KEY} | more


def allowed() -> Event:
    more = about(tool_version="1", args_hash="h", rule="r", policy_hash="p", token=1)
    return ev.PolicyAllowed.model_validate(more)


def ended(via: str, outcome: str) -> Event:
    return ev.ToolInvocationFinished.model_validate(about(invocation_id="n", via=via, outcome=outcome, error="e"))


def audited(records: Sequence[RawRecord]) -> ProofReport:
    audit = Audit()
    for record in records:
        audit.add(record)
    report = audit.report()
    standalone.assert_agrees(report, records)
    return report


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> SignedLog:
    return whole(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> SignedLog:
    """The same job in an installation of others."""
    return whole(tmp_path_factory.mktemp("elsewhere"))


def test_a_job_that_its_services_signed_has_nothing_unproven(signed: SignedLog) -> None:
    report = audited(signed.records)
    assert (report.installation, report.unproven) == (signed.root, ())


@pytest.mark.parametrize(
    "forged",
    [
        allowed(),
        ended("probe", "success"),
        ended("human", "permanent_failure"),
        ended("probe", "retryable_failure"),
        ev.JobCompleted(job_id=JOB),
        ev.JobCreated(job_id=JOB, tenant="t", submitted_by="eve", request_hash="other"),
        ev.WaitCompleted.model_validate({"job_id": JOB, "wait_type": "upgrade"}),
        ev.ViolationFound(job_id=JOB, rule="r", event_id="e", offset=0, message="m"),
    ],
    ids=lambda event: event.event_type,
)
def test_what_is_not_signed_is_named_and_breaks_no_rule(signed: SignedLog, forged: Event) -> None:
    one = drafted(forged)
    raw = RawRecord(len(signed.records), one.key, one.headers, one.value)
    before, report = audited(signed.records), audited([*signed.records, raw])
    assert [(found.rule, found.offset) for found in report.unproven] == [("unproven_record", raw.offset)]
    assert report.violations == before.violations
    assert (report.execution_hash, report.outcome_hash) == (before.execution_hash, before.outcome_hash)


def test_what_a_revoked_key_signs_behind_it_is_named(tmp_path: Path) -> None:
    """The bytes are signed as they were; only their place has changed."""
    log = whole(tmp_path)
    place = next(at for at, one in enumerate(log.records) if b"policy_allowed" in one.header("ce_type"))
    said = drafted(revocation(tmp_path, Party.LEDGER))
    for at, expected in ((place, [place + 1, place + 2]), (place + 1, [place + 2]), (len(log.records), [])):
        records = [*log.records[:at], RawRecord(0, said.key, said.headers, said.value), *log.records[at:]]
        records = [replace(one, offset=number) for number, one in enumerate(records)]
        assert [found.offset for found in audited(records).unproven] == expected


def dated(raw: RawRecord, time: str) -> RawRecord:
    return replace(raw, headers=tuple((n, time.encode() if n == "ce_time" else v) for n, v in raw.headers))


def test_what_is_dated_outside_of_its_certificate_is_noted_and_counts(signed: SignedLog) -> None:
    """By its writer's own clock; the certificates are of two days around now."""
    now = datetime.now(UTC)
    records = [dated(one, now.isoformat()) for one in signed.records]
    within = audited(records)
    assert [note for note in within.notes if note.rule == "certificate_time"] == []
    place = next(at for at, one in enumerate(records) if b"policy_allowed" in one.header("ce_type"))
    for time in ((now + timedelta(days=2)).isoformat(), (now - timedelta(days=2)).isoformat(), "then", ""):
        report = audited([*records[:place], dated(records[place], time), *records[place + 1 :]])
        assert [note.offset for note in report.notes if note.rule == "certificate_time"] == [place]
        assert (report.unproven, report.violations) == (within.unproven, within.violations)


LONE = rb'"\ud800"'
"""Half of a pair: nobody reads it, so nobody can have signed it."""


def of_stranger(value: bytes) -> bytes:
    """Signed by a key that nobody has seen, whose certificate holds half a pair."""
    value = re.sub(rb'"key":"[^"]+","(path|value)"', rb'"key":"%b","\1"' % (b"0" * 64), value)
    return re.sub(rb'"not_before":"[^"]+"', lambda _: b'"not_before":' + LONE, value)


@pytest.mark.parametrize("of", ["root", "certificate", "job_id"])
def test_what_holds_half_a_pair_is_signed_by_nobody(signed: SignedLog, of: str) -> None:
    first = signed.records[0]
    certificate = re.search(rb'"certificate":\{[^}]+\}', first.value)
    assert certificate is not None
    if of == "root":
        records = [replace(first, value=of_stranger(first.value)), *signed.records[1:]]
        assert "not_born" in {broken.rule for broken in audited(records).violations}
        return
    paused = next(one for one in signed.records if b"job_paused" in one.header("ce_type"))
    body, _, sig = paused.value.rpartition(b',"sig":')
    changed = {
        "certificate": of_stranger(body + b"," + certificate[0] + b',"sig":' + sig),
        "job_id": paused.value.replace(b'"job_id":"job-1"', b'"job_id":' + LONE),
    }[of]
    assert LONE in changed
    forged = replace(paused, offset=len(signed.records), value=changed)
    found = audited([*signed.records, forged])
    assert [(one.rule, one.offset) for one in found.violations] == [("undecodable", forged.offset)]


def test_whose_creation_nobody_signed_is_not_born(signed: SignedLog) -> None:
    first = signed.records[0]
    altered = replace(first, value=first.value.replace(b'"ann"', b'"eve"'))
    report = audited([altered, *signed.records[1:]])
    assert "not_born" in {broken.rule for broken in report.violations}


@pytest.mark.parametrize(("further", "counts"), [(0, True), (REACH - 1, True), (REACH, False), (1 << 40, False)])
def test_a_creation_that_lies_far_behind_where_it_was_written_is_none(
    signed: SignedLog, further: int, counts: bool
) -> None:
    """As of a job that was laid there once more; to services, proofs and script alike."""
    records = [replace(one, offset=one.offset + further) for one in signed.records]
    report = audited(records)
    assert ("not_born" not in {broken.rule for broken in report.violations}) == counts
    assert (judged(Provenance(), records[0]) is Standing.COUNTS) == counts


def test_a_creation_that_is_none_certifies_nobody(signed: SignedLog, tmp_path: Path) -> None:
    """Eve's own root signs her a planner's key; under it she says a word of the job that is none of hers."""
    eve = SignedLog(tmp_path)
    held, now = load_service_key(tmp_path, Party.PLANNER), datetime.now(UTC)
    signer = Signer(held.private_key, held.certificate)
    keys = RecordKeys({eve.root}, RecordSigner({Party.PLANNER: signer}, SystemClock()))
    ((void,),) = keys.signed([(drafted(born()),)], eve.provenance, BirthPlace(0, 50))
    paused = drafted(ev.JobPaused(job_id=JOB, number=9, by="eve"))
    place = place_of(signed.root, "job_paused", JOB, born_of(signed.records[0].value))
    (value,) = signer.sign([(place, paused.value)], now)
    real = [replace(one, offset=one.offset + 1) for one in signed.records]
    said = RawRecord(len(real) + 1, paused.key, paused.headers, value)
    report = audited([RawRecord(0, void.key, void.headers, void.value), *real, said])
    assert report.installation == signed.root
    assert [one.offset for one in report.unproven] == [0, said.offset]


def test_reach_is_one_to_all_three() -> None:
    assert authorship.REACH == standalone.verify.REACH == REACH


@pytest.mark.parametrize("under", ["no root", "another root"])
def test_a_creation_before_the_signed_one_makes_no_other_job_of_it(
    signed: SignedLog, elsewhere: SignedLog, under: str
) -> None:
    """Where the root is known, the job begins with the creation under it, and reads as if nothing lay before."""
    first = signed.records[0]
    other = replace(first, value=drafted(born()).value) if under == "no root" else elsewhere.records[0]
    plan = replace(signed.records[1], value=signed.records[1].value.rpartition(b',"sig":')[0] + b"}")
    records = [replace(one, offset=at) for at, one in enumerate((other, plan, *signed.records))]
    report = audited(since_birth(records, {signed.root}))
    whole = audited(signed.records)
    assert (report.installation, report.unproven) == (signed.root, ())
    assert report.event_chain_root_hash == whole.event_chain_root_hash
    assert since_birth(records, {"f" * 64}) is records, "no creation is signed under that root"


def test_what_is_judged_as_unsigned_beside_a_creation_under_a_root_says_so(signed: SignedLog) -> None:
    """Also where the unsigned one brings the id of the signed one, so that nothing is created twice."""
    first = signed.records[0]
    other = replace(first, value=drafted(born()).value)
    records = [replace(one, offset=at) for at, one in enumerate((other, *signed.records))]
    report = audited(records)
    assert report.installation is None
    assert [(note.rule, note.offset) for note in report.notes if note.rule == "signed_creation"] == [
        ("signed_creation", 1)
    ]
    assert not [note for note in audited(signed.records).notes if note.rule == "signed_creation"]


def test_services_proofs_and_script_judge_alike_whatever_is_altered(signed: SignedLog, elsewhere: SignedLog) -> None:
    """Bytes changed, records moved, left out, repeated, taken from elsewhere."""
    seed = int(os.environ.get("SEED", Random().randrange(2**32)))  # noqa: S311  a test's choice
    random = Random(seed)  # noqa: S311  a test's choice
    proved = 0
    for _ in range(HISTORIES):
        records = altered(random, [*signed.records], [*signed.records, *elsewhere.records])
        report = audited(records)
        provenance = Provenance()
        standings = {raw.offset: judged(provenance, raw) for raw in records}
        void = {found.offset for found in report.unproven}
        proved += len(records) - len(void)
        for raw in records:
            if standings[raw.offset] is not None and provenance.signers_of(JOB) is not None:
                is_repeated_birth = b"job_created" in raw.header("ce_type")
                expected = standings[raw.offset] is Standing.VOID
                assert (raw.offset in void) == expected or is_repeated_birth, f"SEED={seed}, at {raw.offset}"
    assert proved > HISTORIES, "much of it is still good"


def altered(random: Random, records: list[RawRecord], others: Sequence[RawRecord]) -> list[RawRecord]:
    for _ in range(random.randint(1, 3)):
        place, other = random.randrange(len(records)), random.randrange(len(records))
        value = records[place].value
        match random.randrange(5):
            case 0 if len(records) > 1 and place:
                del records[place]
            case 1:
                records.insert(other, records[place])
            case 2:
                records.insert(max(1, other), random.choice(others))
            case 3:
                at = random.randrange(len(value))
                changed = value[:at] + random.choice((b"", b"0", b"a", b'"', b" ")) + value[at + 1 :]
                records[place] = replace(records[place], value=changed)
            case _:
                records[place] = replace(records[place], value=value.rpartition(b',"sig":')[0] + b"}")
    return [replace(record, offset=at) for at, record in enumerate(records)]
