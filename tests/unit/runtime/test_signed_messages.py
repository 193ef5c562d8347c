"""Commands and lines of tables: those count that their writer has signed, for what they say and nothing else."""

import hashlib
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.signing import read_signed
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import SIGNED_MESSAGES, Party
from aetheris.protocol.fold.provenance import CERTIFICATE
from aetheris.protocol.messages.commands import (
    MESSAGES,
    POLICY_KEY,
    Cancel,
    FreezeAnswer,
    FreezeOrder,
    JobCommand,
    Message,
    Pause,
    PolicyActivation,
    PolicyAnswer,
    Resolve,
    Submit,
    ToolRelease,
    Verification,
)
from aetheris.protocol.messages.envelope import Envelope, decode_message, draft
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.keys.files import load_service_key, make_installation
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import CertificateEnded, Signer
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.record_keys import while_in_force
from aetheris.testkit.memory import MemoryLog

NOW = datetime(2026, 5, 1, tzinfo=UTC)
COMMANDS = str(Topic.JOBS_COMMANDS)
CANCEL = Cancel(job_id="job-1", by="ann", tenant="t")
RELEASE = ToolRelease(tenant="t", tool="pay", by="ann", reason="mended", at="2026-05-01T00:00:00Z", below=(1, 2))


class KeyClock(Clock):
    """A clock that stands, until somebody sleeps."""

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, delay_s: float) -> None:
        self._now += timedelta(seconds=delay_s)


