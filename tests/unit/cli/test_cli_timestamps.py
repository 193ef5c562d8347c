"""Time stamps (RFC 3161) of checkpoints: OpenSSL gives them, the relay keeps them, `verify` takes their time."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.seal_relay import SealRelay, WitnessAnswer
from aetheris.cli.timestamp_authority import AuthorityRoots, TimestampAuthority
from aetheris.proofs import RawRecord, bundle
from aetheris.proofs.claims import line_leaf
from aetheris.proofs.evidence import Evidence, LogCheck, judge
from aetheris.proofs.merkle import Tree
from aetheris.proofs.notes import BadNote, InclusionProof, open_checkpoint, sign_checkpoint, signatures_of, verifier_key
from aetheris.proofs.timestamps import stamp_line, stamped_at, stamps_of
from aetheris.proofs.trust import TrustedKey
from aetheris.proofs.witnesses import read_log_policy
from aetheris.verifier.witnessed import file_name
from tests.testkit.evidence import KEY, ORIGIN, OTHER_KEY, sealed, signer
from tests.testkit.proof_histories import clean
from tests.testkit.timestamps import Answer, OpensslAuthority, served_authority

POLICY = read_log_policy(f"log {verifier_key(ORIGIN, OTHER_KEY.public_key())}\nquorum none\n".encode())
NOW = datetime.now(UTC)
LOG_KEY = TrustedKey(OTHER_KEY.public_key())


class OneSealLog:
    """A log that has the seal of one job."""

    def __init__(self, sealed_at: datetime = NOW) -> None:
        self.records: list[RawRecord] = sealed(clean(), KEY, sealed_at.isoformat()).records
        self.tree = Tree()
        self.tree.append(line_leaf(self.records[-1].value))

    def checkpoint(self) -> str:
        return sign_checkpoint(ORIGIN, 1, self.tree.root(), OTHER_KEY)

    def consistency(self, old: int) -> str:
        raise AssertionError(old)

    def bundled(self, note: str, key: TrustedKey) -> bytes:
        keys = (key, LOG_KEY)
        evidence = Evidence("job-1", self.records, {}, InclusionProof(0, (), note).dumps(), keys)
        judged = judge(self.records, [TrustedKey(KEY.public_key())], evidence.blobs.__getitem__)
        return bundle.build(evidence, [judged], signer(KEY))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> OpensslAuthority:
    return OpensslAuthority(tmp_path_factory.mktemp("tsa") / "own")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> OpensslAuthority:
    return OpensslAuthority(tmp_path_factory.mktemp("tsa") / "other")


def carried(answer: Answer, roots: AuthorityRoots, folder: Path, within_s: float = 10.0) -> tuple[str, dict[str, str]]:
    """The note that the relay keeps, and why it lacks a time stamp."""
    with served_authority(answer) as url:
        relay = SealRelay(POLICY, folder, _nobody, [TimestampAuthority(url, roots, within_s)])
        found, missing = relay.carry(OneSealLog())
    assert found is not None
    assert (folder / file_name(1)).read_text() == found.checkpoint.note
    return found.checkpoint.note, dict(missing)


def _nobody(url: str, _body: bytes) -> WitnessAnswer:
    raise AssertionError(url)


def rules(data: bytes, key: TrustedKey, roots: AuthorityRoots | None) -> set[str]:
    report = bundle.judge(data, [key, LOG_KEY], now=NOW, authorities=roots)
    return {broken["rule"] for broken in report["violations"]}


def test_openssl_stamps_a_checkpoint_once(authority: OpensslAuthority, tmp_path: Path) -> None:
    roots, asked = AuthorityRoots.read(authority.roots), list[bytes]()

    def answer(query: bytes) -> bytes:
        asked.append(query)
        return authority.answer(query)

    with served_authority(answer) as url:
        relay = SealRelay(POLICY, tmp_path, _nobody, [TimestampAuthority(url, roots)])
        first, missing = relay.carry(OneSealLog())
        again, _ = relay.carry(OneSealLog())
    assert first is not None
    assert (missing, again, len(asked)) == ({}, first, 1)
    note = first.checkpoint.note
    assert [name for name, _ in stamps_of(note)] == [url.removeprefix("http://")]
    assert abs(stamped_at(note, roots) - datetime.now(UTC)) < timedelta(hours=1)
    assert open_checkpoint(note, [LOG_KEY]).size == 1, "who knows nothing of it passes it over"


LIES: dict[str, Callable[[OpensslAuthority, OpensslAuthority, bytes], bytes | None]] = {
    "nothing": lambda _own, _other, _query: b"",
    "what is no answer": lambda _own, _other, _query: b"<html>",
    "too much": lambda own, _other, query: own.answer(query) + bytes(20_000),
    "without end": lambda _own, _other, _query: bytes(100_000),
    "another's": lambda _own, other, query: other.answer(query),
    "a changed one": lambda own, _other, query: own.answer(query)[:-9] + bytes(9),
    "one over another text": lambda own, _other, query: own.answer(_over_another(query)),
    "one to another request": lambda own, _other, query: own.answer(_with_another_nonce(query)),
    "a refusal": lambda own, _other, _query: own.answer(b"\x30\x00"),
}


def _over_another(query: bytes) -> bytes:
    """The SHA-256 is the first text of 32 bytes."""
    at = query.index(b"\x04\x20") + 2
    return query[:at] + bytes(32) + query[at + 32 :]


def _with_another_nonce(query: bytes) -> bytes:
    return query[:-4] + bytes([query[-4] ^ 1]) + query[-3:]


@pytest.mark.parametrize("name", LIES)
def test_an_authority_that_lies_costs_its_own_word_alone(
    name: str, authority: OpensslAuthority, stranger: OpensslAuthority, tmp_path: Path
) -> None:
    roots = AuthorityRoots.read(authority.roots)
    note, missing = carried(lambda query: LIES[name](authority, stranger, query), roots, tmp_path)
    assert (len(missing), list(stamps_of(note))) == (1, [])
    note, missing = carried(authority.answer, roots, tmp_path)
    assert (missing, len(list(stamps_of(note)))) == ({}, 1), "it is asked again"


def test_an_authority_that_says_nothing_holds_up_nothing(authority: OpensslAuthority, tmp_path: Path) -> None:
    roots = AuthorityRoots.read(authority.roots)
    note, missing = carried(lambda _query: None, roots, tmp_path, within_s=0.2)
    assert ("no answer" in str(missing), list(stamps_of(note))) == (True, [])
    relay = SealRelay(POLICY, tmp_path, _nobody, [TimestampAuthority("http://127.0.0.1:1/", roots)])
    assert relay.carry(OneSealLog())[1].keys() == {"127.0.0.1:1"}


def test_the_time_of_a_stamp_is_when_the_key_must_count(
    authority: OpensslAuthority, stranger: OpensslAuthority, tmp_path: Path
) -> None:
    roots, others = AuthorityRoots.read(authority.roots), AuthorityRoots.read(stranger.roots)
    log = OneSealLog(NOW - timedelta(days=30))
    with served_authority(authority.answer) as url:
        relay = SealRelay(POLICY, tmp_path, _nobody, [TimestampAuthority(url, roots)])
        found, _ = relay.carry(log)
    assert found is not None
    key = TrustedKey(KEY.public_key())
    whole, bare = log.bundled(found.checkpoint.note, key), log.bundled(log.checkpoint(), key)
    assert (rules(whole, key, roots), rules(bare, key, None)) == (set(), set())
    assert (rules(bare, key, roots), rules(whole, key, others)) == ({"no_timestamp"}, {"no_timestamp"})
    # Sealed "a month ago" by a key that was revoked yesterday; seen first today, when it counted no more.
    revoked = TrustedKey(KEY.public_key(), revoked_at=NOW - timedelta(days=1))
    assert {"seal_revoked_key"} == seal_rules(log, found.checkpoint.note, revoked, roots)
    assert seal_rules(log, found.checkpoint.note, revoked, None) == set()


def seal_rules(log: OneSealLog, note: str, key: TrustedKey, roots: AuthorityRoots | None) -> set[str]:
    """What is wrong with the seal alone, and not with who signed the envelope."""
    evidence = Evidence("job-1", log.records, {}, InclusionProof(0, (), note).dumps(), ())
    judged = judge(log.records, [key], evidence.blobs.__getitem__)
    return {rule for rule, _ in LogCheck((key, LOG_KEY), NOW, None, roots).missing(evidence, judged)}


def test_a_seal_later_than_its_stamp_is_refused(authority: OpensslAuthority, tmp_path: Path) -> None:
    roots, log, key = (
        AuthorityRoots.read(authority.roots),
        OneSealLog(NOW + timedelta(days=1)),
        TrustedKey(KEY.public_key()),
    )
    with served_authority(authority.answer) as url:
        found, _ = SealRelay(POLICY, tmp_path, _nobody, [TimestampAuthority(url, roots)]).carry(log)
    assert found is not None
    assert rules(log.bundled(found.checkpoint.note, key), key, roots) == {"sealed_after_witnessed"}


def test_the_earliest_that_holds_counts(authority: OpensslAuthority) -> None:
    roots, note = AuthorityRoots.read(authority.roots), OneSealLog().checkpoint()
    _, text, _ = signatures_of(note)
    with served_authority(authority.answer) as url:
        good = TimestampAuthority(url, roots).stamp(text)
    assert stamped_at(note + stamp_line("a", b"junk") + stamp_line("b", good), roots)
    with pytest.raises(BadNote, match="no time stamp"):
        stamped_at(note, roots)
    with pytest.raises(BadNote, match="no time stamp"):
        stamped_at(note + stamp_line("a", good + bytes(20_000)), roots)


def test_the_command_asks_for_a_stamp(authority: OpensslAuthority, tmp_path: Path) -> None:
    roots, log, key = AuthorityRoots.read(authority.roots), OneSealLog(), TrustedKey(KEY.public_key())
    note, _ = carried(authority.answer, roots, tmp_path / "seen")
    keys, file = tmp_path / "keys.json", tmp_path / "job.zip"
    keys.write_text(json.dumps({"keys": [one.to_json() for one in (key, LOG_KEY)]}))
    argv = ["verify", str(file), "--public-key", str(keys), "--tsa-roots", str(authority.roots), "--json"]
    file.write_bytes(log.bundled(note, key))
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 0, done.output
    file.write_bytes(log.bundled(log.checkpoint(), key))
    refused = CliRunner().invoke(app, argv)
    assert (refused.exit_code, "no_timestamp" in refused.output) == (1, True)
    assert CliRunner().invoke(app, [*argv[:-2], str(keys)]).exit_code == 2
    assert CliRunner().invoke(app, ["verify", "some-job", "--tsa-roots", str(authority.roots)]).exit_code == 2
