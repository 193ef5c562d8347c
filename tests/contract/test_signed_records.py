"""Signed records and the words of tries, byte for byte; services and proofs read them alike, and share no code."""

import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs import signatures as proofs
from aetheris.proofs import words as proofs_words
from aetheris.proofs.writers import SIGNED_BY, SIGNING, is_nobodys, signer
from aetheris.protocol.base import signing, writers
from aetheris.protocol.base.ed25519 import verify
from aetheris.protocol.base.signing import SignedPlace
from aetheris.protocol.base.words import TryWord, TryWords, is_word_of
from aetheris.protocol.base.writers import KnownBy, Party
from aetheris.protocol.messages.commands import MESSAGES
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.protocol.messages.events import EVENTS
from aetheris.runtime.keys.files import certified, revoked
from aetheris.runtime.keys.signing import Signer, raw_public_key
from tests.testkit import standalone

ROOT = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32, 64)))
BEGIN, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)

INSTALLATION = "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"
KEY_ID = "24f6ed6acbfe1009c030d7ca567c33ca4830911498236b5561a6c82abec5de28"
CERTIFICATE = {
    "service": "planner",
    "public_key": "Kay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc=",
    "not_before": "2026-01-01T00:00:00+00:00",
    "not_after": "2027-01-01T00:00:00+00:00",
    "root": "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
    "signature": "/8aIgWSm9zq9ETd95hwg11e8ikRWvgtVcaQegjHe4ElQLEXQKotD+jFyQijsW0MO77NmP4B769C90SSFDg7/CQ==",
}
REVOCATION = {
    "key_id": KEY_ID,
    "at": "2026-05-01T00:00:00+00:00",
    "reason": "its disk was lost",
    "root": "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
    "signature": "OXKlMVzZvThXIrHkTcQo/shnO5SYNB5s2+JMS/9xXDCZWakUPVL0s2HzRGIkRBJNsHKfFhIXlVZlXH7w3clnBQ==",
}
PAYLOAD = b'{"job_id":"job-1","tenant":"t","submitted_by":"anna"}'
STATEMENT = (
    b'DSSEv1 31 application/vnd.aetheris.record 234 {"born":null,"installation":"%b","key":"job-1",'
    b'"sequence":null,"topic":"aetheris.jobs.events.v1","type":"job_created"}\n%b' % (INSTALLATION.encode(), PAYLOAD)
)
CREATED = (
    b'{"job_id":"job-1","tenant":"t","submitted_by":"anna","sig":{"key":"%b",'
    b'"value":"suxwF9cjVoaZiqsvYIAKh+nXGIE4TnjeIDztK4oAgMQKfIKUOWJY56gILXm5jP6lk+TMYJBWML7z1og/6qPjAA=="}}'
    % KEY_ID.encode()
)
BORN = "e8e4d0dc90a655643f8c2e93523240c2379de296970be8c1442b83fd1e1ba92b"
FIFTH_OF_FIVE = (
    b'{"job_id":"job-1","result":4,"sig":{"index":4,"key":"%b",'
    b'"path":"HrmUuj8mZBeLmey5eQnlODuSijCKQZ4y8g9pHmyAH5s=","size":5,'
    b'"value":"Pxz/Ak+Ot5HUr1TDgrmm7WtzD7GjW3ZW9v1KoEcea1fVWtHJgYCuzbk8vOEW4T1zKNMrZBnMR7Ww1ld94SgkCA=="}}'
    % KEY_ID.encode()
)
ROOT_OF_FIVE = "7e4b33dff3b65ab990713196b18504fc5a9d37b773b324c9c7abb20b311b29f7"

SECRET = bytes(range(32))
WORDS = {
    TryWord.NO_EFFECT: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    TryWord.EFFECT: "813457b5d99f6cd5077700c27be10af903b1e74fb2f15e24636350c9586b5fa9",
    TryWord.NO_MORE: "c8a3acb99b5d193030efec517e5b5c87669c6f673f395388d996c1051fa085a2",
    TryWord.IN_DOUBT: "a6baa926cfe7b381ba354b9b3929ba24d3d562c6ea213fa5b44c9a5013ed13a4",
}
INVOCATION_ID = "3d69cbeaa5af56e7455c5c04d7b59df503262f075969d6479832147cb59e80f6"

PLANNER = Signer(KEY, certified(ROOT, Party.PLANNER, raw_public_key(KEY), BEGIN, END))