class KeyFolder:
    """A root, its services' keys, and who writes with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = make_installation(folder, [Party.GATEWAY, Party.PLANNER, Party.LEDGER], NOW, NOW + timedelta(days=1))

    def keys(self, *parties: Party, clock: Clock | None = None) -> RecordKeys:
        held = {party: load_service_key(self.folder, party) for party in parties}
        signers = {party: Signer(key.private_key, key.certificate) for party, key in held.items()}
        return RecordKeys(frozenset({self.id}), RecordSigner(signers, clock or KeyClock()))

    @property
    def gateway(self) -> RecordKeys:
        return self.keys(Party.GATEWAY)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> KeyFolder:
    return KeyFolder(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> KeyFolder:
    return KeyFolder(tmp_path_factory.mktemp("others"))


def drafted(body: Message, topic: Topic = Topic.JOBS_COMMANDS) -> Draft:
    key = body.job_id if isinstance(body, JobCommand | Verification) else getattr(body, "key", "")
    return draft(topic, body, key=key, id="1", source="s", time="t")


def counts(one: Draft, *roots: str, name: str = "cancel", key: bytes | None = None) -> bool:
    return SignedMessages(roots).counts(one.topic, name, one.key if key is None else key, one.value)


def test_what_the_gateway_signed_counts_and_reads_as_before(ours: KeyFolder) -> None:
    one = ours.gateway.message(drafted(CANCEL))
    assert counts(one, ours.id)
    found = decode_message(Record(one.topic, 0, 0, 0, one.key, one.headers, one.value))
    assert isinstance(found, Envelope)
    assert found.body == CANCEL


def test_nobody_else_has_signed_it(ours: KeyFolder, others: KeyFolder) -> None:
    plain = drafted(CANCEL)
    assert not counts(plain, ours.id), "unsigned"
    assert not counts(others.gateway.message(plain), ours.id), "of another root's gateway"
    assert counts(others.gateway.message(plain), ours.id, others.id), "of a root that is told beside"
    for party in (Party.PLANNER, Party.LEDGER):
        assert ours.keys(party).message(plain) == plain, "it signs no commands by itself"
        signer = Signer(*_held(ours, party))
        assert not counts(_signed_by(signer, plain), ours.id), f"the {party} signs no person's word"
    assert counts(_signed_by(Signer(*_held(ours, Party.GATEWAY)), plain), ours.id), "that shows it was the party"


def test_it_counts_in_no_other_place(ours: KeyFolder) -> None:
    one = ours.gateway.message(drafted(CANCEL))
    assert not counts(one, ours.id, key=b"job-2"), "another job"
    assert not counts(one, ours.id, name="resume"), "another type"
    elsewhere = Draft(str(Topic.TOOLS_REGISTRY), one.key, one.value, one.headers)
    assert not counts(elsewhere, ours.id, name="tool_release"), "another topic"


def test_without_its_certificate_or_with_anothers_it_counts_nowhere(ours: KeyFolder, others: KeyFolder) -> None:
    one = ours.gateway.message(drafted(CANCEL))
    read = read_signed(one.value)
    assert read is not None
    payload, signature = read
    signed = one.value[len(payload) - 1 :]
    without = payload[: payload.rfind(CERTIFICATE)] + b"}"
    foreign = canonical(_held(others, Party.GATEWAY)[1].to_json())
    swapped = payload[: payload.rfind(CERTIFICATE)] + CERTIFICATE + foreign + b"}"
    for changed in (without, swapped, payload[:-1] + CERTIFICATE + b"[" * 1_000 + b"}"):
        assert not counts(Draft(one.topic, one.key, changed[:-1] + signed, one.headers), ours.id, others.id)
    assert signature.size == 1


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0), byte=st.integers(0, 255))
def test_no_byte_of_it_can_be_another(ours: KeyFolder, at: int, byte: int) -> None:
    one = ours.gateway.message(drafted(Resolve(**_SAID, execution_id="e", verdict="retry", evidence="looked")))
    at %= len(one.value)
    changed = one.value[:at] + bytes([byte]) + one.value[at + 1 :]
    same = changed == one.value
    assert counts(Draft(one.topic, one.key, changed, one.headers), ours.id, name="resolve") == same


@settings(max_examples=300, deadline=None)
@given(value=st.binary(max_size=3_000) | st.text(max_size=300).map(str.encode), key=st.none() | st.binary(max_size=9))
def test_nothing_that_lies_there_raises(ours: KeyFolder, value: bytes, key: bytes | None) -> None:
    for tail in (b"", b',"sig":{"key":"' + b"0" * 64 + b'","value":"' + b"A" * 86 + b'=="}}'):
        assert not SignedMessages([ours.id]).counts(COMMANDS, "submit", key, value + tail)


def test_where_no_root_is_known_all_count(ours: KeyFolder) -> None:
    assert counts(drafted(CANCEL))
    assert counts(ours.gateway.message(drafted(CANCEL)))
    assert UNSIGNED.message(drafted(CANCEL)) == drafted(CANCEL)
    assert UNSIGNED.messages.counts(COMMANDS, "cancel", b"job-1", drafted(CANCEL).value)


def test_every_command_there_is_is_asked_for() -> None:
    commands = {name for name, model in MESSAGES.items() if issubclass(model, JobCommand)}
    assert {name for topic, name in SIGNED_MESSAGES if topic == COMMANDS} == commands


def test_a_release_is_signed_as_well(ours: KeyFolder) -> None:
    one = ours.gateway.message(drafted(RELEASE, Topic.TOOLS_REGISTRY))
    assert counts(one, ours.id, name="tool_release")
    assert not counts(drafted(RELEASE, Topic.TOOLS_REGISTRY), ours.id, name="tool_release")


QUESTION = Verification(
    job_id="job-1",
    birth=0,
    node_id="a",
    idempotency_key="k",
    invocation_id="n",
    external_key="e",
    tool_name="pay",
    tool_version="1",
    ask="1",
)


def test_what_the_prober_is_asked_the_ledger_has_signed(ours: KeyFolder) -> None:
    plain = drafted(QUESTION, Topic.VERIFICATIONS)
    one = ours.keys(Party.LEDGER).message(plain)
    assert counts(one, ours.id, name="verification")
    assert not counts(plain, ours.id, name="verification")
    assert not counts(one.replaced(value=one.value.replace(b'"e"', b'"f"')), ours.id, name="verification")
    assert not counts(one, ours.id, key=b"job-2", name="verification")
    assert not counts(ours.gateway.message(plain), ours.id, name="verification")


SCOPE = FreezeScope(tenant="t", tool="pay")
ORDER = FreezeOrder(scope=SCOPE, number=1, frozen=True, by="ann", at="now")
ANSWER = FreezeAnswer(scope=SCOPE, number=1, frozen=True, partition=0)


async def test_of_freezes_the_gateways_orders_and_the_ledgers_answers_count(ours: KeyFolder) -> None:
    """The forged order has the number of the true one, which comes behind it and counts all the same."""
    log = MemoryLog(1)
    appender = log.appender()
    await appender.start()
    table = Table(log, Topic.FREEZES)
    freezes = OrderTable(table, FreezeOrders(), SignedMessages([ours.id]).counts)
    forged = drafted(ORDER.model_copy(update={"by": "eve"}), Topic.FREEZES)
    theirs = (_signed_by(Signer(*_held(ours, Party.LEDGER)), forged), drafted(ANSWER, Topic.FREEZES))
    true = [ours.gateway.message(drafted(ORDER, Topic.FREEZES)), ours.keys(Party.LEDGER).message(theirs[1])]
    gateways = RecordSigner({Party.LEDGER: Signer(*_held(ours, Party.GATEWAY))}, KeyClock()).message(theirs[1])
    await appender.append([(one,) for one in (forged, *theirs, true[0], theirs[1], gateways)])
    await table.load()
    assert (freezes.orders.last(SCOPE.key), dict(freezes.orders.answers(SCOPE.key))) == (ORDER, {})
    await appender.append([(true[1],)])
    again = Table(log, Topic.FREEZES)
    read = OrderTable(again, FreezeOrders(), SignedMessages([ours.id]).counts)
    await again.load()
    assert dict(read.orders.answers(SCOPE.key)) == {0: ANSWER}


ACTIVATION = PolicyActivation(number=1, policy="", policy_hash=hashlib.sha256(b"").hexdigest(), by="ann", at="now")
TAKEN = PolicyAnswer(number=1, partition=0)


async def test_of_policies_the_gateways_activations_and_the_ledgers_answers_count(ours: KeyFolder) -> None:
    log = MemoryLog(1)
    appender = log.appender()
    await appender.start()
    forged = drafted(ACTIVATION.model_copy(update={"by": "eve"}), Topic.POLICIES)
    answer = drafted(TAKEN, Topic.POLICIES)
    ledgers = _signed_by(Signer(*_held(ours, Party.LEDGER)), forged)
    gateways = RecordSigner({Party.LEDGER: Signer(*_held(ours, Party.GATEWAY))}, KeyClock()).message(answer)
    true = (ours.gateway.message(drafted(ACTIVATION, Topic.POLICIES)), ours.keys(Party.LEDGER).message(answer))
    await appender.append([(one,) for one in (forged, ledgers, true[0], answer, gateways)])
    read = await policies_of(log, ours.id)
    assert (read.orders.history, dict(read.orders.answers(POLICY_KEY))) == ([ACTIVATION], {})
    await appender.append([(true[1],)])
    read = await policies_of(log, ours.id)
    assert (read.orders.history, dict(read.orders.answers(POLICY_KEY))) == ([ACTIVATION], {0: TAKEN})


async def policies_of(log: MemoryLog, *roots: str) -> OrderTable[PolicyActivations]:
    table = Table(log, Topic.POLICIES)
    policies = OrderTable(table, PolicyActivations(), SignedMessages(roots).counts)
    await table.load()
    return policies


def test_a_certificate_that_has_ended_signs_nothing_and_ends_the_process(ours: KeyFolder) -> None:
    with pytest.raises(CertificateEnded):
        ours.keys(Party.GATEWAY, clock=KeyClock(NOW + timedelta(days=2))).message(drafted(CANCEL))


async def test_a_process_that_signs_ends_with_its_certificate(ours: KeyFolder) -> None:
    clock = KeyClock()
    with pytest.raises(CertificateEnded):
        await while_in_force(ours.keys(Party.GATEWAY, clock=clock), clock)
    assert timedelta(days=1) < clock.now() - NOW < timedelta(days=1, minutes=1)


def test_a_long_plan_is_not_parsed_to_find_the_certificate(ours: KeyFolder) -> None:
    """Its certificate stands last: a submission of a megabyte costs what hashing it does."""
    plan = {"nodes": [{"id": f"n{n}", "tool": "t", "args": {"x": "y" * 100}} for n in range(8_000)]}
    one = ours.gateway.message(drafted(Submit(**_SAID, request_hash="r", plan=plan)))
    assert len(one.value) > 1_000_000
    began = time.process_time()
    assert counts(one, ours.id, name="submit")
    assert time.process_time() - began < 0.05


def test_a_pauses_number_is_signed_with_it(ours: KeyFolder) -> None:
    one = ours.gateway.message(drafted(Pause(**_SAID, number=1)))
    again = Draft(one.topic, one.key, one.value.replace(b'"number":1', b'"number":2'), one.headers)
    assert (counts(one, ours.id, name="pause"), counts(again, ours.id, name="pause")) == (True, False)


_SAID: dict[str, Any] = {"job_id": "job-1", "by": "ann", "tenant": "t", "as_of": 3}


def _held(installation: KeyFolder, party: Party) -> tuple[Any, Any]:
    held = load_service_key(installation.folder, party)
    return held.private_key, held.certificate


def _signed_by(signer: Signer, one: Draft) -> Draft:
    """With the key of whom it is told that he is the gateway."""
    return RecordSigner({Party.GATEWAY: signer}, KeyClock()).message(one)


def test_messages_that_are_said_together_have_one_signature_and_each_counts_for_itself(ours: KeyFolder) -> None:
    said = [drafted(Cancel(job_id=f"job-{number}", by="ann", tenant="t")) for number in range(5)]
    plain = drafted(RELEASE, Topic.LEDGER_RECORDS)
    *made, left = ours.gateway.together([*said, plain])
    assert left == plain, "of a table that nobody signs"
    assert [one.key for one in made] == [one.key for one in said]
    found = [read_signed(one.value) for one in made]
    assert len({one[1].value for one in found if one is not None}) == 1
    assert [one[1].index for one in found if one is not None] == list(range(5))
    for at, one in enumerate(made):
        assert counts(one, ours.id)
        assert not counts(one, ours.id, key=said[at - 1].key), "about another job of the same batch"
        moved = one.replaced(value=one.value.replace(b'"index":%d' % at, b'"index":%d' % ((at + 1) % 5)))
        assert not counts(moved, ours.id), "at another's place"
