"""`aetheris witness`: a witness cosigns what only grew, says what it has seen, and refuses all else."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from aetheris.cli import witness_state
from aetheris.cli.app import app
from aetheris.cli.console import Exit
from aetheris.cli.witness_server import MAX_BODY, WitnessServer
from aetheris.cli.witness_state import WitnessState, WitnessStateUnusable, file_name
from aetheris.proofs.merkle import EMPTY_ROOT, Tree, leaf_hash
from aetheris.proofs.notes import COSIGNATURE, ConsistencyProof, sign_checkpoint, verifier_key
from aetheris.proofs.witnesses import open_witnessed, read_log_policy, read_vkey
from tests.testkit.evidence import KEY, ORIGIN, OTHER_KEY

NAME = "witness.example/w"
OWN = Ed25519PrivateKey.from_private_bytes(b"\x0b" * 32)
LOG = verifier_key(ORIGIN, KEY.public_key())
VKEY = verifier_key(NAME, OWN.public_key(), COSIGNATURE)
POLICY = read_log_policy(f"log {LOG}\nwitness w {VKEY}\nquorum w\n".encode())
AT = 1_800_000_000
RUNNER = CliRunner()


def tree(size: int, replaced: int | None = None) -> Tree:
    made = Tree()
    for at in range(size):
        made.append(leaf_hash(b"other" if at == replaced else b"seal %d" % at))
    return made


def checkpoint(made: Tree, key: Ed25519PrivateKey = KEY, origin: str = ORIGIN) -> str:
    return sign_checkpoint(origin, len(made), made.root(), key)


def body(old: int, made: Tree, note: str | None = None) -> str:
    path = tuple(made.consistency(old, len(made))) if old <= len(made) else ()
    return ConsistencyProof(old, path, note or checkpoint(made)).dumps()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    witness_state.make_state(tmp_path / "state", VKEY)
    return tmp_path / "state"


@pytest.fixture
def state(folder: Path) -> Iterator[WitnessState]:
    held = WitnessState.load(folder, {ORIGIN})
    yield held
    held.close()


def asked(state: WitnessState, *bodies: str | bytes) -> httpx.Response:
    """The answer to the last of these that are posted."""

    async def ask() -> httpx.Response:
        server = WitnessServer(state, OWN, [read_vkey(LOG)], lambda: AT + 0.9).app()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url="http://w") as client:
            return [await client.post("/add-checkpoint", content=one) for one in bodies][-1]

    return asyncio.run(ask())


def got(state: WitnessState, path: str) -> httpx.Response:
    async def get() -> httpx.Response:
        server = WitnessServer(state, OWN, [read_vkey(LOG)], lambda: AT).app()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url="http://w") as client:
            return await client.get(path)

    return asyncio.run(get())


def test_it_cosigns_a_log_as_it_grows(state: WitnessState) -> None:
    seen = 0
    for size in (0, 3, 3, 7, 64):
        answer = asked(state, body(seen, tree(size)))
        assert answer.status_code == 200, answer.text
        found = open_witnessed(checkpoint(tree(size)) + answer.text, POLICY)
        assert (found.checkpoint.size, found.by) == (size, ("w",))
        assert found.at == datetime.fromtimestamp(AT, UTC)
        seen = size


REFUSED = {
    "a fork": (body(7, tree(9, replaced=2)), 422),
    "another tree of the same size": (body(7, tree(7, replaced=2)), 422),
    "a proof that is cut off": (ConsistencyProof(7, (), checkpoint(tree(9))).dumps(), 422),
    "a size of zero with a root": (
        ConsistencyProof(0, (), sign_checkpoint(ORIGIN, 0, tree(2).root(), KEY)).dumps(),
        409,
    ),
    "a stale size": (body(3, tree(9)), 409),
    "no size at all": (body(0, tree(9)), 409),
    "a tree that got smaller": (body(7, tree(5)), 400),
    "another log": (body(7, tree(9), checkpoint(tree(9), origin="example.com/other")), 404),
    "another's signature": (body(7, tree(9), checkpoint(tree(9), OTHER_KEY)), 403),
    "a signature of another tree": (body(7, tree(9), checkpoint(tree(9)).replace("\n9\n", "\n10\n")), 403),
    "no proof": (checkpoint(tree(9)), 400),
    "nothing": (b"", 400),
    "no text": (b"old 7\n\xff\n\n", 400),
    "too many hashes": (ConsistencyProof(7, (b"\0" * 32,) * 64, checkpoint(tree(9))).dumps(), 400),
    "too many bytes": (b"o" * (MAX_BODY + 1), 413),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_and_stays_where_it_was(name: str, state: WitnessState) -> None:
    posted, status = REFUSED[name]
    answer = asked(state, body(0, tree(7)), posted)
    assert (answer.status_code, "—" in answer.text) == (status, False)
    if status == 409:
        assert (answer.text, answer.headers["content-type"]) == ("7\n", "text/x.tlog.size")
    last = state.last(ORIGIN)
    assert last is not None
    assert (last.size, last.root) == (7, tree(7).root())
    assert asked(state, body(7, tree(9))).status_code == 200


def test_an_empty_log_has_one_root(state: WitnessState) -> None:
    assert asked(
        state, ConsistencyProof(0, (), sign_checkpoint(ORIGIN, 0, tree(1).root(), KEY)).dumps()
    ).is_client_error
    assert asked(state, ConsistencyProof(0, (), sign_checkpoint(ORIGIN, 0, EMPTY_ROOT, KEY)).dumps()).is_success


def test_anybody_may_see_what_it_cosigned_last(state: WitnessState) -> None:
    path = f"/{file_name(ORIGIN)}/checkpoint"
    assert got(state, path).status_code == 404
    stranger = "— someone.example/x AAAAAAAA\n"
    asked(state, body(0, tree(7), checkpoint(tree(7)) + stranger))
    shown = got(state, path).text
    assert open_witnessed(shown, POLICY).by == ("w",)
    assert "someone" not in shown
    assert got(state, "/vkey/checkpoint").status_code == 404
    assert got(state, f"/{file_name('example.com/other')}/checkpoint").status_code == 404


def test_it_goes_on_where_it_was(folder: Path) -> None:
    first = WitnessState.load(folder, {ORIGIN})
    asked(first, body(0, tree(7)))
    with pytest.raises(WitnessStateUnusable, match="another witness uses"):
        WitnessState.load(folder, {ORIGIN})
    first.close()
    again = WitnessState.load(folder, {ORIGIN})
    assert asked(again, body(0, tree(9, replaced=1))).status_code == 409
    assert asked(again, body(7, tree(9, replaced=1))).status_code == 422
    again.close()


def test_what_could_not_be_kept_is_not_cosigned(
    state: WitnessState, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(witness_state, "write_whole", full)
    with pytest.raises(OSError, match="no space"):
        asked(state, body(0, tree(7)))
    assert state.last(ORIGIN) is None
    assert not (folder / file_name(ORIGIN)).exists()


@pytest.mark.parametrize(
    "damage", [b"", b"\xff", checkpoint(tree(3)).encode()], ids=["empty", "no text", "not its own"]
)
def test_a_damaged_folder_is_refused(damage: bytes, folder: Path) -> None:
    (folder / file_name(ORIGIN)).write_bytes(damage)
    with pytest.raises(WitnessStateUnusable):
        WitnessState.load(folder, {ORIGIN})


def test_a_key_never_begins_anew(tmp_path: Path) -> None:
    key, folder = tmp_path / "w.pem", tmp_path / "state"
    made = ["witness", "init", "--name", NAME, "--key", str(key), "--state", str(folder)]
    serving = ["witness", "serve", "--key", str(key), "--log", LOG, "--port", "0", "--state"]
    begun = RUNNER.invoke(app, made)
    assert begun.exit_code == 0
    assert read_vkey(begun.stdout.strip(), (COSIGNATURE,)).name == NAME
    assert RUNNER.invoke(app, made).exit_code == 1
    other = [*made[:4], "--key", str(tmp_path / "other.pem"), "--state"]
    assert RUNNER.invoke(app, [*other, str(folder)]).exit_code != 0
    assert not (tmp_path / "other.pem").exists()
    assert RUNNER.invoke(app, [*serving, str(tmp_path / "lost")]).exit_code == Exit.REFUSED
    assert RUNNER.invoke(app, [*other, str(tmp_path / "second")]).exit_code == 0
    refused = RUNNER.invoke(app, [*serving, str(tmp_path / "second")])
    assert (refused.exit_code, "another key" in refused.stderr) == (2, True)
    assert RUNNER.invoke(app, [*serving[:4], "--log", VKEY, "--state", str(folder)]).exit_code == 2
    assert RUNNER.invoke(app, [*made[:2], "--name", "a b", *made[4:]]).exit_code in (1, 2)
