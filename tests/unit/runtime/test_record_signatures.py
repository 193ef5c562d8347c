"""Signed jobs: what their services wrote counts, and nothing that anybody else did, wherever he took it from."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from aetheris.protocol.base import ed25519
from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.sealed import REMEMBERED
from aetheris.protocol.base.signing import born_of
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import SIGNING, KnownBy, Party, rule_of, signed_types
from aetheris.protocol.fold.provenance import JobSigners, Provenance, Standing, place_of, writer_of
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.protocol.messages.events import Event
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.keys.files import certified, load_key, load_service_key, make_installation, revoked
from aetheris.runtime.keys.records import UNSIGNED, BirthPlace, RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import CertificateEnded, LoadedKey, Signer, SigningKeyRevoked

FIRST = BirthPlace(0, -1)
NOW = datetime(2026, 5, 1, tzinfo=UTC)
SERVICES = (Party.PLANNER, Party.LEDGER, Party.PROBER, Party.AUDITOR)
SIGNED = sorted(frozenset().union(*map(signed_types, SIGNING)) - {"job_created"})
COUNTS, VOID, UNKNOWN_ROOT = Standing.COUNTS, Standing.VOID, Standing.UNKNOWN_ROOT


class At(Clock):
    """A clock that stands."""

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, delay_s: float) -> None:
        raise AssertionError(delay_s)


class Installation:
    """A root, its services' keys, and who writes with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = make_installation(folder, SERVICES, NOW, NOW + timedelta(days=1))

    def keys(self, *parties: Party, now: datetime = NOW) -> RecordKeys:
        held = {party: load_service_key(self.folder, party) for party in parties}
        signers = {party: Signer(key.private_key, key.certificate) for party, key in held.items()}
        return RecordKeys(frozenset({self.id}), RecordSigner(signers, At(now)))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("others"))


class SignedJob:
    """A job's log, and a reader of it; `write` is what a service does, `judge` what every reader does."""

    def __init__(self, installation: Installation, job_id: str = "job-1") -> None:
        self.installation, self.job_id = installation, job_id
        self.provenance = Provenance({installation.id})
        self.records: list[Record] = []
        self.write(Party.PLANNER, created(job_id), plan(job_id))

    def write(self, party: Party, *events: Event) -> list[Standing]:
        keys = self.installation.keys(party)
        (signed,) = keys.signed([tuple(map(drafted, events))], self.provenance, FIRST)
        return [self.judge(one) for one in signed]

    def judge(self, one: Draft, event: Event | None = None) -> Standing:
        record = placed(one, len(self.records))
        self.records.append(record)
        return self.provenance.judge(record, event_in(record) if event is None else event)


def created(job_id: str = "job-1", **more: Any) -> ev.JobCreated:
    return ev.JobCreated(job_id=job_id, tenant="t", submitted_by="ann", request_hash="h", **more)


def plan(job_id: str = "job-1") -> ev.PlanGenerated:
    graph = {"nodes": [{"id": "a", "tool": "t", "args": {}}], "tools": {}}
    said = {"revision": 0, "plan_hash": "h", "planner": "p", "planner_version": "1", "task_graph": graph}
    return ev.PlanGenerated.model_validate({"job_id": job_id} | said)


def key_event(kind: type[ev.KeyEvent], job_id: str = "job-1", **more: Any) -> Event:
    return kind.model_validate({"job_id": job_id, "node_id": "a", "idempotency_key": "k" * 64} | more)


def allowed(job_id: str = "job-1", version: str = "1") -> Event:
    return key_event(ev.PolicyAllowed, job_id, tool_version=version, args_hash="h", rule="r", policy_hash="p", token=1)


def drafted(event: Event) -> Draft:
    return draft(Topic.JOBS_EVENTS, event, key=event.job_id, id=event.event_type, source="s", time="t")


def placed(one: Draft, offset: int) -> Record:
    return Record(one.topic, 0, offset, 0, one.key, one.headers, one.value)


