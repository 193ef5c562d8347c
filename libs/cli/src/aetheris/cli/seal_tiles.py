"""The log of seals written as static files, and read from such: a folder, or what a web server makes of one."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from aetheris.proofs import RawRecord
from aetheris.proofs.claims import log_entry
from aetheris.proofs.evidence import BadEvidence, Evidence
from aetheris.proofs.merkle import inclusion_holds, leaf_hash
from aetheris.proofs.notes import (
    MAX_CHARS,
    BadNote,
    Checkpoint,
    ConsistencyProof,
    InclusionProof,
    parse_inclusion,
    read_checkpoint,
)
from aetheris.proofs.redacted_evidence import RedactedJob
from aetheris.proofs.tiles import CHECKPOINT, HASH_BYTES, MAX_FILE_BYTES, BadTile, TiledTree, TileEdge
from aetheris.runtime.base.whole_file import write_whole

WITHIN_S = 10.0
_OK, _ABSENT = 200, (404, 410)


class TilesRefused(Exception):
    """Nothing is written: `rule` names what contradicts what."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message


class SealEntrySource(Protocol):
    """Who has the entries of the log of seals, in hex: some of them from one on, at least one where there is one."""

    def seal_entries(self, start: int) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class SealTiles:
    """A folder with the log of seals. Whatever a published checkpoint covers is there before it, and stays as it is."""

    folder: Path

    def publish(self, checkpoint: Checkpoint, source: SealEntrySource) -> int:
        """Write what is new up to a checkpoint, and then that; the number of leaves that came.

        What is written is what the checkpoint's root says, whatever the source answers. Until all of it is compared it
        is kept in memory, 70 bytes a leaf.

        Raises:
            TilesRefused: the folder has another log, or one that did not only grow into this; or the source lies.
            OSError: the folder can't be written.
        """
        edge = self._edge(checkpoint)
        begin, files = edge.size, list[tuple[str, bytes]]()
        for entry in _entries(source, begin, checkpoint.size):
            files += edge.append(entry)
        if edge.root() != checkpoint.root:
            raise TilesRefused("not_consistent", f"the checkpoint is not over what follows {begin} published leaves")
        full = [path for path, _ in files]
        if edge.size > begin:
            files += edge.partial()
        for path, data in (*files, (CHECKPOINT, checkpoint.note.encode())):
            self._write(path, data)  # the checkpoint last: nobody asks for what none covers
        for path in full:  # what was served of it while it was not full
            shutil.rmtree(self.folder / f"{path}.p", ignore_errors=True)
        return edge.size - begin

    def _edge(self, checkpoint: Checkpoint) -> TileEdge:
        """What is published, by its own checkpoint."""
        try:
            published = read_checkpoint((self.folder / CHECKPOINT).read_text())
        except FileNotFoundError:
            return TileEdge()
        except (BadNote, UnicodeDecodeError):
            raise TilesRefused("tiles_unusable", f"{self.folder / CHECKPOINT} is no checkpoint") from None
        if published.origin != checkpoint.origin:
            raise TilesRefused("other_log", f"{self.folder} has the log {published.origin}")
        if published.size > checkpoint.size:
            said = f"{published.size} leaves are published, and the checkpoint has {checkpoint.size}"
            raise TilesRefused("not_consistent", said)
        try:
            edge = TileEdge.read(published.size, from_folder(self.folder))
        except BadTile as error:
            raise TilesRefused("tiles_unusable", f"{self.folder}: {error}") from None
        if edge.root() != published.root:
            raise TilesRefused("tiles_unusable", f"{self.folder}: its tiles are not those of its checkpoint")
        return edge

    def _write(self, path: str, data: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, data)


def _entries(source: SealEntrySource, begin: int, end: int) -> Iterator[bytes]:
    while begin < end:
        found = source.seal_entries(begin)[: end - begin]
        try:
            entries = [bytes.fromhex(one) for one in found]
        except (TypeError, ValueError):
            entries = []
        if not entries or any(len(one) != HASH_BYTES for one in entries):
            raise TilesRefused("bad_entries", f"no entries are answered from {begin} on, or what is none")
        yield from entries
        begin += len(entries)


