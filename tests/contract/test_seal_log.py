"""The log of seals, judged by code that isn't ours: Go's checksum database (tlog and note)."""

import base64
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from aetheris.proofs import notes
from aetheris.proofs.merkle import EMPTY_ROOT, Tree, consistency_holds, inclusion_holds, leaf_hash, node_hash
from aetheris.proofs.notes import BadNote, Checkpoint, ConsistencyProof, InclusionProof
from aetheris.proofs.tiles import TileEdge, tile_path
from aetheris.proofs.trust import TrustedKey, moment

ORIGIN = "example.com/seals"
KEY = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"\x02" * 32)
TRUSTED = [TrustedKey(KEY.public_key())]
VKEY = notes.verifier_key(ORIGIN, KEY.public_key())
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 23)

# The inputs and roots of RFC 6962's reference trees, as transparency projects publish them.
LEAVES = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
LEAVES.append(bytes.fromhex("606162636465666768696a6b6c6d6e6f"))
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def tree(size: int, replaced: int | None = None) -> Tree:
    made = Tree()
    for at in range(size):
        made.append(leaf_hash(data(at) + (b"!" if at == replaced else b"")))
    return made


def data(at: int) -> bytes:
    return b"seal %d" % at


def checkpoint(made: Tree, size: int, key: Ed25519PrivateKey = KEY) -> str:
    return notes.sign_checkpoint(ORIGIN, size, made.root(size), key)


def inclusion(made: Tree, index: int, size: int) -> InclusionProof:
    return InclusionProof(index, tuple(made.inclusion(index, size)), checkpoint(made, size))


def consistency(made: Tree, old: int, size: int) -> ConsistencyProof:
    return ConsistencyProof(old, tuple(made.consistency(old, size)), checkpoint(made, size))


def opened(made: Tree, size: int) -> Checkpoint:
    return notes.open_checkpoint(checkpoint(made, size), TRUSTED)


@pytest.fixture(scope="module")
def sumdb(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Iterable[tuple[str, str, str]]], list[bool]]:
    """Go's answers to questions (kind, leaf or old checkpoint, proof)."""
    go = shutil.which("go")
    assert go is not None, "this test needs Go: make system-deps"
    program = tmp_path_factory.mktemp("sumdb") / "sumdb"
    subprocess.run([go, "build", "-o", program, "."], cwd=Path(__file__).parent / "sumdb", check=True)

    def ask(questions: Iterable[tuple[str, str, str]]) -> list[bool]:
        lines = [" ".join((kind, VKEY, encoded(first), encoded(proof))) for kind, first, proof in questions]
        done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
        answers = done.stdout.splitlines()
        assert len(answers) == len(lines)
        return [answer == "yes" for answer in answers]

    return ask


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_known_roots() -> None:
    made = Tree()
    assert made.root() == EMPTY_ROOT
    for leaf in LEAVES:
        made.append(leaf_hash(leaf))
    assert {size: made.root(size).hex() for size in ROOTS} == ROOTS


def test_a_tree_by_hand() -> None:
    """RFC 9162 §2.1.5: seven leaves, and the proofs of its examples."""
    made = tree(7)
    a, b, c, d, e, f, j = (leaf_hash(data(at)) for at in range(7))
    g, h, i = node_hash(a, b), node_hash(c, d), node_hash(e, f)
    k, l = node_hash(g, h), node_hash(i, j)  # noqa: E741  the names of the RFC
    assert made.root() == node_hash(k, l)
    assert [made.inclusion(at, 7) for at in (0, 3, 4, 6)] == [[b, h, l], [c, g, l], [f, j, k], [i, k]]
    assert [made.consistency(old, 7) for old in (3, 4, 6)] == [[c, d, g, l], [l], [i, j, k]]


def test_another_implementation_takes_every_proof(sumdb: Callable[..., list[bool]]) -> None:
    made = tree(max(SIZES))
    questions = [("inclusion", data(at).decode(), inclusion(made, at, n).dumps()) for n in SIZES for at in range(n)]
    questions += [
        ("consistency", checkpoint(made, old), consistency(made, old, n).dumps())
        for n in SIZES
        for old in range(1, n + 1)
    ]
    assert all(sumdb(questions))
    for kind, first, proof in questions:
        if kind == "inclusion":
            notes.open_inclusion(proof, first.encode(), TRUSTED)
        else:
            notes.open_consistency(proof, notes.open_checkpoint(first, TRUSTED), TRUSTED)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1000, 66_000])
