"""Which checkpoint a verifier's proofs come with: the smallest that enough witnesses have seen, else the newest."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs.claims import line_leaf, log_entry
from aetheris.proofs.merkle import Tree
from aetheris.proofs.notes import COSIGNATURE, BadNote, parse_inclusion, read_checkpoint, sign_checkpoint, verifier_key
from aetheris.proofs.trust import LOG, TrustedKey
from aetheris.proofs.witnesses import cosign, open_witnessed_inclusion, read_log_policy
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.testkit.memory import MemoryLog
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.seallog import SealLog
from aetheris.verifier.witnessed import SealPolicyUnusable, WitnessedCheckpoints, file_name
from tests.testkit.evidence import KEY, ORIGIN, OTHER_KEY

LOG_KEY = Ed25519PrivateKey.from_private_bytes(b"\x03" * 32)
OWN = Ed25519PrivateKey.from_private_bytes(b"\x0b" * 32)
NAME = "witness.example/w"
LINES = [b"seal %d" % at for at in range(20)]
POLICY = (
    f"log {verifier_key(ORIGIN, LOG_KEY.public_key())}\nlog {verifier_key(ORIGIN, OTHER_KEY.public_key())}\n"
    f"witness w {verifier_key(NAME, OWN.public_key(), COSIGNATURE)}\nquorum w\n"
)
AT = 1_800_000_000


def seen(size: int, *, key: Ed25519PrivateKey = LOG_KEY, by: Ed25519PrivateKey = OWN, forked: bool = False) -> str:
    """A cosigned checkpoint of the first lines."""
    tree = Tree()
    for at, line in enumerate(LINES[:size]):
        tree.append(line_leaf(b"other" if forked and at == 1 else line))
    note = sign_checkpoint(ORIGIN, size, tree.root(), key)
    return note + cosign(note, NAME, by, AT)


async def seal_log(folder: Path) -> SealLog:
    log = MemoryLog(topics={Topic.JOBS_SEALS: 1})
    appender = log.appender()
    await appender.start()
    await appender.append([(Draft(Topic.JOBS_SEALS, b"job", line),) for line in LINES])
    (folder / "policy").write_text(POLICY)
    key = TrustedKey(LOG_KEY.public_key(), use=LOG)
    witnessed = WitnessedCheckpoints.load(folder / "policy", folder / "seen", ORIGIN, key)
    return SealLog(log, SealKeys(KEY, LOG_KEY), ORIGIN, folder / "checkpoint", 60, witnessed=witnessed)


def put(folder: Path, size: int, note: str) -> None:
    (folder / "seen").mkdir(exist_ok=True)
    (folder / "seen" / file_name(size)).write_text(note)


async def test_a_proof_comes_with_the_smallest_that_has_its_quorum(tmp_path: Path) -> None:
    log = await seal_log(tmp_path)
    policy = read_log_policy(POLICY.encode())
    with pytest.raises(BadNote, match="not enough"):
        open_witnessed_inclusion(await log.inclusion(LINES[3]), log_entry(LINES[3]), policy)
    for size in (3, 7, 12):
        put(tmp_path, size, seen(size))
    for index, size in ((0, 3), (2, 3), (3, 7), (11, 12)):
        proof = await log.inclusion(LINES[index])
        assert open_witnessed_inclusion(proof, log_entry(LINES[index]), policy).checkpoint.size == size
    assert read_checkpoint(parse_inclusion(await log.inclusion(LINES[12])).checkpoint).size == 20


USELESS = {
    "no text": "\x00",
    "not seen by the quorum": seen(7, by=OTHER_KEY).split("— witness")[0],
    "a cosignature that doesn't hold": seen(7)[:-20] + seen(9)[-20:],
    "another tree": seen(7, forked=True),
    "another log's key": seen(7, key=KEY),
    "a key that signs no longer": seen(7, key=OTHER_KEY),
    "a smaller one than its name says": seen(2),
    "a larger one than the log": seen(20).replace("\n20\n", "\n21\n"),
}


@pytest.mark.parametrize("name", USELESS)
async def test_what_proves_nothing_is_passed_over(name: str, tmp_path: Path) -> None:
    log = await seal_log(tmp_path)
    put(tmp_path, 7, USELESS[name])
    (tmp_path / "seen" / ("9" * 21)).write_text(seen(9))
    (tmp_path / "seen" / "lost").mkdir()
    (tmp_path / "seen" / file_name(8)).mkdir()
    assert read_checkpoint(parse_inclusion(await log.inclusion(LINES[3])).checkpoint).size == 20
    put(tmp_path, 10, seen(10))
    assert read_checkpoint(parse_inclusion(await log.inclusion(LINES[3])).checkpoint).size == 10


def test_a_policy_of_another_log_starts_nothing(tmp_path: Path) -> None:
    said, key = tmp_path / "policy", TrustedKey(LOG_KEY.public_key(), use=LOG)
    for text, origin in ((POLICY, "example.com/other"), ("quorum none", ORIGIN), ("log", ORIGIN)):
        said.write_text(text)
        with pytest.raises(SealPolicyUnusable):
            WitnessedCheckpoints.load(said, tmp_path, origin, key)
    said.write_text(POLICY)
    with pytest.raises(SealPolicyUnusable):
        WitnessedCheckpoints.load(said, tmp_path, ORIGIN, TrustedKey(KEY.public_key()))