@dataclass(frozen=True, slots=True)
class ReadSealLog:
    """The log of seals as somebody reads it who has its files alone. What it says is no proof until it is checked."""

    read: Callable[[str], bytes]

    def checkpoint(self) -> str:
        """The published checkpoint, whoever signed it.

        Raises:
            BadTile: there is none, or what is no text.
        """
        try:
            return self.read(CHECKPOINT).decode()
        except (LookupError, UnicodeDecodeError):
            raise BadTile(f"{CHECKPOINT} is not there, or no text") from None

    def consistency(self, old: int) -> str:
        """That it only grew since it had `old` leaves, as the gateway answers it.

        Raises:
            BadTile, BadNote.
        """
        checkpoint = read_checkpoint(self.checkpoint())
        if old > checkpoint.size:
            raise BadNote("not_consistent", f"the published log has {checkpoint.size} leaves, fewer than {old}")
        path = TiledTree(checkpoint.size, self.read).consistency(old, checkpoint.size)
        return ConsistencyProof(old, tuple(path), checkpoint.note).dumps()

    def inclusion(self, index: int, line: bytes) -> str:
        """That a line is the leaf of that index, as the gateway answers it.

        Raises:
            BadTile, BadNote: also where another is there, or none yet.
        """
        checkpoint = read_checkpoint(self.checkpoint())
        if index >= checkpoint.size:
            raise BadNote("not_included", f"the published log has {checkpoint.size} leaves, and not yet leaf {index}")
        path = TiledTree(checkpoint.size, self.read).inclusion(index, checkpoint.size)
        if not inclusion_holds(leaf_hash(log_entry(line)), index, checkpoint.size, path, checkpoint.root):
            raise BadNote("not_included", f"leaf {index} of the published log is another")
        return InclusionProof(index, tuple(path), checkpoint.note).dumps()


def from_folder(folder: Path) -> Callable[[str], bytes]:
    """Reads files of a folder."""

    def read(path: str) -> bytes:
        try:
            with (folder / path).open("rb") as file:
                return file.read(_bound(path) + 1)
        except OSError:
            raise KeyError(path) from None

    return read


def from_url(url: str) -> Callable[[str], bytes]:
    """Reads files of a web server, each in so many seconds and bytes.

    What it returns raises BadTile where nobody answers as such a server does.
    """

    def read(path: str) -> bytes:
        deadline, data = time.monotonic() + WITHIN_S, bytearray()
        try:
            with (
                httpx.Client(timeout=WITHIN_S) as client,
                client.stream("GET", f"{url.rstrip('/')}/{path}") as answer,
            ):
                if answer.status_code in _ABSENT:
                    raise KeyError(path)
                if answer.status_code != _OK:
                    raise BadTile(f"{path}: it answers {answer.status_code}")
                for part in answer.iter_bytes():
                    data += part
                    if len(data) > _bound(path) or time.monotonic() > deadline:
                        raise BadTile(f"{path}: it says too much, or too slowly")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BadTile(f"{path}: no answer: {type(error).__name__}") from None
        return bytes(data)

    return read


def read_seal_log(where: str) -> ReadSealLog:
    """That of a URL, or of a folder."""
    return ReadSealLog(from_url(where) if where.startswith(("http://", "https://")) else from_folder(Path(where)))


def sealed_line(evidence: Evidence | RedactedJob) -> tuple[int, bytes]:
    """(index, line) of the seal that a bundle's own proof is about.

    Raises:
        BadEvidence: none of its records is the leaf of its proof.
        BadNote: it has no such proof.
    """
    proof = parse_inclusion(evidence.inclusion)
    checkpoint = read_checkpoint(proof.checkpoint)
    for record in reversed([one for one in evidence.records if isinstance(one, RawRecord)]):
        leaf = leaf_hash(log_entry(record.value))
        if inclusion_holds(leaf, proof.index, checkpoint.size, proof.path, checkpoint.root):
            return proof.index, record.value
    raise BadEvidence("not_included", "none of its records is the leaf of its proof")


def _bound(path: str) -> int:
    return MAX_CHARS if path == CHECKPOINT else MAX_FILE_BYTES