def test_another_implementation_reads_what_is_published(
    size: int, sumdb: Callable[..., list[bool]], tmp_path: Path
) -> None:
    """From tiles alone it computes our root, proves leaves and older sizes; and the entries are those leaves."""
    edge = TileEdge()
    for at in range(size):
        entry = hashlib.sha256(data(at)).digest()
        write(tmp_path, edge.append(entry))
    write(tmp_path, edge.partial())
    question = ("tiles", str(tmp_path), "")
    (tmp_path / "checkpoint").write_text(notes.sign_checkpoint(ORIGIN, size, edge.root(), KEY))
    assert sumdb([question]) == [True]
    for path in (tile_path("entries", 0, min(size, 256)), tile_path(0, 0, min(size, 256))):
        whole = (tmp_path / path).read_bytes()
        (tmp_path / path).write_bytes(whole[:2] + bytes([whole[2] ^ 1]) + whole[3:])
        assert sumdb([question]) == [False], path
        (tmp_path / path).write_bytes(whole)


def write(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    for path, content in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def wrong_inclusions() -> dict[str, tuple[str, str]]:
    """A leaf with a proof that is wrong in one place."""
    made, forked = tree(11), tree(11, replaced=2)
    good, leaf = inclusion(made, 6, 11), data(6).decode()
    path = good.path
    changed = (path[0][:-1] + bytes([path[0][-1] ^ 1]), *path[1:])
    return {
        "another leaf": (data(7).decode(), good.dumps()),
        "another index": (leaf, replace(good, index=7).dumps()),
        "an index beyond the tree": (leaf, replace(good, index=11).dumps()),
        "a hash changed": (leaf, replace(good, path=changed).dumps()),
        "a hash left out": (leaf, replace(good, path=path[:-1]).dumps()),
        "a hash too many": (leaf, replace(good, path=(*path, path[-1])).dumps()),
        "no path": (leaf, replace(good, path=()).dumps()),
        "hashes in another order": (leaf, replace(good, path=path[::-1]).dumps()),
        "another tree's checkpoint": (leaf, replace(good, checkpoint=checkpoint(forked, 11)).dumps()),
        "a smaller tree's checkpoint": (leaf, replace(good, checkpoint=checkpoint(made, 10)).dumps()),
        "another key's checkpoint": (leaf, replace(good, checkpoint=checkpoint(made, 11, OTHER)).dumps()),
        "another size in the checkpoint": (leaf, good.dumps().replace("\n11\n", "\n12\n")),
        "a node passed off as a leaf": ("leaf", InclusionProof(0, (path[-1],), good.checkpoint).dumps()),
    }


def wrong_consistencies() -> dict[str, tuple[str, str]]:
    """An old checkpoint with a proof that is wrong in one place."""
    made, forked = tree(11), tree(11, replaced=2)
    good, old = consistency(made, 6, 11), checkpoint(made, 6)
    return {
        "a leaf changed since": (old, consistency(forked, 6, 11).dumps()),
        "another old tree": (checkpoint(forked, 6), good.dumps()),
        "another old size": (checkpoint(made, 5), good.dumps()),
        "a hash changed": (old, replace(good, path=(b"\0" * 32, *good.path[1:])).dumps()),
        "a hash left out": (old, replace(good, path=good.path[:-1]).dumps()),
        "a hash too many": (old, replace(good, path=(*good.path, good.path[-1])).dumps()),
        "no path": (old, replace(good, path=()).dumps()),
        "a path where the sizes are one": (checkpoint(made, 11), replace(good, old=11, path=good.path[:1]).dumps()),
        "a smaller tree": (checkpoint(made, 11), replace(good, old=11, checkpoint=old).dumps()),
        "another key": (old, replace(good, checkpoint=checkpoint(made, 11, OTHER)).dumps()),
    }


@pytest.mark.parametrize("name", wrong_inclusions())
def test_a_wrong_inclusion_is_refused(name: str, sumdb: Callable[..., list[bool]]) -> None:
    leaf, proof = wrong_inclusions()[name]
    with pytest.raises(BadNote):
        notes.open_inclusion(proof, leaf.encode(), TRUSTED)
    assert sumdb([("inclusion", leaf, proof)]) == [False]


@pytest.mark.parametrize("name", wrong_consistencies())
def test_a_wrong_consistency_is_refused(name: str, sumdb: Callable[..., list[bool]]) -> None:
    old, proof = wrong_consistencies()[name]
    with pytest.raises(BadNote):
        notes.open_consistency(proof, notes.open_checkpoint(old, TRUSTED), TRUSTED)
    assert sumdb([("consistency", old, proof)]) == [False]


def wrong_notes() -> dict[str, tuple[str, str]]:
    """A note that is none → the rule that it breaks."""
    note = checkpoint(tree(3), 3)
    text, signatures = note.split("\n\n")
    return {
        "the text changed": (note.replace("\n3\n", "\n4\n"), "checkpoint_signature"),
        "the origin changed": (note.replace(f"{ORIGIN}\n", "example.com/other\n", 1), "checkpoint_unknown_key"),
        "signed under another name": (note.replace(f"— {ORIGIN}", "— example.com/other"), "checkpoint_unknown_key"),
        "signed by another key": (checkpoint(tree(3), 3, OTHER), "checkpoint_unknown_key"),
        "no signature": (f"{text}\n\n", "bad_checkpoint"),
        "a size with a zero before it": (note.replace("\n3\n", "\n03\n"), "bad_checkpoint"),
        "no root": (f"{ORIGIN}\n3\n\n{signatures}", "bad_checkpoint"),
        "a control character": (note.replace("\n3\n", "\n3\r\n"), "bad_checkpoint"),
        "cut off": (note[:-1], "bad_checkpoint"),
        "an empty line in the text": (f"{ORIGIN}\n3\n\nx\n\n{signatures}", "bad_checkpoint"),
    }


@pytest.mark.parametrize("name", wrong_notes())
def test_a_wrong_checkpoint_is_refused(name: str) -> None:
    note, rule = wrong_notes()[name]
    with pytest.raises(BadNote) as refused:
        notes.open_checkpoint(note, TRUSTED)
    assert refused.value.rule == rule


def test_a_revoked_key_vouches_for_no_checkpoint() -> None:
    revoked = replace(TRUSTED[0], revoked_at=moment("2030-01-01T00:00:00+00:00"))
    with pytest.raises(BadNote) as refused:
        notes.open_checkpoint(checkpoint(tree(3), 3), [revoked])
    assert refused.value.rule == "checkpoint_revoked_key"


def test_a_witness_may_sign_too() -> None:
    """Signatures of unknown keys are passed over."""
    note = checkpoint(tree(3), 3)
    signed = note + f"— witness.example/w {base64.b64encode(bytes(68)).decode()}\n"
    assert notes.open_checkpoint(signed, TRUSTED).size == 3


@given(st.integers(1, 70), st.data())
def test_only_the_tree_that_grew_is_consistent(size: int, draw: st.DataObject) -> None:
    old = draw.draw(st.integers(0, size))
    changed = draw.draw(st.integers(0, size - 1))
    made, forked = tree(size), tree(size, replaced=changed)
    path = made.consistency(old, size)
    assert consistency_holds(old, size, path, made.root(old), made.root(size))
    assert not consistency_holds(old, size, forked.consistency(old, size), made.root(old), forked.root(size)) or (
        old <= changed
    )
    assert inclusion_holds(leaf_hash(data(changed)), changed, size, made.inclusion(changed, size), made.root(size))
    assert not inclusion_holds(
        leaf_hash(data(changed)), changed, size, forked.inclusion(changed, size), forked.root(size)
    )


def test_a_proof_of_nothing_is_none() -> None:
    leaf = hashlib.sha256(b"\0").digest()
    assert not inclusion_holds(leaf, 0, 0, [], EMPTY_ROOT)
    assert not inclusion_holds(leaf, -1, 1, [], leaf)
    assert inclusion_holds(leaf, 0, 1, [], leaf)
    assert consistency_holds(0, 1, [], EMPTY_ROOT, leaf)
    assert not consistency_holds(0, 1, [], leaf, leaf)
    assert not consistency_holds(2, 1, [], leaf, leaf)
