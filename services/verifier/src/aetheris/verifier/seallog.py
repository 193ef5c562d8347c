"""The log of all seals as a Merkle tree: its leaves are the records of `jobs.seals`, at their offsets.

Every record is a leaf; one that no trusted key signed says nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aetheris.proofs.claims import Claim, log_entry, named_job, read_claim
from aetheris.proofs.log_lines import answers_of, erased_of, interim_of, read_line
from aetheris.proofs.merkle import Tree, leaf_hash
from aetheris.proofs.notes import BadNote, Checkpoint, ConsistencyProof, InclusionProof, read_checkpoint
from aetheris.proofs.trust import SEAL, keyring
from aetheris.protocol.base.stretches import Stretches
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.interface import Log, LogUnreachable, Place
from aetheris.runtime.log.replay import replay
from aetheris.verifier.core.line_index import LineIndex
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.witnessed import WitnessedCheckpoints

PLACE: Place = (Topic.JOBS_SEALS, 0)
MOST_INTERIM_SHOWN = 8


class SealLogForked(Exception):
    """`jobs.seals` contradicts the checkpoint that this verifier signed last: nothing more is signed."""

    code = "seal_log_forked"


class NotLogged(Exception):
    """No such seal or size in the log."""

    code = "not_logged"


class SealLog:
    """Read on demand, each record once. What is signed is remembered on disk, and never contradicted."""

    def __init__(
        self,
        log: Log,
        keys: SealKeys,
        origin: str,
        signed: Path,
        read_s: float,
        *,
        witnessed: WitnessedCheckpoints | None = None,
    ) -> None:
        self._log = log
        self._keys = keys
        self._origin = origin
        self._signed = signed
        self._read_s = read_s
        self._witnessed = witnessed
        self._tree = Tree()
        self._entries: list[bytes] = []
        self._index: dict[bytes, int] = {}
        self._naming: dict[str, Stretches] = {}
        """Where the lines lie that name a job, and whose signature nobody has asked for yet."""
        self._claims: dict[str, tuple[Claim, ...]] = {}
        self._lines = LineIndex()
        self._forged: set[int] = set()
        """Lines that say what no key of ours has signed."""
        self._checkpoint: Checkpoint | None = None
        self._lock = asyncio.Lock()

    async def checkpoint(self) -> Checkpoint:
        """The log as it is now, signed.

        Raises:
            SealLogForked, LogError.
        """
        async with self._lock:
            async with self._in_time():
                await self._catch_up()
            if self._checkpoint is None or self._checkpoint.size < len(self._tree):
                self._checkpoint = await asyncio.to_thread(self._sign)
            return self._checkpoint

    async def inclusion(self, seal: bytes) -> str:
        """A tlog-proof that the log has a record with exactly these bytes.

        Its checkpoint is the smallest that enough witnesses have seen and the record is in; without any, the newest.

        Raises:
            NotLogged, SealLogForked, LogError.
        """
        checkpoint = await self.checkpoint()
        index = self._index.get(log_entry(seal))
        if index is None:
            raise NotLogged("the log of seals has no such seal")
        if self._witnessed is not None:
            seen = await asyncio.to_thread(self._of_this_tree, self._witnessed.covering(index))
            checkpoint = seen or checkpoint
        path = self._tree.inclusion(index, checkpoint.size)
        return InclusionProof(index, tuple(path), checkpoint.note).dumps()

    async def seen(self) -> tuple[int, int]:
        """(how many leaves the log has, how many of them enough witnesses have seen).

        Raises:
            SealLogForked, LogError.
        """
        size = (await self.checkpoint()).size
        if self._witnessed is None:
            return size, 0
        newest = await asyncio.to_thread(self._of_this_tree, self._witnessed.newest())
        return size, newest.size if newest is not None else 0

    async def consistency(self, old: int) -> str:
        """A proof that the log only grew since it had `old` leaves.

        Raises:
            NotLogged, SealLogForked, LogError.
        """
        checkpoint = await self.checkpoint()
        if old > checkpoint.size:
            raise NotLogged(f"the log of seals has {checkpoint.size} leaves")
        return ConsistencyProof(old, tuple(self._tree.consistency(old, checkpoint.size)), checkpoint.note).dumps()

    async def entries(self, start: int, limit: int) -> list[bytes]:
        """The entries from `start` on: the SHA-256 of each line, of which the leaves are made.

        Raises:
            SealLogForked, LogError.
        """
        size = (await self.checkpoint()).size
        return self._entries[start : min(start + limit, size)]

    async def claims(self, job_id: str) -> tuple[Claim, ...]:
        """What trusted keys have signed of a job in the log, as it is now.

        Raises:
            SealLogForked, LogError.
        """
        async with self._lock, self._in_time():
            await self._catch_up()
            await self._judge_lines(job_id)
            return self._claims.get(job_id, ())

    async def has(self, seal: bytes) -> bool:
        """Whether the log has a record with exactly these bytes.

        Raises:
            SealLogForked, LogError.
        """
        async with self._lock, self._in_time():
            await self._catch_up()
            return log_entry(seal) in self._index

    async def answers(self, receipt: str) -> list[tuple[str, str]]:
        """(line, tlog-proof) of all that says what was answered to a receipt, by its hash, the oldest first.

        Raises:
            SealLogForked, LogError.
        """
        await self.checkpoint()
        found = await self._signed_lines(self._lines.of_receipt(receipt))
        return [await self._proved(line) for line, said in found if answers_of(said, receipt)]

    async def erasures(self, pseudonym: str) -> list[tuple[str, str]]:
        """(line, tlog-proof) of all that says that a person was erased, by its pseudonym, the oldest first.

        Raises:
            SealLogForked, LogError.
        """
        await self.checkpoint()
        return [await self._proved(line) for line in await self._erased(pseudonym)]

    async def logged_erasures(self, pseudonyms: Collection[str]) -> set[str]:
        """Of these persons those of whom a line says that they were erased: read in a few goes, however many.

        Raises:
            SealLogForked, LogError.
        """
        async with self._lock, self._in_time():
            await self._catch_up()
        offsets = [offset for pseudonym in pseudonyms for offset in self._lines.of_erased(pseudonym)]
        found = await self._signed_lines(sorted(offsets))
        return {erased[0] for _, said in found if (erased := erased_of(said)) is not None} & set(pseudonyms)

    async def interim(self, tenant: str, job_id: str) -> list[tuple[str, str]]:
        """(line, tlog-proof) of the newest interim seals of a tenant's job, the newest first.

        Raises:
            SealLogForked, LogError.
        """
        await self.checkpoint()
        found = await self._signed_lines(self._lines.of_job(tenant, job_id)[:MOST_INTERIM_SHOWN])
        return [await self._proved(line) for line, said in found if interim_of(said, job_id) is not None]

    async def _erased(self, pseudonym: str) -> list[bytes]:
        found = await self._signed_lines(self._lines.of_erased(pseudonym))
        return [line for line, said in found if (erased := erased_of(said)) is not None and erased[0] == pseudonym]

    async def _proved(self, line: bytes) -> tuple[str, str]:
        return line.decode(), await self.inclusion(line)

    async def _signed_lines(self, offsets: Sequence[int]) -> list[tuple[bytes, Mapping[str, Any]]]:
        """Those of the lines at these offsets that a trusted key has signed, with what they say."""
        keys, found = keyring(self._keys.trusted, SEAL), dict[int, tuple[bytes, Mapping[str, Any]]]()
        wanted, stretches = set(offsets) - self._forged, Stretches()
        for offset in sorted(wanted):
            stretches.add(offset)
        async with self._in_time():
            for begin, end in stretches.told():
                async for records in replay(self._log, PLACE, begin, end):
                    for record in (one for one in records if one.offset in wanted):
                        said = read_line(record.value, keys)
                        if said is not None:
                            found[record.offset] = record.value, said
                        else:
                            self._forged.add(record.offset)
        return [found[offset] for offset in dict.fromkeys(offsets) if offset in found]

    @asynccontextmanager
    async def _in_time(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._read_s):
                yield
        except TimeoutError:
            raise LogUnreachable(f"jobs.seals was not read within {self._read_s} s") from None

    async def _judge_lines(self, job_id: str) -> None:
        """Those that name a job and that nobody has judged yet: each once, and only of a job that is asked for."""
        naming = self._naming.get(job_id)
        if naming is None:
            return
        keys, found = keyring(self._keys.trusted, SEAL), list[Claim]()
        for begin, end in naming.told():
            async for records in replay(self._log, PLACE, begin, end):
                lines = [one for one in records if one.offset < end and named_job(one.value) == job_id]
                found += [one for line in lines if (one := read_claim(line.offset, line.value, keys)) is not None]
        self._claims[job_id] = (*self._claims.get(job_id, ()), *found)
        del self._naming[job_id]

    def _of_this_tree(self, found: Iterator[Checkpoint]) -> Checkpoint | None:
        """The first of this tree: one of another says nothing of it, as its log's signature is for who audits."""
        grown = len(self._tree)
        return next((one for one in found if one.size <= grown and self._tree.root(one.size) == one.root), None)

    async def _catch_up(self) -> None:
        end = (await self._log.end_offsets([PLACE]))[PLACE]
        async for records in replay(self._log, PLACE, len(self._tree), end):
            for record in records:
                if record.offset != len(self._tree):
                    raise SealLogForked(f"jobs.seals lacks offset {len(self._tree)}")
                entry = log_entry(record.value)
                self._entries.append(entry)
                self._index.setdefault(entry, record.offset)
                self._tree.append(leaf_hash(entry))
                if self._lines.take(record.offset, record.value):
                    continue
                if job_id := named_job(record.value):
                    self._naming.setdefault(job_id, Stretches()).add(record.offset)

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
        """With what was signed last, by this process or one before it, under whatever origin."""
        try:
            last = read_checkpoint(self._signed.read_text())
        except FileNotFoundError:
            return
        except (BadNote, UnicodeDecodeError):
            raise SealLogForked(f"{self._signed} is no checkpoint: bring back the one that was signed last") from None
        if last.size > len(self._tree) or self._tree.root(last.size) != last.root:
            raise SealLogForked(f"jobs.seals is not what was signed when it had {last.size} records")