def event_in(record: Record) -> Event:
    found = decode_event(record)
    assert isinstance(found, Envelope)
    return found.body


def test_what_its_services_write_counts(ours: Installation) -> None:
    job = SignedJob(ours)
    assert job.write(Party.LEDGER, allowed()) == [COUNTS]
    assert job.write(Party.LEDGER, allowed(version="2")) == [COUNTS]
    assert job.write(Party.PLANNER, ev.JobCompleted(job_id="job-1")) == [COUNTS]
    fresh = Provenance({ours.id})
    assert [fresh.judge(one, event_in(one)) for one in job.records] == [COUNTS] * 5, "whoever reads it all agrees"


def test_a_certificate_is_carried_until_it_is_known(ours: Installation) -> None:
    job = SignedJob(ours)
    job.write(Party.LEDGER, allowed())
    job.write(Party.LEDGER, allowed(version="2"))
    assert [b'"certificate":' in one.value for one in job.records] == [True, False, True, False]


def test_a_renewed_certificate_is_carried_too(ours: Installation, tmp_path: Path) -> None:
    """An audit compares its times; for the fold it is the same key."""
    shutil.copytree(ours.folder, tmp_path, dirs_exist_ok=True)
    held, root = load_service_key(tmp_path, Party.LEDGER), load_key(tmp_path / "root.pem")
    longer = certified(root, Party.LEDGER, held.certificate.public_key, NOW, NOW + timedelta(days=9))
    (tmp_path / "ledger.cert.json").write_text(json.dumps(longer.to_json()))
    job = SignedJob(ours)
    job.write(Party.LEDGER, allowed())
    job.installation = Installation(tmp_path)
    assert job.write(Party.LEDGER, allowed(version="2")) == [COUNTS]
    assert longer.to_json()["not_after"].encode() in job.records[-1].value


def test_every_group_can_stand_without_the_others(ours: Installation) -> None:
    """One may be refused by the brokers: the certificate that it has with it is then in no record."""
    job, keys = SignedJob(ours), ours.keys(Party.LEDGER)
    _, (second,) = keys.signed([(drafted(allowed()),), (drafted(allowed(version="2")),)], job.provenance)
    assert job.judge(second) is COUNTS


def test_a_round_of_many_jobs_is_signed_together(ours: Installation) -> None:
    groups: list[Group] = [(drafted(created(f"job-{n}")), drafted(plan(f"job-{n}"))) for n in range(5)]
    signed = ours.keys(Party.PLANNER).signed(groups, Provenance({ours.id}), FIRST)
    reader = Provenance({ours.id})
    records = [placed(one, at) for at, one in enumerate(one for group in signed for one in group)]
    assert [reader.judge(one, event_in(one)) for one in records] == [COUNTS] * 10
    assert len({one.value.rpartition(b'"value":"')[2] for one in records}) == 2, "births, and what follows them"


@pytest.mark.parametrize(
    ("member", "standing"),
    [
        (b',"certificate":%b', COUNTS),
        (b',"certificate":%b,"more":1', COUNTS),
        (b',"more":{"x":1,"certificate":%b}', VOID),
        (b',"more":[{"x":1,"certificate":%b}]', VOID),
        (b',"certificate":%b,"more":{"x":1,"certificate":null}', COUNTS),
        (b',"certificate":%b,"certificate":null', VOID),
        (b',"certificate":null,"certificate":%b', COUNTS),
    ],
)
def test_only_a_certificate_of_the_record_itself_is_its_own(
    ours: Installation, member: bytes, standing: Standing
) -> None:
    job = SignedJob(ours)
    held = load_service_key(ours.folder, Party.LEDGER)
    signer, one = Signer(held.private_key, held.certificate), drafted(allowed())
    payload = one.value[:-1] + member % signer.certificate_json + b"}"
    place = place_of(ours.id, "policy_allowed", job.job_id, born_of(job.records[0].value))
    (value,) = signer.sign([(place, payload)], NOW)
    assert job.judge(one.replaced(value=value), allowed()) is standing