def _place(event_type: str, created: str | None = None) -> SignedPlace:
    return SignedPlace(INSTALLATION, "aetheris.jobs.events.v1", event_type, "job-1", created)


def _of_proofs(place: SignedPlace) -> dict[str, Any]:
    return {name: getattr(place, name) for name in ("installation", "topic", "type", "key", "born", "sequence")}


def _holds(place: SignedPlace, value: bytes) -> bool:
    """As services and proofs find it, who agree."""
    read = signing.read_signed(value)
    by_services = read is not None and signing.is_signed(place, *read, raw_public_key(KEY), verify)
    try:
        by_proofs = proofs.holds(proofs.opened(value), _of_proofs(place), raw_public_key(KEY))
    except proofs.BadSignature:
        by_proofs = False
    assert by_services == by_proofs
    return by_services


def _five() -> list[bytes]:
    place = _place("job_completed", BORN)
    return PLANNER.sign([(place, b'{"job_id":"job-1","result":%d}' % number) for number in range(5)], BEGIN)


def test_a_certificate_to_the_byte() -> None:
    certificate = PLANNER.certificate
    assert certificate.to_json() == CERTIFICATE
    assert (certificate.key_id, certificate.installation) == (KEY_ID, INSTALLATION)
    read = signing.read_certificate(CERTIFICATE)
    assert read == certificate
    assert signing.is_certified(certificate, INSTALLATION, verify)
    assert proofs.certified(CERTIFICATE, INSTALLATION) == ("planner", raw_public_key(KEY))


@pytest.mark.parametrize("name", CERTIFICATE)
def test_a_changed_certificate_is_none(name: str) -> None:
    other = {**CERTIFICATE, name: CERTIFICATE[name][:-2] + ("0=" if CERTIFICATE[name].endswith("=") else "09")}
    read = signing.read_certificate(other)
    assert read is None or not signing.is_certified(read, INSTALLATION, verify)
    assert proofs.certified(other, INSTALLATION) is None


def test_another_root_certifies_nothing() -> None:
    other = certified(KEY, Party.PLANNER, raw_public_key(KEY), BEGIN, END)
    assert not signing.is_certified(other, INSTALLATION, verify)
    assert proofs.certified(other.to_json(), INSTALLATION) is None


def _revokes(said: dict[str, str], installation: str = INSTALLATION) -> bool:
    """As services, proofs and script find it, who agree."""
    read = signing.read_revocation(said)
    by_services = read is not None and signing.is_revocation(read, installation, verify)
    try:
        by_proofs = proofs.revoked(said, installation) == KEY_ID
    except ValueError:
        by_proofs = False
    assert by_services == by_proofs == standalone.verify.is_revocation(installation, said)
    return by_services


def test_a_revocation_to_the_byte() -> None:
    made = revoked(ROOT, KEY_ID, datetime(2026, 5, 1, tzinfo=UTC), "its disk was lost")
    assert made.to_json() == REVOCATION
    assert made.message() == (
        b'DSSEv1 40 application/vnd.aetheris.revocation+json 221 {"at":"2026-05-01T00:00:00+00:00","installation":"%b",'
        b'"key_id":"%b","reason":"its disk was lost"}' % (INSTALLATION.encode(), KEY_ID.encode())
    )
    assert _revokes(REVOCATION)
    assert not _revokes(REVOCATION, KEY_ID), "of another installation it says nothing"


@pytest.mark.parametrize("name", REVOCATION)
@pytest.mark.parametrize("other", ["", "9", "\ud800"])
def test_a_changed_revocation_revokes_nothing(name: str, other: str) -> None:
    assert not _revokes(REVOCATION | {name: REVOCATION[name][:-1] + other})
    assert not _revokes({one: said for one, said in REVOCATION.items() if one != name})


def test_another_root_and_the_key_itself_revoke_nothing() -> None:
    assert not _revokes(revoked(KEY, KEY_ID, BEGIN, "r").to_json())
    own = revoked(KEY, KEY_ID, BEGIN, "r")
    assert not _revokes(replace(own, root=raw_public_key(ROOT)).to_json()), "in the root's name"


def test_a_record_alone_to_the_byte() -> None:
    assert signing.statement(_place("job_created"), PAYLOAD) == STATEMENT
    assert proofs.signed_bytes(PAYLOAD, _of_proofs(_place("job_created"))) == STATEMENT
    assert PLANNER.sign([(_place("job_created"), PAYLOAD)], BEGIN) == [CREATED]
    assert signing.born_of(CREATED) == BORN
    assert _holds(_place("job_created"), CREATED)


