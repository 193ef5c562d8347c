"""The log of seals as tiles: who reads these alone computes the same roots and proofs."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aetheris.proofs.merkle import Tree, consistency_holds, inclusion_holds, leaf_hash
from aetheris.proofs.tiles import WIDTH, BadTile, TiledTree, TileEdge, read_entries, tile_path

SIZES = (0, 1, 2, 3, 255, 256, 257, 511, 512, 513, 1000)


def entry(at: int) -> bytes:
    return hashlib.sha256(b"line %d" % at).digest()


def tree(size: int) -> Tree:
    made = Tree()
    for at in range(size):
        made.append(leaf_hash(entry(at)))
    return made


def files(size: int) -> dict[str, bytes]:
    """All that a log of this size is."""
    edge, found = TileEdge(), dict[str, bytes]()
    for at in range(size):
        found.update(edge.append(entry(at)))
    found.update(edge.partial())
    return found


WHOLE = tree(max(SIZES))


def test_paths_are_those_of_the_specification() -> None:
    assert tile_path(0, 1234067) == "tile/0/x001/x234/067"
    assert tile_path(1, 0, 17) == "tile/1/000.p/17"
    assert tile_path("entries", 999) == "tile/entries/999"
    assert tile_path("entries", 1000, 1) == "tile/entries/x001/000.p/1"


def test_the_example_of_the_specification() -> None:
    """70,000 leaves."""
    found = files(70_000)
    hashes = [path for path in found if not path.startswith("tile/entries/")]
    full = [path for path in hashes if ".p/" not in path]
    assert sorted(path for path in hashes if ".p/" in path) == ["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]
    assert [sum(path.startswith(f"tile/{level}/") for path in full) for level in range(3)] == [273, 1, 0]
    assert {len(found[path]) for path in full} == {8192}
    assert len([path for path in found if path.startswith("tile/entries/")]) == 274


@pytest.mark.parametrize("size", SIZES)
def test_tiles_alone_give_every_root_and_proof(size: int) -> None:
    found = files(size)
    read = TiledTree(size, found.__getitem__)
    assert TileEdge.read(size, found.__getitem__).root() == read.root() == WHOLE.root(size)
    for at in {*range(0, size, 97), *range(max(0, size - 3), size)}:
        assert read.inclusion(at, size) == WHOLE.inclusion(at, size)
        assert read.consistency(at, size) == WHOLE.consistency(at, size)
        assert leaf_hash(read_entries(found.__getitem__, at // WIDTH, size)[at % WIDTH]) == WHOLE.leaf(at)


@given(st.integers(0, 700), st.integers(0, 700))
def test_what_was_written_at_once_is_what_grew(first: int, more: int) -> None:
    grown = files(first)
    edge = TileEdge.read(first, grown.__getitem__)
    for at in range(first, first + more):
        grown.update(edge.append(entry(at)))
    grown.update(edge.partial())
    assert files(first + more).items() <= grown.items()
    assert edge.root() == tree(first + more).root()


def test_a_full_tile_stands_in_for_what_it_was_before() -> None:
    found = files(300) | files(600)
    del found["tile/0/001.p/44"]
    read = TiledTree(300, found.__getitem__)
    assert read.root() == WHOLE.root(300)
    assert read.inclusion(299, 300) == WHOLE.inclusion(299, 300)


@pytest.mark.parametrize(("path", "beside"), [("tile/0/000", 1), ("tile/0/001.p/44", 257), ("tile/1/000.p/1", 257)])
def test_a_tile_that_lies_proves_nothing(path: str, beside: int) -> None:
    """What it proves under the signed root is what is so; and what needs the lie is no proof."""
    found, size = files(300), 300
    found[path] = bytes([found[path][0] ^ 1]) + found[path][1:]
    read = TiledTree(size, found.__getitem__)
    for at in range(size):
        proof, old = read.inclusion(at, size), read.consistency(at, size)
        holds = inclusion_holds(WHOLE.leaf(at), at, size, proof, WHOLE.root(size))
        assert holds == (proof == WHOLE.inclusion(at, size))
        grown = consistency_holds(at, size, old, WHOLE.root(at), WHOLE.root(size))
        assert grown == (old == WHOLE.consistency(at, size))
        assert at != beside or not holds


@pytest.mark.parametrize("data", [b"", b"x" * 31, b"x" * 8191, b"x" * 8193])
def test_a_tile_of_another_length_is_none(data: bytes) -> None:
    with pytest.raises(BadTile):
        TiledTree(256, {**files(256), "tile/0/000": data}.__getitem__).inclusion(3, 256)
    with pytest.raises(BadTile):
        TileEdge.read(300, {**files(300), "tile/entries/001.p/44": data}.__getitem__)


def test_entries_are_hashes() -> None:
    found = files(3)
    (path,) = (one for one in found if "entries" in one)
    found[path] = b"\x00\x21" + found[path][2:]
    with pytest.raises(BadTile):
        read_entries(found.__getitem__, 0, 3)


def test_a_tile_that_is_missing_is_named() -> None:
    with pytest.raises(BadTile, match=r"tile/0/000\.p/2"):
        TiledTree(2, {}.__getitem__).root()
