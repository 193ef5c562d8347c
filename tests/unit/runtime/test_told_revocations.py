"""Revocations that a service is told of by a file: births, messages and keys that it refuses, jobs that carry them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Provenance, Standing
from aetheris.protocol.fold.revocations import NONE_REVOKED, Revocations, ToldRevocation
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, FreezeBarrier, FreezeOrder, PartitionBarrier, PolicyBarrier
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import KeyUnusable, load_key, load_service_key, make_installation, revoked
from aetheris.runtime.keys.records import BirthPlace, RecordKeys, RecordSigner
from aetheris.runtime.keys.revocations import load_revocations, read_one, written
from aetheris.runtime.keys.signing import Signer, SigningKeyRevoked
from aetheris.runtime.process.record_keys import record_keys
from aetheris.runtime.process.settings import SigningSettings
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.worker.unsigned import HeardMessages

PARTIES = (Party.PLANNER, Party.LEDGER, Party.GATEWAY)
BELOW = (10, 20)


class Services:
    """An installation: its services' keys, and its root's words about them."""

    def __init__(self, folder: Path) -> None:
        self.folder, now = folder, datetime.now(UTC)
        self.root = make_installation(folder, PARTIES, now - timedelta(days=1), now + timedelta(days=1))

    def told(self, *parties: Party) -> list[ToldRevocation]:
        root = load_key(self.folder / "root.pem")
        keys = [load_service_key(self.folder, one).certificate.key_id for one in parties]
        return [ToldRevocation(revoked(root, key, datetime.now(UTC), "stolen"), BELOW) for key in keys]

    def keys(self, party: Party, revocations: Revocations = NONE_REVOKED) -> RecordKeys:
        held = load_service_key(self.folder, party)
        signer = RecordSigner({party: Signer(held.private_key, held.certificate)}, SystemClock())
        return RecordKeys({self.root}, signer, revocations)


@pytest.fixture
def ours(tmp_path: Path) -> Services:
    return Services(tmp_path / "ours")


def birth(job_id: str = "job-1") -> Draft:
    event = ev.JobCreated(job_id=job_id, tenant="t", submitted_by="ann", request_hash="h")
    return draft(Topic.JOBS_EVENTS, event, key=job_id, id="i", source="s", time="t")


def standing(provenance: Provenance, one: Draft, partition: int, offset: int) -> Standing:
    record = Record(one.topic, partition, offset, 0, one.key, one.headers, one.value)
    found = decode_event(record)
    assert isinstance(found, Envelope)
    return provenance.judge(record, found.body)


@pytest.mark.parametrize(
    ("partition", "offset", "counts"), [(0, 9, True), (0, 10, False), (1, 19, True), (1, 20, False), (2, 0, False)]
)
def test_births_count_that_lay_in_the_log_before(ours: Services, partition: int, offset: int, *, counts: bool) -> None:
    planner = ours.keys(Party.PLANNER)
    ((born,),) = planner.signed([(birth(),)], planner.provenance(), BirthPlace(partition, -1))
    reader = Provenance({ours.root}, Revocations(ours.told(Party.PLANNER)))
    assert standing(reader, born, partition, offset) is (Standing.COUNTS if counts else Standing.VOID)
    assert (reader.signers_of("job-1") is not None) == counts
    other = Provenance({ours.root}, Revocations(ours.told(Party.LEDGER)))
    assert standing(other, born, partition, offset) is Standing.COUNTS, "of another key"


def test_a_new_job_carries_them_right_behind_its_birth(ours: Services) -> None:
    """In the same append, so that nothing of a stolen key can lie between."""
    told = Revocations(ours.told(Party.LEDGER, Party.GATEWAY))
    planner = ours.keys(Party.PLANNER, told)
    paused = ev.JobPaused(job_id="job-1", number=1, by="ann")
    behind = draft(Topic.JOBS_EVENTS, paused, key="job-1", id="i", source="s", time="t")
    (group,) = planner.signed([(birth(), behind)], planner.provenance(), BirthPlace(0, -1))
    types = [dict(one.headers)["ce_type"].split(b".")[2] for one in group]
    assert types == [b"job_created", b"key_revoked", b"key_revoked", b"job_paused"]
    reader = Provenance({ours.root})
    assert [standing(reader, one, 0, at) for at, one in enumerate(group)] == [Standing.COUNTS] * 4
    signers = reader.signers_of("job-1")
    assert signers is not None
    assert signers.revoked == {one.revocation.key_id for one in ours.told(Party.LEDGER, Party.GATEWAY)}


def test_commands_of_a_revoked_gateway_are_none(ours: Services) -> None:
    cancel = Cancel(job_id="job-1", by="ann", tenant="t")
    said = draft(Topic.JOBS_COMMANDS, cancel, key="job-1", id="i", source="s", time="t")
    one = ours.keys(Party.GATEWAY).message(said)
    for parties, counts in (((), True), ((Party.PLANNER,), True), ((Party.GATEWAY,), False)):
        judge = SignedMessages({ours.root}, Revocations(ours.told(*parties)))
        assert judge.counts(Topic.JOBS_COMMANDS, "cancel", one.key, one.value) == counts


def test_a_file_is_read_whole_or_the_service_does_not_start(ours: Services, tmp_path: Path) -> None:
    path, told = tmp_path / "revocations.json", ours.told(Party.LEDGER)
    assert not load_revocations(None, {ours.root})
    path.write_bytes(written(told))
    key_id = told[0].revocation.key_id
    assert load_revocations(path, {ours.root}).revokes(ours.root, key_id)
    with pytest.raises(KeyUnusable, match="does not name"):
        load_revocations(path, {"0" * 64})
    path.write_bytes(written([replace(told[0], revocation=replace(told[0].revocation, reason="other"))]))
    with pytest.raises(KeyUnusable, match="has not signed"):
        load_revocations(path, {ours.root})
    for content in (b"", b"{}", b"[1]", json.dumps([told[0].revocation.to_json()]).encode()):
        path.write_bytes(content)
        with pytest.raises(KeyUnusable, match="no list"):
            load_revocations(path, {ours.root})
    with pytest.raises(KeyUnusable):
        load_revocations(tmp_path / "none.json", {ours.root})


def test_only_what_its_root_has_signed_is_brought(ours: Services) -> None:
    said = ours.told(Party.LEDGER)[0].revocation
    assert read_one(json.dumps(said.to_json()).encode()) == said
    for content in (b"", b"[]", json.dumps(said.to_json() | {"reason": "r"}).encode()):
        assert read_one(content) is None


def test_a_service_does_not_start_with_a_key_that_is_revoked(ours: Services, tmp_path: Path) -> None:
    path = tmp_path / "revocations.json"
    settings = SigningSettings(
        installation=(ours.root,),
        record_key=ours.folder / "ledger.pem",
        record_cert=ours.folder / "ledger.cert.json",
        revocations=path,
    )
    path.write_bytes(written(ours.told(Party.PLANNER)))
    assert record_keys(settings, Party.LEDGER).revocations
    path.write_bytes(written(ours.told(Party.PLANNER, Party.LEDGER)))
    with pytest.raises(SigningKeyRevoked, match="--new-key"):
        record_keys(settings, Party.LEDGER)


BARRIERS = [
    PolicyBarrier(number=1),
    FreezeBarrier(
        order=FreezeOrder(number=1, by="olga", at="", scope=FreezeScope(tenant="t", tool="pay"), frozen=True)
    ),
]


@pytest.mark.parametrize("barrier", BARRIERS, ids=lambda one: one.type_name)
@pytest.mark.parametrize(
    ("partition", "offset", "counts"), [(0, 9, True), (0, 10, False), (1, 19, True), (1, 20, False), (2, 0, False)]
)
def test_a_barrier_behind_its_ledgers_revocation_is_none(
    ours: Services, barrier: PartitionBarrier, partition: int, offset: int, *, counts: bool
) -> None:
    told = Revocations(ours.told(Party.LEDGER))
    made = draft(Topic.JOBS_EVENTS, barrier, key=barrier.job_id, id="b", source="s", time="t", partition=partition)
    one = ours.keys(Party.LEDGER).message(made)
    record = Record(one.topic, partition, offset, 0, one.key, one.headers, one.value)
    for revocations, expected in ((told, counts), (NONE_REVOKED, True)):
        heard = HeardMessages(SignedMessages({ours.root}, revocations), Metrics("executor"))
        assert (heard.barrier(record) is not None) == expected
