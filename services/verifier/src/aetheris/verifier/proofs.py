"""What the verifier knows of single jobs: read from Kafka for each question, so any verifier can answer for any job."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from aetheris.proofs import RawRecord, Violation, bundle, call_proof
from aetheris.proofs.call_proof import AskedCall
from aetheris.proofs.claims import AGAIN_S, SEAL_WITHIN_S, Claim, against_claims, lacks_seal
from aetheris.proofs.continued import MAX_CONTINUED, Link
from aetheris.proofs.evidence import (
    BadEvidence,
    Evidence,
    Judged,
    check_exportable,
    judge,
    large_results,
    violations_at_first,
    with_chain,
)
from aetheris.proofs.execution import LoadBlob
from aetheris.proofs.records import read, violation
from aetheris.proofs.redacted_records import Redaction
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages.events import JobCreated
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.job_lines import JobLine, line_of
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.runtime import Runtime
from aetheris.verifier.core.amendments import LateJudgement, judged_late
from aetheris.verifier.core.partition import raw
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.reports import loader
from aetheris.verifier.seallog import SealLog

KNOWN_WITHIN_S = 5.0
"""A job's line comes into its index a moment after its first events: this long it may be waited for."""
_LOOK_AGAIN_S = 0.02


class UnknownJob(Exception):
    """A job that was never created."""

    code = "unknown_job"


class StillReading(Exception):
    """The index of jobs is being read: ask again."""

    code = "index_loading"


@dataclass(frozen=True, slots=True)
class PackedJob:
    """A sealed job's bundle; `sealed_at` as the seal says, `until`: the offset behind the last of its records.

    `covers`: how many of its records its seal, or the last that amends it, is over.
    """

    bundle: bytes
    tenant: str
    sealed_at: str
    until: int
    covers: int


