"""The log of seals as static files that anybody may read: C2SP tlog-tiles (docs/evidence.md).

A tile has up to 256 hashes: of leaves at level 0, above of full tiles of the level below. An entry is the SHA-256 of a
line, so that the files tell nobody what a line says.
"""

from collections.abc import Callable, Iterator

from aetheris.proofs.merkle import EMPTY_ROOT, HashTree, leaf_hash, tree_root

CHECKPOINT = "checkpoint"
"""The file with the log's signed state; it alone changes."""
WIDTH = 256
HASH_BYTES = 32
_LENGTH = HASH_BYTES.to_bytes(2, "big")
_ENTRY_BYTES = len(_LENGTH) + HASH_BYTES
MAX_FILE_BYTES = WIDTH * _ENTRY_BYTES
_BITS = 8
_ENTRIES = "entries"

ReadFile = Callable[[str], bytes]
"""path → a file's content, not much longer than MAX_FILE_BYTES; raises LookupError where there is none."""


class BadTile(ValueError):
    """A tile that is none, or is not there."""

    code = "bad_tile"


def tile_path(level: int | str, index: int, width: int = WIDTH) -> str:
    """Where a tile is, below whatever the log is served under."""
    parts = [f"{index % 1000:03}"]
    while index >= 1000:
        index //= 1000
        parts.append(f"x{index % 1000:03}")
    part = "" if width == WIDTH else f".p/{width}"
    return f"tile/{level}/{'/'.join(reversed(parts))}{part}"


def read_entries(read: ReadFile, index: int, size: int) -> list[bytes]:
    """The entries (32 bytes) of the leaves from `index` * 256 on, of a log of `size`; not judged.

    Raises:
        BadTile.
    """
    found = _parts(read, _ENTRIES, index, size, _ENTRY_BYTES)
    if not all(one.startswith(_LENGTH) for one in found):
        raise BadTile(f"{tile_path(_ENTRIES, index)}: an entry is no SHA-256")
    return [one[len(_LENGTH) :] for one in found]


def entries_of(read: ReadFile, size: int, root: bytes) -> list[bytes]:
    """All entries (32 bytes) of a log of that size and root.

    Raises:
        BadTile: also where they give another root.
    """
    entries = [one for at in range(0, size, WIDTH) for one in read_entries(read, at // WIDTH, size)]
    if tree_root([leaf_hash(one) for one in entries]) != root:
        raise BadTile("the entries are not those of the checkpoint")
    return entries


class TileEdge:
    """A tree that grows, as tiles: it keeps those that are not full, one of each level."""

    def __init__(self) -> None:
        self.size = 0
        self._entries: list[bytes] = []
        self._levels: list[list[bytes]] = [[]]

    @classmethod
    def read(cls, size: int, read: ReadFile) -> "TileEdge":
        """That of the first `size` leaves, from their files; compare its root: files may lie.

        Raises:
            BadTile.
        """
        edge, hashes = cls(), size
        edge.size, edge._levels = size, []
        while hashes or not edge._levels:
            edge._levels.append(_hashes(read, len(edge._levels), hashes // WIDTH, size) if hashes % WIDTH else [])
            hashes //= WIDTH
        edge._entries = read_entries(read, size // WIDTH, size) if size % WIDTH else []
        return edge

    def append(self, entry: bytes) -> Iterator[tuple[str, bytes]]:
        """Add the next entry (32 bytes); path and content of each tile that it fills."""
        at, carried = self.size, leaf_hash(entry)
        self.size += 1
        self._entries.append(entry)
        if len(self._entries) == WIDTH:
            yield tile_path(_ENTRIES, at // WIDTH), _bundle(self._entries)
            self._entries = []
        for level in range(len(self._levels) + 1):
            if level == len(self._levels):
                self._levels.append([])
            hashes = self._levels[level]
            hashes.append(carried)
            if len(hashes) < WIDTH:
                return
            at //= WIDTH
            yield tile_path(level, at), b"".join(hashes)
            carried, self._levels[level] = tree_root(hashes), []

    def partial(self) -> Iterator[tuple[str, bytes]]:
        """Path and content of each tile that is not full."""
        if self._entries:
            yield tile_path(_ENTRIES, self.size // WIDTH, len(self._entries)), _bundle(self._entries)
        for level, hashes in enumerate(self._levels):
            if hashes:
                yield tile_path(level, self.size >> _BITS * (level + 1), len(hashes)), b"".join(hashes)

    def root(self) -> bytes:
        """The root over all leaves."""
        below: list[bytes] = []
        for hashes in self._levels:
            if hashes:
                below = [tree_root([*hashes, *below])]  # what is below is an odd one, and rises as such
        return below[0] if below else EMPTY_ROOT


class TiledTree(HashTree):
    """A tree of `size` leaves, read from its tiles as they are needed. Check what it says: tiles may lie."""

    def __init__(self, size: int, read: ReadFile) -> None:
        self._size, self._read = size, read
        self._kept: dict[tuple[int, int], list[bytes]] = {}

    def __len__(self) -> int:
        return self._size

    def complete(self, level: int, index: int) -> bytes:
        """The root of a complete subtree.

        Raises:
            BadTile.
        """
        high, low = divmod(level, _BITS)
        begin = index << low
        tile = high, begin // WIDTH
        if tile not in self._kept:
            self._kept[tile] = _hashes(self._read, *tile, self._size)
        return tree_root(self._kept[tile][begin % WIDTH :][: 1 << low])


def _hashes(read: ReadFile, level: int, index: int, size: int) -> list[bytes]:
    return _parts(read, level, index, size, HASH_BYTES)


def _parts(read: ReadFile, level: int | str, index: int, size: int, step: int) -> list[bytes]:
    """What a tile has as far as the tree of that size goes: the one of that width, or the full one that followed."""
    height = level if isinstance(level, int) else 0
    width = min(WIDTH, (size >> _BITS * height) - index * WIDTH)
    for path, held in {tile_path(level, index, width): width, tile_path(level, index): WIDTH}.items():
        try:
            data = read(path)
        except LookupError:
            continue
        if len(data) != held * step:
            raise BadTile(f"{path} has {len(data)} bytes, and should have {held * step}")
        return [data[at : at + step] for at in range(0, width * step, step)]
    raise BadTile(f"{tile_path(level, index, width)} is not there")


def _bundle(entries: list[bytes]) -> bytes:
    return b"".join(_LENGTH + one for one in entries)
