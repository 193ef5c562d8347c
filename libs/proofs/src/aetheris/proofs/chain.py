"""A job's chain, over every record in log order: version 1, a hash, and version 2, a tree (docs/verification.md)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from struct import Struct

from pybase64 import b64encode

from aetheris.proofs.merkle import Tree, tree_root
from aetheris.proofs.records import COVERED, LoggedRecord, RawRecord, by_name, event_type, repeated_in

VERSION = 2
"""Of the chain, as seals name it: a tree over leaves that cover more than version 1, which stands beside it."""
_FEW = 4
_ABSENT, _REPEATED = b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe"
_length = Struct(">I").pack
_SHORT = 255
_SIZES = tuple(map(_length, range(_SHORT + 1)))


class ChainHead:
    """The chain's head: root_i = SHA-256(root_{i−1} + "\\n" + event_id + " " + type + " " + base64(payload)).

    root_0 is empty; roots enter as their 32 raw bytes, ids and payloads as the bytes stored in the log.
    """

    __slots__ = ("count", "root")

    def __init__(self, root: bytes = b"", count: int = 0) -> None:
        self.root = root
        self.count = count

    def update(self, record: LoggedRecord) -> bytes:
        """Append a record; the new root, 32 bytes."""
        named = by_name(record.headers)
        name, event_id = _kept(named.get("ce_type"), named.get("ce_source"))[0], named.get("ce_id", b"")
        linked = (self.root, b"\n", event_id, name, b64encode(record.value))
        self.root = sha256(b"".join(linked)).digest()
        self.count += 1
        return self.root

    def hexdigest(self) -> str:
        """The root in hex; empty while nothing is chained."""
        return self.root.hex()


class EventChain:
    """Both versions over a job's records, and what they were after each record."""

    __slots__ = ("_grown", "_leaves", "_roots", "_trees")

    def __init__(self) -> None:
        self._roots: list[bytes] = []
        self._leaves: list[bytes] = []
        self._trees: dict[int, str] = {}
        self._grown: Tree | None = None

    def add(self, record: LoggedRecord, named: Mapping[str, bytes] | None = None) -> None:
        """Append a record; `named`: its headers by name, where they are known."""
        named, value, roots = by_name(record.headers) if named is None else named, record.value, self._roots
        get = named.get
        event_id, time = get("ce_id"), get("ce_time")
        name, kept_kind, kept_source = _kept(get("ce_type"), get("ce_source"))
        before = roots[-1] if roots else b""
        linked = (before, b"\n", event_id or b"", name, b64encode(value))
        roots.append(sha256(b"".join(linked)).digest())
        is_plain = len(named) == len(record.headers)
        if not is_plain or event_id is None or time is None or len(event_id) > _SHORT or len(time) > _SHORT:
            self._leaves.append(record_leaf(record))
            return
        sizes, value_hash = _SIZES, sha256(value).digest()  # nearly every one, so without a call
        said = (b"\0", sizes[len(event_id)], event_id, kept_kind, sizes[len(time)], time, kept_source, value_hash)
        self._leaves.append(sha256(b"".join(said)).digest())

    @property
    def leaves(self) -> Sequence[bytes]:
        """The leaf of each record: see `record_leaf`."""
        return self._leaves

    @property
    def count(self) -> int:
        """How many records there are."""
        return len(self._roots)

    def root(self, count: int) -> str:
        """Version 1 over the first `count` records, in hex; empty over none."""
        return self._roots[count - 1].hex() if count else ""

    def tree(self, count: int) -> str:
        """The root of the tree over the first `count` records, in hex."""
        if count not in self._trees:
            # a few are asked for as a rule: only where many are, a tree is kept that knows each of them
            root = tree_root(self._leaves[:count]) if len(self._trees) < _FEW else self._tree().root(count)
            self._trees[count] = root.hex()
        return self._trees[count]

    def consistency(self, old: int, count: int) -> list[bytes]:
        """A proof that the tree over `count` records begins with that over `old` (RFC 9162 §2.1.4), without records.

        Raises:
            ValueError: there are no so many.
        """
        return self._tree().consistency(old, count)

    def _tree(self) -> Tree:
        tree = self._grown = self._grown or Tree()
        for leaf in self._leaves[len(tree) :]:
            tree.append(leaf)
        return tree


def record_leaf(record: LoggedRecord) -> bytes:
    """A record's leaf: SHA-256(00 || lp(ce_id) || lp(ce_type) || lp(ce_time) || lp(ce_source) || lp(SHA-256(value))).

    lp is a length, 4 bytes, and the bytes; FFFFFFFF alone stands for a header that is absent, FFFFFFFE for one that
    comes more than once.
    """
    named, value_hash = by_name(record.headers), sha256(record.value).digest()
    if len(named) < len(record.headers) and (repeated := repeated_in(record.headers)):
        said = b"".join(_REPEATED if name in repeated else _prefixed(named.get(name)) for name in COVERED)
        return sha256(b"\0%b\0\0\0\x20%b" % (said, value_hash)).digest()
    return leaf_of(named, value_hash)


def leaf_of(headers: Mapping[str, bytes], value_hash: bytes) -> bytes:
    """The leaf of a record that has each of its headers once, from them and the SHA-256 of its value."""
    said = b"".join([_prefixed(headers.get(name)) for name in COVERED])
    return sha256(b"\0%b\0\0\0\x20%b" % (said, value_hash)).digest()


def event_chain_root(records: Iterable[RawRecord]) -> str:
    """Version 1's root over whole records, in hex."""
    head = ChainHead()
    for record in records:
        head.update(record)
    return head.hexdigest()


def event_tree_root(records: Iterable[RawRecord]) -> str:
    """Version 2's root over whole records, in hex."""
    return tree_root([record_leaf(record) for record in records]).hex()


def _prefixed(header: bytes | None) -> bytes:
    return _ABSENT if header is None else _length(len(header)) + header


@lru_cache(maxsize=1024)
def _kept(kind: bytes | None, source: bytes | None) -> tuple[bytes, bytes, bytes]:
    """The type in a link; what a leaf says of ce_type, and of ce_source and what stands behind it: of few pairs."""
    return b" %b " % event_type(kind or b""), _prefixed(kind), _prefixed(source) + b"\0\0\0\x20"