@dataclass(frozen=True)
class Proofs:
    """Answers questions about jobs."""

    runtime: Runtime
    index: Table
    history: JobLogReader
    keys: SealKeys
    seals: SealLog
    read_s: float

    async def stream(self, job_id: str, tenant: str) -> list[Record]:
        """The records of a tenant's job, from Kafka; of a sealed one those sealed, and what is known to lie behind.

        Raises:
            UnknownJob, StillReading, LogError.
        """
        return _of_tenant(await self._read(job_id, await self._line(job_id)), job_id, tenant)

    async def verify(self, job_id: str, tenant: str) -> dict[str, Any]:
        """The four proofs and what stands beside them, of the job and of those that it continues.

        Raises:
            As `stream`; BlobsUnreachable.
        """
        return with_chain([one.link for one in await self._chain(job_id, tenant)])

    async def late(self, job_id: str, offset: int, *, last_look: bool) -> LateJudgement | None:
        """What comes of a job that is sealed with what came behind its seal, up to `offset`; whosever it is.

        None while its line does not tell of that record; with `last_look` the log is asked, whatever the line tells.

        Raises:
            As `verify`.
        """
        if not self.index.loaded:
            raise StillReading("the index of jobs is being read")
        line = line_of(self.index.get, job_id)
        told = (*line.stretches, *line.behind) if line is not None else ()
        if line is not None and any(begin <= offset < end for begin, end in told):
            records = await self._read(job_id, line)
        elif not last_look:
            return None
        elif line is None:
            raise UnknownJob(f"no job {job_id}")
        else:
            records = await self._read_on(job_id)
        return await asyncio.to_thread(judged_late, _raw(records), self.keys.trusted, loader(self.runtime.blobs))

    async def inclusion(self, job_id: str, tenant: str) -> str:
        """A tlog-proof that the job's seal is in the log of seals.

        Raises:
            As `verify`; BadEvidence, NotLogged, SealLogForked.
        """
        return await self._inclusion(CheckedJob(job_id, *await self._checked(job_id, tenant)))

    async def evidence(self, job_id: str, tenant: str) -> bytes:
        """The bundle.

        Raises:
            As `inclusion`; BlobMissing, BlobCorrupt.
        """
        return await self._packed(await self._chain(job_id, tenant))

    async def redacted(self, job_id: str, tenant: str, redaction: Redaction) -> bytes:
        """The bundle without the records that are to be left out.

        Raises:
            As `evidence`.
        """
        chain = [(one, await self._inclusion(one)) for one in await self._chain(job_id, tenant)]
        return await asyncio.to_thread(self._pack, chain, redaction)

    async def call(self, job_id: str, tenant: str, asked: AskedCall) -> bytes:
        """The proof of one call by itself, with what is to be disclosed of it.

        Raises:
            As `inclusion`; BadRecordProof: there is no such call, or it can't be disclosed so.
        """
        one, load = CheckedJob(job_id, *await self._checked(job_id, tenant)), loader(self.runtime.blobs)
        inclusion = await self._inclusion(one)
        known = (one.records, one.judged, inclusion, asked)
        return await asyncio.to_thread(call_proof.make, *known, load=load)

    async def packed(self, job_id: str) -> PackedJob:
        """A job as it is archived, whosever it is.

        Raises:
            As `evidence`.
        """
        tenant = _tenant(await self._read(job_id, await self._line(job_id)))
        if tenant is None:
            raise UnknownJob(f"no job {job_id}")
        known = await self._chain(job_id, tenant)
        seal_at, records = known[0].judged.report.seal.at, known[0].records
        data = await self._packed(known)
        said = read(records[seal_at], seal_at)[0]
        return PackedJob(
            data, tenant, said.text("sealed_at"), records[-1].offset + 1, known[0].judged.report.event_count
        )

    async def covered(self, job_id: str) -> int:
        """How many of a job's records the log of seals has a seal over, by a trusted key.

        Raises:
            SealLogForked, LogError.
        """
        return max((one.event_count for one in await self.seals.claims(job_id)), default=0)

    async def check(self, data: bytes) -> None:
        """Whether a bundle proves what it says, as who gets it asks; it may show what came to light behind its seal.

        Raises:
            BadEvidence: naming the first rule that it breaks.
        """
        found = await asyncio.to_thread(bundle.judge, data, self.keys.trusted)
        for broken in violations_at_first(found):
            raise BadEvidence(broken["rule"], broken["message"])

    async def _packed(self, known: Sequence["CheckedJob"]) -> bytes:
        chain = [(one, await self._inclusion(one)) for one in known]
        return await asyncio.to_thread(self._pack, chain)

    async def _line(self, job_id: str) -> JobLine:
        """The job's line in the index, which is behind the log of events, and read in pauses."""
        if not self.index.loaded:
            raise StillReading("the index of jobs is being read")
        until_s = self.runtime.clock.monotonic() + KNOWN_WITHIN_S
        while (line := line_of(self.index.get, job_id)) is None:
            if self.runtime.clock.monotonic() >= until_s:
                raise UnknownJob(f"no job {job_id}")
            await self.runtime.clock.sleep(_LOOK_AGAIN_S)
        return line

    async def _read(self, job_id: str, line: JobLine) -> list[Record]:
        """The job's records, as far as its line says where they lie; to the end of the log where it doesn't."""
        partition = line.lies_in(job_id, self.runtime.settings.partitions)
        return await self.history.read_all(job_id, partition, line, deadline_s=self.read_s)

    async def _read_on(self, job_id: str) -> list[Record]:
        """All that the log has of the job, whatever its line says."""
        line = await self._line(job_id)
        partition = line.lies_in(job_id, self.runtime.settings.partitions)
        return await self.history.read_job(job_id, partition, line.birth, deadline_s=self.read_s)

    async def _checked(self, job_id: str, tenant: str) -> tuple[list[RawRecord], Judged]:
        """The job's records, judged and held against what the log of seals says of it.

        Where they lie is believed of the index if they hold a good seal, and all that is said of it elsewhere.
        """
        claims = await self.seals.claims(job_id)
        line = await self._line(job_id)
        if line.stretches:
            records = _raw(_of_tenant(await self._read(job_id, line), job_id, tenant))
            judged, beside = await self._held(records, claims)
            if judged.report.seal.ok and not beside:
                return records, judged
        records = _raw(_of_tenant(await self._read_on(job_id), job_id, tenant))
        waited_s = 0.0
        while lacks_seal(records, claims) and waited_s < SEAL_WITHIN_S:
            await self.runtime.clock.sleep(AGAIN_S)
            waited_s += AGAIN_S
            records = _raw(await self._read_on(job_id))
        judged, beside = await self._held(records, claims)
        return records, judged.with_violations(beside)

    async def _held(self, records: Sequence[RawRecord], claims: Sequence[Claim]) -> tuple[Judged, list[Violation]]:
        """(what the records are worth, what speaks against them in the log of seals)."""
        judged = await self._judged(records)
        return judged, [*against_claims(records, claims), *await self._unlogged(records, judged)]

    async def _unlogged(self, records: Sequence[RawRecord], judged: Judged) -> list[Violation]:
        seal = judged.report.seal
        if not seal.present or await self.seals.has(records[seal.at].value):
            return []
        fact = read(records[seal.at], seal.at)[0]
        return [violation("seal_not_logged", fact, "the log of seals lacks this seal")]

    async def _judged(self, records: Sequence[RawRecord]) -> Judged:
        return await asyncio.to_thread(judge, records, self.keys.trusted, loader(self.runtime.blobs))

    async def _chain(self, job_id: str, tenant: str) -> list["CheckedJob"]:
        """The job and those that it continues, the newest first, as far as they are known."""
        chain: list[CheckedJob] = []
        while job_id and len(chain) <= MAX_CONTINUED:
            try:
                one = CheckedJob(job_id, *await self._checked(job_id, tenant), loader(self.runtime.blobs))
            except UnknownJob:
                if not chain:
                    raise
                break
            chain.append(one)
            job_id = one.link.continues
        return chain

    async def _inclusion(self, one: "CheckedJob") -> str:
        check_exportable(one.judged.at_first.report)
        return await self.seals.inclusion(one.records[one.judged.report.seal.at].value)

    def _pack(self, chain: Sequence[tuple["CheckedJob", str]], redaction: Redaction | None = None) -> bytes:
        whole = redaction is None
        first, *earlier = (self._evidence(*one, with_blobs=whole) for one in chain)
        judged, all_of_it = [one.judged for one, _ in chain], replace(first, continued=tuple(earlier))
        if redaction is None:
            return bundle.build(all_of_it, judged, self._sign)
        return bundle.build_redacted(all_of_it, judged, redaction, self._sign)

    def _evidence(self, one: "CheckedJob", inclusion: str, *, with_blobs: bool) -> Evidence:
        large = large_results(one.judged.history) if with_blobs else ()
        blobs = {name: self.runtime.blobs.read(name) for name in large}
        return Evidence(one.job_id, one.records, blobs, inclusion, self.keys.trusted)

    def _sign(self, message: bytes) -> Mapping[str, str]:
        return self.keys.sign_envelope(message)


@dataclass(frozen=True)
class CheckedJob:
    """A job's records, and what they are worth."""

    job_id: str
    records: Sequence[RawRecord]
    judged: Judged
    load_blob: LoadBlob | None = None

    @property
    def link(self) -> Link:
        """It as one of a chain."""
        return Link(self.job_id, self.judged.report, self.judged.validity, self.load_blob)


def _of_tenant(records: list[Record], job_id: str, tenant: str) -> list[Record]:
    """The records of a job; raises UnknownJob where it is another tenant's."""
    if _tenant(records) != tenant:
        raise UnknownJob(f"no job {job_id}")
    return records


def _tenant(records: Sequence[Record]) -> str | None:
    """Whose job it is, by its birth."""
    creation = next(iter(records), None)
    if creation is None:
        return None
    try:
        return JobCreated.model_validate_json(creation.value).tenant
    except ValidationError:
        return None


def _raw(records: Sequence[Record]) -> list[RawRecord]:
    return [raw(record) for record in records]
