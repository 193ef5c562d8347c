"""Cosignatures and policies: who has seen a checkpoint, and whether they are enough."""

import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.proofs import bundle, bundle_zip, seals
from aetheris.proofs.evidence import judge
from aetheris.proofs.notes import COSIGNATURE, BadNote, note_key_id, parse_inclusion, verifier_key
from aetheris.proofs.trust import TrustedKey, moment, write_keys
from aetheris.proofs.witnesses import BadLogPolicy, LogPolicy, cosign, open_witnessed, read_log_policy, read_vkey
from tests.testkit.evidence import KEY, ORIGIN, OTHER_KEY, TRUSTED, evidence_of, inclusion, sealed, signer
from tests.testkit.proof_histories import clean

NAMES = ("w1.example/a", "w2.example/b", "w3.example/c")
WITNESSES = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (11, 12, 13)]
NOW = datetime(2026, 4, 1, tzinfo=UTC)
AT = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
LOG = verifier_key(ORIGIN, KEY.public_key())
LINES = [
    f"log {LOG}",
    *(f"witness W{at} {verifier_key(NAMES[at], WITNESSES[at].public_key(), COSIGNATURE)}" for at in range(3)),
    "group two 2 W0 W1 W2",
    "quorum two",
]


def policy(*lines: str) -> LogPolicy:
    return read_log_policy("\n".join(lines or LINES).encode())


def seen(note: str, *by: tuple[int, int]) -> str:
    """A checkpoint with the cosignatures of these witnesses, each at so many seconds after AT."""
    return note + "".join(cosign(note, NAMES[who], WITNESSES[who], AT + after_s) for who, after_s in by)


def note_of(line: bytes = b"seal", key: Ed25519PrivateKey = KEY) -> str:
    return parse_inclusion(inclusion(line, key)).checkpoint


