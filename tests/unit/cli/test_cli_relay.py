"""`aetheris seals relay`: what enough witnesses have seen gets into the folder; whatever a witness says."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.cli.seal_relay import SealRelay, WitnessAnswer
from aetheris.cli.witness_server import WitnessServer
from aetheris.cli.witness_state import WitnessState, make_state
from aetheris.proofs.merkle import Tree, leaf_hash
from aetheris.proofs.notes import COSIGNATURE, BadNote, ConsistencyProof, sign_checkpoint, verifier_key
from aetheris.proofs.witnesses import LogPolicy, open_witnessed, read_log_policy, read_vkey
from aetheris.verifier.witnessed import file_name
from tests.testkit.evidence import KEY, ORIGIN, OTHER_KEY

LOG = verifier_key(ORIGIN, KEY.public_key())
OWN = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (11, 12)]
VKEYS = [verifier_key(f"w{at}.example/w", OWN[at].public_key(), COSIGNATURE) for at in range(2)]
AT = 1_800_000_000


def policy(quorum: str = "both") -> LogPolicy:
    witnesses = "".join(f"witness W{at} {VKEYS[at]} http://w{at}/\n" for at in range(2))
    return read_log_policy(
        f"log {LOG}\n{witnesses}group both all W0 W1\ngroup one any both\nquorum {quorum}\n".encode()
    )


class GrownLog:
    """What a gateway answers of a log of so many seals."""

    def __init__(self, size: int, replaced: int | None = None, key: Ed25519PrivateKey = KEY) -> None:
        self.tree, self.key = Tree(), key
        for at in range(size):
            self.tree.append(leaf_hash(b"other" if at == replaced else b"seal %d" % at))

    def checkpoint(self) -> str:
        return sign_checkpoint(ORIGIN, len(self.tree), self.tree.root(), self.key)

    def consistency(self, old: int) -> str:
        assert old <= len(self.tree), "the gateway would say 404"
        return ConsistencyProof(old, tuple(self.tree.consistency(old, len(self.tree))), self.checkpoint()).dumps()


class ServedWitnesses:
    """Two witnesses of ours; `lies` stands in for one of them."""

    def __init__(self, folder: Path) -> None:
        self.lies: dict[str, Callable[[bytes], WitnessAnswer]] = {}
        self.asked = 0
        self._apps: dict[str, WitnessServer] = {}
        for at in range(2):
            make_state(folder / f"w{at}", VKEYS[at])
            state = WitnessState.load(folder / f"w{at}", {ORIGIN})
            self._apps[f"http://w{at}/add-checkpoint"] = WitnessServer(state, OWN[at], [read_vkey(LOG)], lambda: AT)

    def post(self, url: str, body: bytes) -> WitnessAnswer:
        self.asked += 1
        if url in self.lies:
            return self.lies[url](body)

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._apps[url].app())
            async with httpx.AsyncClient(transport=transport) as client:
                return await client.post(url, content=body)

        answer = asyncio.run(ask())
        return WitnessAnswer(answer.status_code, answer.text)


@pytest.fixture
def witnesses(tmp_path: Path) -> ServedWitnesses:
    return ServedWitnesses(tmp_path)


def test_what_both_have_seen_is_kept(witnesses: ServedWitnesses, tmp_path: Path) -> None:
    relay = SealRelay(policy(), tmp_path / "seen", witnesses.post)
    for size in (3, 7, 20):
        found, missing = relay.carry(GrownLog(size))
        assert found is not None
        assert (found.checkpoint.size, set(found.by), missing) == (size, {"W0", "W1"}, {})
        note = (tmp_path / "seen" / file_name(size)).read_text()
        assert open_witnessed(note, policy()).checkpoint.root == GrownLog(size).tree.root()
    assert witnesses.asked == 6
    assert relay.carry(GrownLog(20))[0] is not None
    assert witnesses.asked == 6, "what has been seen is not asked again"


def test_a_relay_that_starts_again_asks_what_was_seen(witnesses: ServedWitnesses, tmp_path: Path) -> None:
    SealRelay(policy(), tmp_path / "seen", witnesses.post).carry(GrownLog(7))
    found, _ = SealRelay(policy(), tmp_path / "seen", witnesses.post).carry(GrownLog(9))
    assert found is not None
    assert len(found.by) == 2


def test_a_fork_is_seen_by_nobody(witnesses: ServedWitnesses, tmp_path: Path) -> None:
    relay = SealRelay(policy(), tmp_path / "seen", witnesses.post)
    relay.carry(GrownLog(7))
    found, missing = relay.carry(GrownLog(9, replaced=2))
    assert (found, missing) == (None, {"W0": "it answers 422", "W1": "it answers 422"})
    found, missing = relay.carry(GrownLog(5))
    assert found is None
    assert all("has seen 7 leaves, and the log has 5" in why for why in missing.values())
    assert [one.name for one in (tmp_path / "seen").iterdir()] == [file_name(7)]


LIES: dict[str, Callable[[bytes], WitnessAnswer]] = {
    "a size beyond all": lambda _body: WitnessAnswer(409, "9000000000000000000\n"),
    "a size for ever": lambda _body: WitnessAnswer(409, "2\n"),
    "a size that is none": lambda _body: WitnessAnswer(409, "-1\n"),
    "nothing": lambda _body: WitnessAnswer(200, ""),
    "what is no line": lambda _body: WitnessAnswer(200, "— W1 \n" * 5000),
    "another's line": lambda _body: WitnessAnswer(200, "— w1.example/w " + "A" * 100 + "\n"),
    "a failure": lambda _body: WitnessAnswer(500, "<html>"),
    "no answer": lambda _body: WitnessAnswer(0, "no answer: ConnectTimeout"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_witness_that_lies_costs_its_own_word_alone(name: str, witnesses: ServedWitnesses, tmp_path: Path) -> None:
    witnesses.lies["http://w1/add-checkpoint"] = LIES[name]
    strict = SealRelay(policy(), tmp_path / "strict", witnesses.post)
    relay = SealRelay(policy("W0"), tmp_path / "seen", witnesses.post)
    for size in (3, 9):
        assert strict.carry(GrownLog(size))[0] is None
        found, missing = relay.carry(GrownLog(size))
        assert found is not None
        assert (found.by, set(missing)) == (("W0",), {"W1"})
        assert "w1.example" not in found.checkpoint.note
    assert not (tmp_path / "strict").exists()


def test_a_checkpoint_by_another_key_is_carried_nowhere(witnesses: ServedWitnesses, tmp_path: Path) -> None:
    with pytest.raises(BadNote) as refused:
        SealRelay(policy(), tmp_path / "seen", witnesses.post).carry(GrownLog(3, key=OTHER_KEY))
    assert (refused.value.rule, witnesses.asked) == ("checkpoint_unknown_log", 0)
