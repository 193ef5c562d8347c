"""What a verifier signs of the log of seals: never anything that contradicts what it signed before."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs import seals
from aetheris.proofs.claims import Claim, line_leaf, log_entry, read_claim
from aetheris.proofs.notes import open_checkpoint, open_consistency, open_inclusion
from aetheris.proofs.trust import LOG, SEAL, TrustedKey, keyring, moment
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.testkit.memory import MemoryLog
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.seallog import PLACE, NotLogged, SealLog, SealLogForked
from tests.testkit.evidence import OTHER_KEY, SALT, SEALED_AT

KEY = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
LOG_KEY = Ed25519PrivateKey.from_private_bytes(b"\x03" * 32)
TRUSTED = (TrustedKey(KEY.public_key(), use=SEAL), TrustedKey(LOG_KEY.public_key(), use=LOG))
ORIGIN = "example.com/seals"


async def log_of(*seals: bytes) -> MemoryLog:
    """A log of seals with these lines."""
    log = MemoryLog(topics={Topic.JOBS_SEALS: 1})
    appender = log.appender()
    await appender.start()
    await appender.append([(Draft(Topic.JOBS_SEALS, b"job", seal),) for seal in seals])
    return log


def verifier(log: MemoryLog, folder: Path, origin: str = ORIGIN) -> SealLog:
    """A verifier that has just started: what it signed before is on its disk."""
    return SealLog(log, SealKeys(KEY, LOG_KEY), origin, folder / "keys" / "checkpoint", 5.0)


async def test_what_only_grew_is_signed_again(tmp_path: Path) -> None:
    first = await verifier(await log_of(b"a", b"b"), tmp_path).checkpoint()
    grown = verifier(await log_of(b"a", b"b", b"c"), tmp_path)
    proof = await grown.consistency(first.size)
    assert open_consistency(proof, open_checkpoint(first.note, TRUSTED), TRUSTED).size == 3
    with pytest.raises(NotLogged):
        await grown.consistency(4)


@pytest.mark.parametrize(
    "now",
    [(b"a", b"B"), (b"a",), (), (b"b", b"a"), (b"a", b"B", b"c")],
    ids=["a seal replaced", "the last dropped", "all dropped", "another order", "replaced, and grown since"],
)
async def test_nothing_is_signed_that_contradicts_what_was_signed(now: tuple[bytes, ...], tmp_path: Path) -> None:
    signed = await verifier(await log_of(b"a", b"b"), tmp_path).checkpoint()
    forked = verifier(await log_of(*now), tmp_path)
    for _ in range(2):  # it isn't forgotten by asking
        with pytest.raises(SealLogForked):
            await forked.checkpoint()
    with pytest.raises(SealLogForked):
        await forked.inclusion(b"a")
    with pytest.raises(SealLogForked):
        await forked.consistency(0)
    assert (tmp_path / "keys" / "checkpoint").read_text() == signed.note


async def test_a_log_that_lost_its_beginning_is_not_signed(tmp_path: Path) -> None:
    log = await log_of(b"a", b"b", b"c")
    log.delete_below(PLACE, 1)
    with pytest.raises(Exception, match=r"jobs\.seals|offset"):
        await verifier(log, tmp_path).checkpoint()
    assert not (tmp_path / "keys" / "checkpoint").exists()


async def test_a_memory_that_can_t_be_read_is_not_written_over(tmp_path: Path) -> None:
    kept = tmp_path / "keys" / "checkpoint"
    kept.parent.mkdir()
    kept.write_bytes(b"\xff")
    with pytest.raises(SealLogForked):
        await verifier(await log_of(b"a"), tmp_path).checkpoint()
    assert kept.read_bytes() == b"\xff"


async def test_what_was_signed_holds_whatever_the_log_is_called(tmp_path: Path) -> None:
    first = await verifier(await log_of(b"a", b"b"), tmp_path).checkpoint()
    for lines in ((b"c",), (b"a", b"B", b"c")):
        with pytest.raises(SealLogForked):
            await verifier(await log_of(*lines), tmp_path, "example.com/others").checkpoint()
    grown = await verifier(await log_of(b"a", b"b", b"c"), tmp_path, "example.com/others").checkpoint()
    assert (first.size, grown.origin, grown.size) == (2, "example.com/others", 3)


def test_every_line_is_a_leaf_of_its_hash() -> None:
    for one in (b"", b"\xff", b'{"job_id":"a"}'):
        assert line_leaf(one) == hashlib.sha256(b"\0" + hashlib.sha256(one).digest()).digest()


def line(count: int = 3, key: Ed25519PrivateKey = KEY, **changed: object) -> bytes:
    """A signed line of a job; these fields are changed after it was signed."""
    said = {"tenant": "t", "execution_hash": "e", "outcome_hash": "o", "sealed_at": SEALED_AT, "salt": SALT}
    signed = seals.sign(seals.seal_payload(job_id="job", event_count=count, root="r", tree="t", **said), key)
    return json.dumps({**signed, **changed}).encode()


NOTHING = {
    "a byte that is nothing": b"\xff",
    "an empty line": b"",
    "no object": b"[1]",
    "nested without end": b"[" * 100_000,
    "a number without end": b'{"job_id":"job","event_count":' + b"9" * 10_000 + b"}",
    "a lone surrogate": b'{"job_id":"job","root":"\\ud800","event_count":3,"key_id":"k","sealed_at":""}',
    "no signature": json.dumps({"job_id": "job", "event_count": 9, "root": "x"}).encode(),
    "another's signature": line(9, OTHER_KEY),
    "another count than was signed": line(event_count=9),
    "another root than was signed": line(root="x"),
    "a signature that is no text": line(9, signature=1),
    "true for a count": line(event_count=True),
    "a field twice": line().replace(b'"root": "r"', b'"root": "x", "root": "r"'),
}


@pytest.mark.parametrize("name", NOTHING)
async def test_a_line_that_no_trusted_key_signed_says_nothing_and_breaks_nothing(name: str, tmp_path: Path) -> None:
    seal_log = verifier(await log_of(NOTHING[name], line(), NOTHING[name]), tmp_path)
    assert await seal_log.claims("job") == (Claim(1, "job", 3, "r"),)
    assert (await seal_log.checkpoint()).size == 3
    index, _ = open_inclusion(await seal_log.inclusion(line()), log_entry(line()), TRUSTED)
    assert index == 1
    assert await seal_log.has(NOTHING[name])


def test_a_key_s_lines_count_in_its_time() -> None:
    retired = replace(TRUSTED[0], valid_until=moment("2025-01-01T00:00:00+00:00"))
    assert read_claim(0, line(), keyring([retired], SEAL)) is None
    assert read_claim(0, line(), keyring(TRUSTED, SEAL)) == Claim(0, "job", 3, "r")


async def test_lines_that_come_later_count_too(tmp_path: Path) -> None:
    log = await log_of(line(3), *(b"{}" for _ in range(20)))
    seal_log = verifier(log, tmp_path)
    assert [claim.leaf for claim in await seal_log.claims("job")] == [0]
    appender = log.appender()
    await appender.start()
    await appender.append([(Draft(Topic.JOBS_SEALS, b"job", one),) for one in (b"\xff", line(4))])
    for _ in range(2):
        assert [(claim.leaf, claim.event_count) for claim in await seal_log.claims("job")] == [(0, 3), (22, 4)]
    assert await seal_log.claims("another") == ()