def test_records_together_to_the_byte() -> None:
    values = _five()
    assert values[4] == FIFTH_OF_FIVE
    assert all(_holds(_place("job_completed", BORN), value) for value in values)
    read = signing.read_signed(FIFTH_OF_FIVE)
    assert read is not None
    root = signing.root_of(signing.statement(_place("job_completed", BORN), read[0]), read[1])
    assert root is not None
    assert root.hex() == ROOT_OF_FIVE


@pytest.mark.parametrize(
    "otherwise",
    [
        {"installation": KEY_ID},
        {"topic": "aetheris.jobs.commands.v1"},
        {"type": "job_failed"},
        {"key": "job-2"},
        {"born": None},
        {"born": "0" * 64},
        {"sequence": 1},
    ],
)
def test_what_is_signed_counts_in_its_place_only(otherwise: dict[str, Any]) -> None:
    assert not _holds(replace(_place("job_completed", BORN), **otherwise), FIFTH_OF_FIVE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"result":4', b'"result":3'),
        (b'"result":4', b'"result": 4'),
        (b'"result":4', b'"result":4.0'),
        (b'"result":4', b'"result":4,"result":4'),
        (b'"index":4', b'"index":3'),
        (b'"index":4', b'"index":-1'),
        (b'"index":4', b'"index":true'),
        (b'"size":5', b'"size":4'),
        (b'"size":5', b'"size":6'),
        (b'"size":5', b'"size":1'),
        (b'"path":"HrmU', b'"path":"ArmU'),
        (b'"path":"HrmUuj8mZBeLmey5eQnlODuSijCKQZ4y8g9pHmyAH5s=",', b""),
        (b'"path":"HrmUuj8mZBeLmey5eQnlODuSijCKQZ4y8g9pHmyAH5s="', b'"path":""'),
        (b'myAH5s="', b'myAH5t="'),
        (b'"value":"Px', b'"value":"Ax'),
        (b'"index":4', b'"index":04'),
        (b'myAH5s="', b'myAH5s=="'),
        (b'"sig":{', b'"sig":{"also":1,'),
        (b'"sig":', b'"sih":'),
        (b'"sig":', b'"sig": '),
        (b"}}", b"}} "),
        (b"}}", b',"also":1}}'),
        (b"}}", b'},"also":1}'),
        (KEY_ID[:8].encode(), INSTALLATION[:8].encode()),
        (b'"job-1"', b'"job-2"'),
        (b"{", b"[{"),
    ],
)
def test_a_changed_record_is_not_signed(old: bytes, new: bytes) -> None:
    assert old in FIFTH_OF_FIVE
    assert not _holds(_place("job_completed", BORN), FIFTH_OF_FIVE.replace(old, new, 1))


def test_another_key_signs_nothing() -> None:
    other = Signer(ROOT, PLANNER.certificate)
    (value,) = other.sign([(_place("job_completed", BORN), b'{"job_id":"job-1"}')], BEGIN)
    assert not _holds(_place("job_completed", BORN), value)


def test_words_to_the_byte() -> None:
    words = TryWords.of(SECRET)
    assert {reported: words.word(reported) for reported in TryWord} == WORDS
    assert words.invocation_id == INVOCATION_ID
    by_hand = SECRET
    for _ in range(4):
        by_hand = hashlib.sha256(b"nonce1\0" + by_hand).digest()
    assert by_hand.hex() == INVOCATION_ID


@pytest.mark.parametrize("reported", TryWord)
@pytest.mark.parametrize("known", TryWord)
def test_a_word_proves_its_own_and_gives_away_what_weighs_less(reported: TryWord, known: TryWord) -> None:
    assert is_word_of(INVOCATION_ID, reported, WORDS[known]) == (reported is known)
    derived = bytes.fromhex(WORDS[known])
    for _ in range(max(0, reported - known)):
        derived = hashlib.sha256(b"nonce1\0" + derived).digest()
    assert (derived.hex() == WORDS[reported]) == (known <= reported)


@pytest.mark.parametrize("no_word", [None, "", "0" * 64, INVOCATION_ID, WORDS[TryWord.EFFECT].upper(), "é" * 64])
def test_what_is_no_word_proves_nothing(no_word: str | None) -> None:
    assert not is_word_of(INVOCATION_ID, TryWord.EFFECT, no_word)
    assert not proofs_words.proves_end({"outcome": "success", "invocation_id": INVOCATION_ID, "word": no_word})


