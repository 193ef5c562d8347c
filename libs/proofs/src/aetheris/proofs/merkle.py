"""Merkle trees (RFC 9162 §2.1): roots, and proofs of inclusion and consistency; over seals, and over records."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """SHA-256(0x00 || data) (§2.1.1)."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 || left || right) (§2.1.1)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def tree_root(leaves: Sequence[bytes]) -> bytes:
    """The root over leaf hashes (§2.1.1), where no proof is asked for."""
    level, sha256 = leaves, hashlib.sha256
    while len(level) > 1:
        # an odd one rises as it is until it has a sibling: so do the unequal subtrees of the definition
        rest = level[-1:] if len(level) % 2 else ()
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [sha256(b"\1" + left + right).digest() for left, right in pairs]
        level.extend(rest)
    return level[0] if level else EMPTY_ROOT


class HashTree(ABC):
    """What a tree over leaf hashes proves, by the hashes of its complete subtrees, wherever these are kept."""

    @abstractmethod
    def __len__(self) -> int:
        """How many leaves it has."""

    @abstractmethod
    def complete(self, level: int, index: int) -> bytes:
        """The root of the subtree over 2**level leaves that begins with leaf index * 2**level; all are there."""

    def root(self, size: int | None = None) -> bytes:
        """The root over the first `size` leaves.

        Raises:
            ValueError: the tree has not so many.
        """
        size = len(self) if size is None else size
        self._check(0 <= size <= len(self))
        return self._subtree(0, size) if size else EMPTY_ROOT

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """PATH(index, D_size), from the leaf's sibling up (§2.1.3.1).

        Raises:
            ValueError: there is no such leaf, or no such size.
        """
        self._check(0 <= index < size <= len(self))
        return self._path(index, 0, size)

    def consistency(self, old: int, size: int) -> list[bytes]:
        """PROOF(old, D_size) (§2.1.4.1); empty where old is 0 or `size`.

        Raises:
            ValueError: there are no such sizes.
        """
        self._check(0 <= old <= size <= len(self))
        return self._subproof(old, 0, size, whole=True) if 0 < old < size else []

    def _subtree(self, begin: int, end: int) -> bytes:
        size = end - begin
        if size & (size - 1) == 0:
            return self.complete(size.bit_length() - 1, begin // size)
        middle = begin + _split(size)
        return node_hash(self._subtree(begin, middle), self._subtree(middle, end))

    def _path(self, index: int, begin: int, end: int) -> list[bytes]:
        if end - begin == 1:
            return []
        middle = begin + _split(end - begin)
        if index < middle:
            return [*self._path(index, begin, middle), self._subtree(middle, end)]
        return [*self._path(index, middle, end), self._subtree(begin, middle)]

    def _subproof(self, old: int, begin: int, end: int, *, whole: bool) -> list[bytes]:
        if old == end:
            return [] if whole else [self._subtree(begin, end)]
        middle = begin + _split(end - begin)
        if old <= middle:
            return [*self._subproof(old, begin, middle, whole=whole), self._subtree(middle, end)]
        return [*self._subproof(old, middle, end, whole=False), self._subtree(begin, middle)]

    @staticmethod
    def _check(holds: bool) -> None:
        if not holds:
            raise ValueError("the tree has no such leaf or size")


class Tree(HashTree):
    """An append-only tree over leaf hashes. Keeps the hash of every complete subtree: 64 bytes a leaf."""

    def __init__(self) -> None:
        self._levels: list[list[bytes]] = [[]]

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, leaf: bytes) -> None:
        """Add the hash of the next leaf."""
        self._levels[0].append(leaf)
        level = 0
        while len(self._levels[level]) % 2 == 0:
            if level + 1 == len(self._levels):
                self._levels.append([])
            self._levels[level + 1].append(node_hash(*self._levels[level][-2:]))
            level += 1

    def leaf(self, index: int) -> bytes:
        """The hash of a leaf."""
        return self._levels[0][index]

    def complete(self, level: int, index: int) -> bytes:
        """The root of a complete subtree."""
        return self._levels[level][index]


def inclusion_holds(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Is a leaf hash at that index of the tree with that size and root? (§2.1.3.2)"""
    return root_of_path(leaf, index, size, path) == root


def root_of_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a path leads to from a leaf hash (§2.1.3.2); None for one of the wrong length."""
    if not 0 <= index < size:
        return None
    fn, sn, found = index, size - 1, leaf
    for step in path:
        if sn == 0:
            return None
        if fn & 1 or fn == sn:
            found = node_hash(step, found)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            found = node_hash(found, step)
        fn, sn = fn >> 1, sn >> 1
    return found if sn == 0 else None


def consistency_holds(old: int, size: int, path: Sequence[bytes], old_root: bytes, root: bytes) -> bool:
    """Is the tree of `old` leaves and `old_root` a beginning of that of `size` leaves and `root`? (§2.1.4.2)"""
    if not 0 <= old <= size:
        return False
    if old == size:
        return not path and old_root == root
    if old == 0:
        return not path and old_root == EMPTY_ROOT
    steps = list(path) if old & (old - 1) else [old_root, *path]
    if not steps:
        return False
    return _grown(old - 1, size - 1, steps) == (old_root, root)


def _grown(fn: int, sn: int, steps: list[bytes]) -> tuple[bytes, bytes] | None:
    """Both roots as a consistency proof gives them; None for one of the wrong length."""
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    before = after = steps[0]
    for step in steps[1:]:
        if sn == 0:
            return None
        if fn & 1 or fn == sn:
            before, after = node_hash(step, before), node_hash(step, after)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            after = node_hash(after, step)
        fn, sn = fn >> 1, sn >> 1
    return (before, after) if sn == 0 else None


def _split(size: int) -> int:
    """The largest power of two smaller than `size`."""
    return 1 << (size - 1).bit_length() - 1
