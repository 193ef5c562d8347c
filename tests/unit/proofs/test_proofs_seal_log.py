"""What a verifier signs of the log of seals: never anything that contradicts what it signed before."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs.notes import open_checkpoint, open_consistency
from aetheris.proofs.trust import TrustedKey
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.testkit.memory import MemoryLog
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.seallog import PLACE, NotLogged, SealLog, SealLogForked

KEY = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
TRUSTED = (TrustedKey(KEY.public_key()),)
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
    return SealLog(log, SealKeys(KEY), origin, folder / "keys" / "checkpoint", 5.0)


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


async def test_what_was_signed_of_another_log_says_nothing_of_this_one(tmp_path: Path) -> None:
    await verifier(await log_of(b"a", b"b"), tmp_path).checkpoint()
    other = await verifier(await log_of(b"c"), tmp_path, "example.com/others").checkpoint()
    assert (other.origin, other.size) == ("example.com/others", 1)