@pytest.mark.parametrize("known", TryWord)
def test_services_and_proofs_ask_for_the_same_word(known: TryWord) -> None:
    for outcome in Outcome:
        body = {"outcome": outcome.value, "invocation_id": INVOCATION_ID, "word": WORDS[known]}
        rule = writers.rule_of("tool_invocation_finished", via="executor", outcome=outcome)
        assert rule is not None
        assert rule.word is not None
        assert proofs_words.proves_end(body) == is_word_of(INVOCATION_ID, rule.word, WORDS[known])
    for returned in (True, False):
        body = {"returned": returned, "invocation_id": INVOCATION_ID, "word": WORDS[known]}
        rule = writers.rule_of("invocation_in_doubt", returned=returned, has_word=True)
        assert rule is not None
        assert rule.word is not None
        assert proofs_words.proves_doubt(body) == is_word_of(INVOCATION_ID, rule.word, WORDS[known])


def test_every_record_has_its_writer() -> None:
    told_apart = {"tool_invocation_finished", "invocation_in_doubt"}
    assert set(writers.EVENTS) == set(EVENTS) - told_apart
    assert {name for _, name in writers.MESSAGES} == set(MESSAGES)


_SAID: dict[str, list[dict[str, Any]]] = {
    "tool_invocation_finished": [{"via": via.value, "outcome": outcome.value} for via in Via for outcome in Outcome],
    "invocation_in_doubt": [{"returned": one, "has_word": two} for one in (True, False) for two in (True, False)],
    "job_waiting": [
        {"wait_type": name} for name in ("signal", "timer", "human", "approval", "resolve", "upgrade", "executor")
    ],
    "wait_completed": [
        {"wait_type": name} for name in ("signal", "timer", "human", "approval", "resolve", "upgrade", "executor")
    ],
}


@pytest.mark.parametrize("event_type", sorted(EVENTS))
def test_services_and_proofs_ask_for_the_same_signature(event_type: str) -> None:
    for fields in _SAID.get(event_type, [{}]):
        rule = writers.rule_of(event_type, **fields)
        body = {**fields, "word": "0" * 64 if fields.get("has_word") else None}
        if rule is not None:
            expected = rule.writer.value if rule.known_by is KnownBy.SIGNATURE else None
            assert signer(event_type, body) == expected, fields


def test_services_and_proofs_and_the_script_ask_the_same_writers() -> None:
    """Who is named in the table and signs nothing yet is asked for nothing, by none of the three."""
    assert {party.value for party in writers.SIGNING} == SIGNING == set(standalone.verify.SIGNED_BY)
    by_script = {name for names in standalone.verify.SIGNED_BY.values() for name in names.split()}
    assert by_script == {name for name, service in SIGNED_BY.items() if service in SIGNING}
    assert {standalone.verify.WRITERS[name] == SIGNED_BY[name] for name in by_script} == {True}


def test_ends_that_nobody_may_say_are_the_same_for_all() -> None:
    for via in (*(one.value for one in Via), "nobody", None):
        for outcome in (*(one.value for one in Outcome), "odd", None):
            rule = writers.rule_of("tool_invocation_finished", via=via, outcome=outcome)
            assert is_nobodys("tool_invocation_finished", {"via": via, "outcome": outcome}) == (rule is None)
            assert (outcome in standalone.verify.ENDS.get(via, ())) == (rule is not None)


def test_no_effect_is_only_a_tries_own_word() -> None:
    """Retryable, by nobody else: it opens the call under a new external key."""
    by = {via: writers.rule_of("tool_invocation_finished", via=via, outcome="retryable_failure") for via in Via}
    own = {via for via, found in by.items() if found is not None and found.known_by is KnownBy.WORD}
    assert own == {Via.EXECUTOR, Via.LATE}
    assert all(found is None for via, found in by.items() if via not in own)


def test_the_decision_names_every_record_with_its_writer() -> None:
    text = (Path(__file__).parents[2] / "docs/adr/0009-signed-records.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (signature|word|root|follows) \| (.*) \|$", text, re.MULTILINE)
    named = {(writer, proof, name) for writer, proof, records in rows for name in re.findall(r"`([a-z_]+)`", records)}
    missing = [
        name for name, found in writers.EVENTS.items() if (found.writer.value, found.known_by.value, name) not in named
    ]
    assert missing == []