def test_a_service_need_not_verify_what_it_signed_itself(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    monkeypatch.setattr(ed25519, "_is_by", lambda *of: asked.append(of[1]) or False)
    held = load_service_key(ours.folder, Party.LEDGER)
    place = place_of(ours.id, "policy_allowed", "job-9", "b")
    Signer(held.private_key, held.certificate).sign([(place, b'{"x":1}')], NOW)
    (key, value, message), known = list(ed25519._kept.items())[-1]  # pyright: ignore[reportPrivateUsage]
    assert ed25519.verify(key, value, message)
    assert known
    assert not asked
    assert not ed25519.verify(key, value, message + b"x")
    assert asked == [value]


@pytest.mark.parametrize("event_type", SIGNED)
def test_without_a_signature_it_is_void(ours: Installation, event_type: str) -> None:
    job = SignedJob(ours)
    event = example(event_type)
    assert job.judge(drafted(event), event) is VOID
    assert job.judge(drafted(event).replaced(value=drafted(event).value[:-1] + b',"sig":{"key":"x"}}'), event) is VOID


@dataclass(frozen=True)
class EveryJob:
    """Knows of every job the same."""

    job: JobSigners

    def signers_of(self, job_id: str) -> JobSigners:  # noqa: ARG002
        return self.job


@pytest.mark.parametrize("event_type", sorted(signed_types(Party.PROBER)))
def test_who_reads_no_job_signs_by_what_he_is_told_of_it(ours: Installation, event_type: str) -> None:
    """The prober: it knows of the job what its question says, and has its certificate with each answer."""
    job, event = SignedJob(ours), example(event_type)
    known = job.provenance.signers_of(event.job_id)
    assert known is not None
    for born, expected in ((known.born, COUNTS), ("0" * 64, VOID), (known.born, COUNTS)):
        told = EveryJob(JobSigners(known.installation, born))
        ((signed,),) = ours.keys(Party.PROBER).signed([(drafted(event),)], told)
        assert b'"certificate":' in signed.value
        assert job.judge(signed, event) is expected


@pytest.mark.parametrize("event_type", SIGNED)
@pytest.mark.parametrize("party", SERVICES)
def test_only_its_writers_signature_counts(ours: Installation, event_type: str, party: Party) -> None:
    """Each service has a key under the same root, and signs what is another's."""
    job, event = SignedJob(ours), example(event_type)
    value = by_hand(job, party, event)
    rule = writer_of(event)
    expected = COUNTS if rule is not None and rule.writer is party else VOID
    assert job.judge(drafted(event).replaced(value=value), event) is expected


def example(event_type: str) -> Event:
    """One of its type that needs a signature."""
    more: dict[str, dict[str, Any]] = {
        "tool_invocation_finished": {"invocation_id": "n", "outcome": Outcome.PERMANENT, "via": Via.LEDGER},
        "invocation_in_doubt": {"invocation_id": "n", "error_class": "e"},
    }
    filled: dict[str, Any] = {"job_id": "job-1", "node_id": "a", "idempotency_key": "k" * 64, "command_id": "c"}
    model = ev.EVENTS[event_type]
    said: dict[str, Any] = (
        dict.fromkeys(model.__struct_fields__) | filled | {"wait_type": "timer"} | more.get(event_type, {})
    )
    return model(**{name: value for name, value in said.items() if name in model.__struct_fields__})


def by_hand(job: SignedJob, party: Party, event: Event) -> bytes:
    """What a service's key signs that signs whatever it is given."""
    held = load_service_key(job.installation.folder, party)
    signers = job.provenance.signers_of(event.job_id)
    assert signers is not None
    value = drafted(event).value
    value = value[:-1] + b',"certificate":' + canonical(held.certificate.to_json()) + b"}"
    place = place_of(signers.installation, event.event_type, event.job_id, signers.born)
    return Signer(held.private_key, held.certificate).sign([(place, value)], NOW)[0]


def test_what_a_job_was_given_counts_in_no_other(ours: Installation) -> None:
    """Its key, and its birth: a job of the same name elsewhere has another."""
    one, two, again = SignedJob(ours), SignedJob(ours, "job-2"), SignedJob(ours)
    one.write(Party.LEDGER, allowed())
    given = one.records[-1]
    moved = Draft(given.topic, b"job-2", given.value.replace(b'"job-1"', b'"job-2"'), given.headers)
    assert two.judge(moved) is VOID
    reborn = Provenance({ours.id})
    (birth,) = ours.keys(Party.PLANNER).signed([(drafted(created(agent="other")),)], reborn, FIRST)
    assert reborn.judge(placed(birth[0], 0), event_in(placed(birth[0], 0))) is COUNTS
    assert reborn.judge(given, event_in(given)) is VOID
    assert again.judge(Draft(given.topic, given.key or b"", given.value, given.headers)) is COUNTS, "the same birth"


def revocation(installation: Installation, party: Party, root: Installation | None = None) -> ev.KeyRevoked:
    """The root's word for the key of one of the installation's services; or another's."""
    key_id = load_service_key(installation.folder, party).certificate.key_id
    made = revoked(load_key((root or installation).folder / "root.pem"), key_id, NOW, "stolen")
    return ev.KeyRevoked.model_validate({"job_id": "job-1"} | made.to_json())


def test_behind_a_revocation_its_key_signs_nothing_and_what_has_counted_counts(ours: Installation) -> None:
    job = SignedJob(ours)
    assert job.write(Party.LEDGER, allowed()) == [COUNTS]
    late = drafted(allowed(version="2")).replaced(value=by_hand(job, Party.LEDGER, allowed(version="2")))
    assert job.judge(drafted(revocation(ours, Party.LEDGER))) is COUNTS
    assert job.judge(late) is VOID
    assert job.write(Party.PLANNER, ev.JobCompleted(job_id="job-1")) == [COUNTS], "other keys go on"
    fresh = Provenance({ours.id})
    assert [fresh.judge(one, event_in(one)) for one in job.records] == [COUNTS] * 4 + [VOID, COUNTS]


def test_a_revocation_comes_before_the_keys_first_word_in_the_job_as_well(ours: Installation) -> None:
    job = SignedJob(ours)
    late = drafted(allowed()).replaced(value=by_hand(job, Party.LEDGER, allowed()))
    assert [job.judge(drafted(revocation(ours, Party.LEDGER))) for _ in range(2)] == [COUNTS, COUNTS]
    assert job.judge(late) is VOID


def test_who_is_not_the_jobs_root_revokes_nothing(ours: Installation, others: Installation) -> None:
    job = SignedJob(ours)
    said = revocation(ours, Party.LEDGER)
    forged = [
        revocation(ours, Party.LEDGER, root=others),
        said.model_copy(update={"root": revocation(others, Party.LEDGER).root}),
        revocation(others, Party.AUDITOR).model_copy(update={"key_id": said.key_id}),
        said.model_copy(update={"reason": "another"}),
        revocation(ours, Party.PLANNER).model_copy(update={"key_id": said.key_id}),
    ]
    assert [job.judge(drafted(one)) for one in forged] == [VOID] * len(forged)
    assert job.write(Party.LEDGER, allowed()) == [COUNTS]


def test_whose_key_is_revoked_signs_nothing_more(ours: Installation) -> None:
    job, elsewhere = SignedJob(ours), SignedJob(ours, "job-2")
    job.judge(drafted(revocation(ours, Party.LEDGER)))
    with pytest.raises(SigningKeyRevoked, match="--new-key"):
        job.write(Party.LEDGER, allowed())
    assert elsewhere.write(Party.LEDGER, allowed("job-2")) == [COUNTS], "of other jobs it says nothing"


def test_another_key_of_the_same_service_goes_on(ours: Installation, tmp_path: Path) -> None:
    shutil.copytree(ours.folder, tmp_path, dirs_exist_ok=True)
    for name in ("ledger.pem", "ledger.cert.json"):
        (tmp_path / name).unlink()
    job, renewed = SignedJob(ours), Installation(tmp_path)
    job.write(Party.LEDGER, allowed())
    job.judge(drafted(revocation(ours, Party.LEDGER)))
    job.installation = renewed
    assert job.write(Party.LEDGER, allowed(version="2")) == [COUNTS]


def test_a_yes_under_another_type_is_none(ours: Installation) -> None:
    job = SignedJob(ours)
    job.write(Party.LEDGER, allowed())
    given = job.records[-1]
    headers = tuple(
        (name, b"io.aetheris.invocation_parked.v1" if name == "ce_type" else v) for name, v in given.headers
    )
    parked = key_event(ev.InvocationParked, invocation_id="n", reason="r")
    assert job.judge(Draft(given.topic, given.key or b"", given.value, headers), parked) is VOID


def test_another_roots_certificates_are_worth_nothing_in_our_jobs(ours: Installation, others: Installation) -> None:
    job = SignedJob(ours)
    held = load_service_key(others.folder, Party.LEDGER)
    signers = job.provenance.signers_of("job-1")
    assert signers is not None
    value = drafted(allowed()).value
    value = value[:-1] + b',"certificate":' + canonical(held.certificate.to_json()) + b"}"
    place = place_of(ours.id, "policy_allowed", "job-1", signers.born)
    (signed,) = Signer(held.private_key, held.certificate).sign([(place, value)], NOW)
    assert job.judge(drafted(allowed()).replaced(value=signed)) is VOID


def test_a_birth_under_a_root_that_nobody_named_waits(ours: Installation, others: Installation) -> None:
    (birth,) = others.keys(Party.PLANNER).signed([(drafted(created()),)], Provenance({others.id}), FIRST)
    record = placed(birth[0], 0)
    assert Provenance({ours.id}).judge(record, event_in(record)) is UNKNOWN_ROOT
    assert Provenance(()).judge(record, event_in(record)) is UNKNOWN_ROOT
    assert Provenance(None).judge(record, event_in(record)) is COUNTS, "who shows it takes its word"


def test_where_a_root_is_named_a_birth_without_one_is_none(ours: Installation) -> None:
    record = placed(drafted(created()), 0)
    assert Provenance({ours.id}).judge(record, event_in(record)) is VOID
    assert Provenance(()).judge(record, event_in(record)) is COUNTS


@pytest.mark.parametrize("party", [Party.LEDGER, Party.AUDITOR])
def test_only_the_planner_brings_jobs_into_being(ours: Installation, party: Party) -> None:
    held = load_service_key(ours.folder, party)
    body = drafted(created(installation=ours.id)).value
    body = body[:-1] + b',"certificate":' + canonical(held.certificate.to_json()) + b"}"
    place = place_of(ours.id, "job_created", "job-1", None)
    (value,) = Signer(held.private_key, held.certificate).sign([(place, body)], NOW)
    record = placed(drafted(created()).replaced(value=value), 0)
    assert Provenance({ours.id}).judge(record, event_in(record)) is VOID


def test_a_second_birth_decides_nothing_about_the_first(ours: Installation) -> None:
    """A planner that woke up late has written its own: what rests on that one is void."""
    job, late = SignedJob(ours), Provenance({ours.id})
    (group,) = ours.keys(Party.PLANNER).signed([(drafted(created(agent="x")), drafted(plan()))], late, FIRST)
    assert [job.judge(one) for one in group] == [COUNTS, VOID]
    assert job.write(Party.LEDGER, allowed()) == [COUNTS]


def test_a_repeat_of_a_birth_is_said_by_a_planner_that_has_forgotten_the_job(ours: Installation) -> None:
    job, event = SignedJob(ours), ev.BirthRepeated(job_id="job-1", birth=0)
    assert job.judge(drafted(event)) is VOID
    ((signed,),) = ours.keys(Party.PLANNER).signed([(drafted(event),)], Provenance({ours.id}))
    assert job.judge(signed) is COUNTS


def test_behind_a_seal_forged_records_stay_void(ours: Installation) -> None:
    job = SignedJob(ours)
    seal = example("job_sealed")
    assert job.judge(drafted(seal).replaced(value=by_hand(job, Party.AUDITOR, seal)), seal) is COUNTS
    assert job.judge(drafted(allowed())) is VOID
    for number in range(REMEMBERED + 1):
        other = ev.JobCreated(job_id=f"other-{number}", tenant="t", submitted_by="a", request_hash="h")
        job.provenance._jobs[other.job_id] = None  # pyright: ignore[reportPrivateUsage]
        job.provenance._remember_for_a_while(other.job_id)  # pyright: ignore[reportPrivateUsage]
    assert job.provenance.signers_of("job-1") is None, "and memory ends"


def test_jobs_without_a_root_keep_their_bytes(ours: Installation) -> None:
    groups: Sequence[Group] = [(drafted(allowed()),)]
    assert UNSIGNED.signed(groups, UNSIGNED.provenance()) == groups
    assert ours.keys(Party.LEDGER).signed(groups, Provenance(())) == groups
    reader = Provenance(())
    birth = placed(drafted(created()), 0)
    assert reader.judge(birth, event_in(birth)) is COUNTS
    assert reader.judge(placed(drafted(allowed()), 1), allowed()) is COUNTS


def test_a_service_signs_nothing_when_its_certificate_has_ended(ours: Installation) -> None:
    keys = ours.keys(Party.PLANNER, now=NOW + timedelta(days=2))
    with pytest.raises(CertificateEnded):
        keys.signed([(drafted(created()),)], Provenance({ours.id}), FIRST)


def test_reports_of_tries_are_not_this_tables_to_judge(ours: Installation) -> None:
    """They are known by their word; what nobody may say is void."""
    job = SignedJob(ours)
    said = {"invocation_id": "n", "output_hash": "h", "outcome": "success"}
    own = key_event(ev.ToolInvocationFinished, via="executor", **said)
    assert job.judge(drafted(own)) is COUNTS
    probed = key_event(ev.ToolInvocationFinished, via="probe", **said)
    assert job.judge(drafted(probed)) is VOID
    nobodys = key_event(ev.ToolInvocationFinished, via="probe", **(said | {"outcome": "retryable_failure"}))
    assert rule_of("tool_invocation_finished", via="probe", outcome="retryable_failure") is None
    assert job.judge(drafted(nobodys).replaced(value=by_hand(job, Party.LEDGER, nobodys)), nobodys) is VOID


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_is_found(ours: Installation, data: st.DataObject) -> None:
    """Of whatever record, wherever: but where JSON says the same, the signature holds for one text alone."""
    job = SignedJob(ours)
    job.write(Party.LEDGER, allowed())
    value = bytearray(job.records[-1].value)
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= data.draw(st.integers(1, 255))
    changed = job.records[-1].replaced(value=bytes(value))
    assert Provenance({ours.id}).judge(job.records[0], event_in(job.records[0])) is COUNTS
    assert job.provenance.judge(changed, allowed()) is VOID


def test_the_table_of_types_is_that_of_records() -> None:
    """A service signs a type if any of its kind needs its signature."""
    for party in SERVICES:
        for name in signed_types(party):
            cases: list[dict[str, Any]] = [
                {},
                {"wait_type": "upgrade"},
                {"via": "ledger", "outcome": "permanent_failure"},
            ]
            rules = [rule_of(name, **one) for one in cases]
            assert any(one and (one.writer, one.known_by) == (party, KnownBy.SIGNATURE) for one in rules), name


@pytest.mark.parametrize("message", [b"", b"x", bytes(range(256)) * 40])
def test_a_loaded_key_signs_as_openssl_does_and_shows_nothing(message: bytes) -> None:
    private_key = Ed25519PrivateKey.generate()
    loaded = LoadedKey(private_key)
    assert loaded.sign(message) == private_key.sign(message)
    assert loaded.public_key() == private_key.public_key()
    assert private_key.private_bytes_raw().hex() not in repr(loaded)