def test_the_example_of_the_specification() -> None:
    """C2SP signed-note: a verifier key, by its name, its id and its key."""
    key = read_vkey("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
    assert (key.name, key.id.hex()) == ("example.com/foo", "530d903a")


def test_a_quorum_is_met_at_the_time_of_the_last_that_it_needs() -> None:
    found = open_witnessed(seen(note_of(), (0, 90), (2, 30), (1, 10)), policy())
    assert found.at == datetime.fromtimestamp(AT + 30, UTC)
    assert found.by == ("W1", "W2", "W0")
    assert open_witnessed(note_of(), policy(f"log {LOG}", "quorum none")).at is None


def changed(note: str, place: int) -> str:
    """One character of the last line's signature is another."""
    at = len(note) - place
    return note[:at] + ("A" if note[at] != "A" else "B") + note[at + 1 :]


WRONG: dict[str, tuple[Callable[[], str], str]] = {
    "no witness": (note_of, "no_quorum"),
    "one of two": (lambda: seen(note_of(), (0, 0)), "no_quorum"),
    "one twice": (lambda: seen(note_of(), (0, 0), (0, 5)), "no_quorum"),
    "a witness that the policy doesn't know": (
        lambda: seen(note_of(), (0, 0)) + cosign(note_of(), NAMES[1], OTHER_KEY, AT),
        "no_quorum",
    ),
    "a witness under another's name": (
        lambda: seen(note_of(), (0, 0)) + cosign(note_of(), NAMES[0], WITNESSES[1], AT),
        "no_quorum",
    ),
    "a cosignature of another tree": (
        lambda: seen(note_of(), (0, 0)) + cosign(note_of(b"other"), NAMES[1], WITNESSES[1], AT),
        "cosignature",
    ),
    "a changed cosignature": (lambda: changed(seen(note_of(), (0, 0), (1, 0)), 20), "cosignature"),
    "a log that the policy doesn't know": (
        lambda: seen(note_of(key=OTHER_KEY), (0, 0), (1, 0)),
        "checkpoint_unknown_log",
    ),
    "a log without its own signature": (
        lambda: seen(note_of(), (0, 0), (1, 0)).replace(f"— {ORIGIN}", "— example.com/x"),
        "checkpoint_unknown_log",
    ),
    "no note": (lambda: "x", "bad_checkpoint"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_quorum_has_seen_is_refused(name: str) -> None:
    note, rule = WRONG[name]
    with pytest.raises(BadNote) as refused:
        open_witnessed(note(), policy())
    assert refused.value.rule == rule


def test_another_log_s_key_under_this_origin_is_no_log_of_the_policy() -> None:
    """Each log of a policy signs under its own name only."""
    name = "example.com/other"
    under = policy(f"log {verifier_key(name, KEY.public_key())}", *LINES[1:])
    text = note_of().partition("\n\n")[0] + "\n"
    by_other = note_key_id(name, KEY.public_key()) + KEY.sign(text.encode())
    for note in (note_of(), f"{text}\n— {name} {base64.b64encode(by_other).decode()}\n"):
        with pytest.raises(BadNote, match="own origin"):
            open_witnessed(seen(note, (0, 0), (1, 0)), under)


BAD = {
    "no quorum": LINES[:-1],
    "two quorums": [*LINES, "quorum none"],
    "a quorum that is defined behind it": ["quorum W0", *LINES[:-1]],
    "a group of what is defined behind it": [LINES[0], "group g any W0", *LINES[1:4], "quorum none"],
    "one in two groups": [*LINES[:4], "group a any W0 W1", "group b any W0 W2", "quorum a"],
    "one twice in a group": [*LINES[:4], "group a 2 W0 W0", "quorum a"],
    "more than there are": [*LINES[:4], "group a 4 W0 W1 W2", "quorum a"],
    "none of them": [*LINES[:4], "group a 0 W0 W1", "quorum a"],
    "a number with a zero before it": [*LINES[:4], "group a 02 W0 W1", "quorum a"],
    "a group called none": [*LINES[:4], "group none any W0", "quorum none"],
    "a name twice": [*LINES[:2], LINES[1].replace("W0", "W1"), LINES[2], "quorum none"],
    "a key twice": [*LINES[:2], LINES[1].replace("W0", "W9"), "quorum none"],
    "a log's key for a witness": [f"witness W {LOG}", "quorum W"],
    "a witness's key for a log": [f"log {LINES[1].split()[2]}", "quorum none"],
    "a key whose id is another's": [f"log {ORIGIN}+00000000+{LOG.rpartition('+')[2]}", "quorum none"],
    "no key": ["log example.com+00000000+AA==", "quorum none"],
    "a word that is none": ["witnesses W0", "quorum none"],
    "a carriage return": [*LINES[:-1], "quorum two\r"],
}


@pytest.mark.parametrize("name", BAD)
def test_a_policy_that_says_no_clear_thing_is_refused(name: str) -> None:
    with pytest.raises(BadLogPolicy):
        policy(*BAD[name])


def test_a_policy_takes_blanks_comments_and_groups_of_groups() -> None:
    written = ["# who", "", "\t log\t" + LOG + "  https://log.example/", *LINES[1:4], "group a any W0 W1"]
    found = policy(*written, "group b all a W2", "quorum b")
    assert found.is_met(["W1", "W2"])
    assert not found.is_met(["W0", "W1"])
    with pytest.raises(BadLogPolicy):
        read_log_policy(b"#" * (1 << 21))


def bundled(note: Callable[[str], str], sealed_at: str = "2026-02-01T00:00:00+00:00") -> bytes:
    """A bundle whose checkpoint has more lines."""
    records = sealed(clean(), sealed_at=sealed_at).records
    proof = inclusion(records[-1].value)
    head, _, checkpoint = proof.partition("\n\n")
    evidence = replace(evidence_of(records), inclusion=f"{head}\n\n{note(checkpoint)}")
    return bundle.build(evidence, [judge(records, TRUSTED, evidence.blobs.__getitem__)], signer(KEY))


def rules(data: bytes, keys: TrustedKey = TRUSTED[0], under: LogPolicy | None = None) -> set[str]:
    report = bundle.judge(data, [keys], now=NOW, policy=under or policy())
    assert report["ok"] is (not report["violations"])
    return {broken["rule"] for broken in report["violations"]}


def test_a_bundle_without_its_quorum_is_refused_under_a_policy() -> None:
    whole = bundled(lambda note: seen(note, (0, 0), (1, 5)))
    assert rules(whole) == set()
    assert rules(bundled(lambda note: seen(note, (0, 0)))) == {"no_quorum"}
    assert rules(bundled(lambda note: note)) == {"no_quorum"}
    assert bundle.judge(bundled(lambda note: note), TRUSTED)["ok"]


def test_when_witnesses_saw_a_seal_and_not_what_it_says_is_when_its_key_must_count() -> None:
    """Whoever has a key that has ended can date a seal back, but no witness."""
    whole = bundled(lambda note: seen(note, (0, 0), (1, 5)))
    ended, later_key = moment("2026-02-15T00:00:00+00:00"), TrustedKey(OTHER_KEY.public_key())
    for key, wanted in (
        (TrustedKey(KEY.public_key(), valid_until=ended), "seal_key_time"),
        (TrustedKey(KEY.public_key(), revoked_at=ended), "seal_revoked_key"),
    ):
        report = bundle.judge(resealed(whole), [key, later_key], now=NOW, policy=policy())
        assert {broken["rule"] for broken in report["violations"]} == {wanted}
    later = bundled(lambda note: seen(note, (0, 0), (1, 5)), sealed_at="2026-03-02T00:00:00+00:00")
    assert rules(later) == {"sealed_after_witnessed"}


def resealed(data: bytes) -> bytes:
    """The same statement in an envelope by another key."""
    payload, _ = bundle._unsealed(bundle_zip.unpack(data))  # pyright: ignore[reportPrivateUsage]
    signature = dict(signer(OTHER_KEY)(seals.pae(bundle.PAYLOAD_TYPE, payload)))
    return bundle_zip.pack(bundle.envelope(payload, [signature]))


def test_the_command_asks_for_the_quorum(tmp_path: Path) -> None:
    file, keys, said = tmp_path / "job.zip", tmp_path / "keys.json", tmp_path / "policy"
    keys.write_text(write_keys(TRUSTED))
    said.write_text("\n".join(LINES))
    argv = ["verify", str(file), "--public-key", str(keys), "--json"]
    file.write_bytes(bundled(lambda note: seen(note, (0, 0))))
    assert CliRunner().invoke(app, argv).exit_code == 0
    refused = CliRunner().invoke(app, [*argv, "--policy", str(said)])
    assert (refused.exit_code, "no_quorum" in refused.stdout) == (1, True)
    file.write_bytes(bundled(lambda note: seen(note, (0, 0), (2, 0))))
    assert CliRunner().invoke(app, [*argv, "--policy", str(said)]).exit_code == 0
    assert CliRunner().invoke(app, ["verify", "some-job", "--policy", str(said)]).exit_code == 2
    said.write_text("quorum nobody")
    assert CliRunner().invoke(app, [*argv, "--policy", str(said)]).exit_code == 2
