"""Before an export a policy's witnesses are asked, where they have not seen the job's seal; it goes on in any case."""

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.cli import fresh_cosignatures
from aetheris.cli.console import CommandError, Exit
from aetheris.cli.fresh_cosignatures import witnessed
from aetheris.cli.seal_relay import WitnessAnswer
from aetheris.proofs.merkle import Tree
from aetheris.proofs.notes import COSIGNATURE, ConsistencyProof, InclusionProof, sign_checkpoint, verifier_key
from aetheris.proofs.witnesses import LogPolicy, cosign, read_log_policy

ORIGIN, NAME = "example.com/seals", "w.example/1"
LOG, WITNESS = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
SEEN_AT = 1_800_000_000


def policy(url: str = "http://w.example/") -> LogPolicy:
    log, witness = verifier_key(ORIGIN, LOG.public_key()), verifier_key(NAME, WITNESS.public_key(), COSIGNATURE)
    return read_log_policy(f"log {log}\nwitness w {witness} {url}\nquorum w\n".encode())


class LogWithFolder:
    """Answers with the newest checkpoint that lies in the folder, else with the log's own."""

    def __init__(self, folder: Path, *, reads_folder: bool = True) -> None:
        self.folder, self.reads_folder = folder, reads_folder
        self.tree = Tree()
        self.tree.append(b"\0" * 32)

    def checkpoint(self) -> str:
        return sign_checkpoint(ORIGIN, 1, self.tree.root(), LOG)

    def consistency(self, old: int) -> str:
        return ConsistencyProof(old, (), self.checkpoint()).dumps()

    def inclusion(self, _job_id: str) -> str:
        kept = sorted(self.folder.glob("*")) if self.reads_folder else []
        return InclusionProof(0, (), kept[-1].read_text() if kept else self.checkpoint()).dumps()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[dict[str, Any], int]]:
    def run(gateway: Any = None, url: str = "http://w.example/", **answer: Any) -> tuple[dict[str, Any], int]:
        asked: list[str] = []
        known = gateway or LogWithFolder(tmp_path / "witnessed")

        def post(url: str, body: bytes, within_s: float) -> WitnessAnswer:
            assert within_s == fresh_cosignatures.WITHIN_S
            asked.append(url)
            note = body.decode().partition("\n\n")[2]
            good = WitnessAnswer(200, cosign(note, NAME, WITNESS, SEEN_AT))
            return answer.get("instead", good)

        @contextmanager
        def connected(_data: Path) -> Any:
            if answer.get("away"):
                raise CommandError(Exit.UNREACHABLE, "unreachable", "nobody answers")
            yield known

        monkeypatch.setattr(fresh_cosignatures, "post", post)
        monkeypatch.setattr(fresh_cosignatures, "connected", connected)
        return witnessed("job", policy(url), tmp_path), len(asked)

    return run


def test_who_has_not_seen_it_is_asked_and_who_has_is_not_asked_again(ask: Any) -> None:
    found, asked = ask()
    assert (found["by"], found["missing"], asked) == (["w"], {}, 1)
    assert found["at"].startswith("2027-")
    assert ask() == (found, 0)


@pytest.mark.parametrize(
    "instead",
    [WitnessAnswer(0, "no answer: ReadTimeout"), WitnessAnswer(200, "— w.example/1 AAAA\n"), WitnessAnswer(409, "9\n")],
)
def test_who_does_not_cosign_is_named_with_the_reason(ask: Any, instead: WitnessAnswer) -> None:
    found, asked = ask(instead=instead)
    assert (found["by"], [*found["missing"]]) == ([], ["w"])
    assert asked <= 2


def test_what_the_verifier_does_not_have_is_said(ask: Any, tmp_path: Path) -> None:
    found, _ = ask(LogWithFolder(tmp_path / "witnessed", reads_folder=False))
    assert (found["by"], [*found["missing"]]) == ([], ["the verifier"])


def test_a_policy_that_says_of_no_witness_where_it_is_asks_nobody(ask: Any) -> None:
    found, asked = ask(url="")
    assert (found["by"], [*found["missing"]], asked) == ([], ["the policy"], 0)


def test_nothing_that_goes_wrong_keeps_an_export(ask: Any, tmp_path: Path) -> None:
    assert [*ask(away=True)[0]["missing"]] == ["the log of seals"]
    (tmp_path / "witnessed").write_text("a file where the folder should be")
    found, _ = ask(LogWithFolder(tmp_path / "none"))
    assert found["by"] == []
    assert found["missing"]
