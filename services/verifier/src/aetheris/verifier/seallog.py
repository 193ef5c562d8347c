"""The log of all seals as a Merkle tree: its leaves are the records of `jobs.seals`, at their offsets."""

import asyncio
from pathlib import Path

from aetheris.proofs.claims import Claim, read_claim
from aetheris.proofs.merkle import Tree, leaf_hash
from aetheris.proofs.notes import BadNote, Checkpoint, ConsistencyProof, InclusionProof, read_checkpoint
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.interface import Log, LogUnreachable, Place
from aetheris.runtime.log.replay import replay
from aetheris.verifier.keys import SealKeys

PLACE: Place = (Topic.JOBS_SEALS, 0)


class SealLogForked(Exception):
    """`jobs.seals` contradicts the checkpoint that this verifier signed last: nothing more is signed."""

    code = "seal_log_forked"


class NotLogged(Exception):
    """No such seal or size in the log."""

    code = "not_logged"


class SealLog:
    """Read on demand, each record once. What is signed is remembered on disk, and never contradicted."""

    def __init__(self, log: Log, keys: SealKeys, origin: str, signed: Path, read_s: float) -> None:
        self._log = log
        self._keys = keys
        self._origin = origin
        self._signed = signed
        self._read_s = read_s
        self._tree = Tree()
        self._index: dict[bytes, int] = {}
        self._claims: dict[str, tuple[Claim, ...]] = {}
        self._checkpoint: Checkpoint | None = None
        self._lock = asyncio.Lock()

    async def checkpoint(self) -> Checkpoint:
        """The log as it is now, signed.

        Raises:
            SealLogForked, LogError.
        """
        async with self._lock:
            await self._catch_up()
            if self._checkpoint is None or self._checkpoint.size < len(self._tree):
                self._checkpoint = await asyncio.to_thread(self._sign)
            return self._checkpoint

    async def inclusion(self, seal: bytes) -> str:
        """A tlog-proof that the log has a record with exactly these bytes.

        Raises:
            NotLogged, SealLogForked, LogError.
        """
        checkpoint = await self.checkpoint()
        index = self._index.get(leaf_hash(seal))
        if index is None:
            raise NotLogged("the log of seals has no such seal")
        path = self._tree.inclusion(index, checkpoint.size)
        return InclusionProof(index, tuple(path), checkpoint.note).dumps()

    async def consistency(self, old: int) -> str:
        """A proof that the log only grew since it had `old` leaves.

        Raises:
            NotLogged, SealLogForked, LogError.
        """
        checkpoint = await self.checkpoint()
        if old > checkpoint.size:
            raise NotLogged(f"the log of seals has {checkpoint.size} leaves")
        return ConsistencyProof(old, tuple(self._tree.consistency(old, checkpoint.size)), checkpoint.note).dumps()

    async def leaves(self, start: int, limit: int) -> list[bytes]:
        """Hashes of the leaves from `start` on.

        Raises:
            SealLogForked, LogError.
        """
        size = (await self.checkpoint()).size
        return [self._tree.leaf(at) for at in range(start, min(start + limit, size))]

    async def claims(self, job_id: str) -> tuple[Claim, ...]:
        """What the log says of a job, as it is now.

        Raises:
            SealLogForked, LogError.
        """
        async with self._lock:
            await self._catch_up()
            return self._claims.get(job_id, ())

    async def has(self, seal: bytes) -> bool:
        """Whether the log has a record with exactly these bytes.

        Raises:
            SealLogForked, LogError.
        """
        async with self._lock:
            await self._catch_up()
            return leaf_hash(seal) in self._index

    async def _catch_up(self) -> None:
        try:
            async with asyncio.timeout(self._read_s):
                await self._read((await self._log.end_offsets([PLACE]))[PLACE])
        except TimeoutError:
            raise LogUnreachable(f"jobs.seals was not read within {self._read_s} s") from None

    async def _read(self, end: int) -> None:
        async for records in replay(self._log, PLACE, len(self._tree), end):
            for record in records:
                if record.offset != len(self._tree):
                    raise SealLogForked(f"jobs.seals lacks offset {len(self._tree)}")
                leaf = leaf_hash(record.value)
                self._index.setdefault(leaf, record.offset)
                self._tree.append(leaf)
                claim = read_claim(record.offset, record.value)
                if claim is not None:
                    self._claims[claim.job_id] = (*self._claims.get(claim.job_id, ()), claim)

    def _sign(self) -> Checkpoint:
        self._compare()
        size = len(self._tree)
        note = self._keys.sign_checkpoint(self._origin, size, self._tree.root(size))
        beside = self._signed.with_name(f".{self._signed.name}.new")
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(note)
        beside.replace(self._signed)
        return read_checkpoint(note)

    def _compare(self) -> None:
        """With what was signed last, by this process or one before it."""
        try:
            last = read_checkpoint(self._signed.read_text())
        except FileNotFoundError:
            return
        except (BadNote, UnicodeDecodeError):
            raise SealLogForked(f"{self._signed} is no checkpoint: bring back the one that was signed last") from None
        if last.origin == self._origin and (last.size > len(self._tree) or self._tree.root(last.size) != last.root):
            raise SealLogForked(f"jobs.seals is not what was signed when it had {last.size} records")
