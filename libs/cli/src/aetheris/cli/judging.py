"""A job checked here: from a bundle, from an exported stream, or from Kafka itself."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aetheris.cli import streamfile
from aetheris.cli.console import CommandError, Exit
from aetheris.cli.fromlog import Found, read_log
from aetheris.cli.large import stored
from aetheris.cli.streamfile import Stream
from aetheris.proofs import RawRecord, Report, bundle
from aetheris.proofs import verify as judge
from aetheris.proofs.claims import against_claims
from aetheris.proofs.evidence import BadEvidence
from aetheris.proofs.sealed import SealReport
from aetheris.proofs.trust import TrustedKey


def of_bundle(data: bytes, keys: Sequence[TrustedKey] | None) -> dict[str, Any]:
    """The report on an evidence bundle; one that can't be read does not hold."""
    try:
        return bundle.judge(data, keys)
    except BadEvidence as error:
        return {"ok": False, "violations": [_finding(error.rule, None, error.message)]}


def of_stream(stream: Stream, keys: Sequence[TrustedKey], data: Path) -> dict[str, Any]:
    """The report on an exported stream."""
    report = of_records(list(stream.raw()), keys, data)
    found = list(_beside_the_proofs(stream, sealed=report.seal.present))
    return _with({"job_id": stream.job_id, **report.to_json()}, found)


def of_log(bootstrap: str, job_id: str, keys: Sequence[TrustedKey], data: Path) -> dict[str, Any]:
    """The report on a job as it lies in Kafka, with its line in the log of seals; no service is asked.

    Raises:
        CommandError: no broker answers, or the log has no such job.
    """
    found = asyncio.run(read_log(bootstrap, job_id))
    if not found.records and not found.claims:
        raise CommandError(Exit.UNKNOWN_JOB, "unknown_job", f"the log has no job {job_id}")
    report = of_records(found.records, keys, data)
    shown = {"job_id": job_id, **report.to_json(), "source": "log"}
    return _with(shown, list(_against_seals(found, report.seal)))


def of_records(records: Sequence[RawRecord], keys: Sequence[TrustedKey], data: Path) -> Report:
    """The report on records; large results are looked up in the store of blobs, and their bytes are checked."""
    return judge(records, keys=keys, load_blob=stored(data))


def _with(report: dict[str, Any], found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {**report, "ok": False, "violations": [*found, *report["violations"]]} if found else report


def _beside_the_proofs(stream: Stream, *, sealed: bool) -> Iterator[dict[str, Any]]:
    """What the file's first line says, and its records don't bear out; and whether anything says where they end."""
    records = list(stream.raw())
    first, last = (records[0], records[-1]) if records else (None, None)
    if stream.announced != len(records):
        message = f"the file announces {stream.announced} records and has {len(records)}"
        yield _finding("records_missing", last, message)
    if first is not None and first.key != stream.job_id.encode():
        yield _finding("other_job", first, f"the file says job {stream.job_id}, its first record another")
    if not sealed:
        message = "without a seal nothing says that no record is missing at the end: a job that runs has none yet"
        yield _finding("not_sealed", last, message)


def _against_seals(found: Found, seal: SealReport) -> Iterator[dict[str, Any]]:
    """What the log of seals says of the job must be borne out, and its seal be in there."""
    for broken in against_claims(found.records, found.claims):
        yield broken.to_json()
    if seal.present and found.records[seal.at].value not in found.seals:
        yield _finding("seal_not_logged", found.records[seal.at], "the log of seals lacks this seal")


def _finding(rule: str, record: RawRecord | None, message: str) -> dict[str, Any]:
    event_id = record.header("ce_id").decode(errors="replace") if record is not None else ""
    return {"rule": rule, "event_id": event_id, "offset": record.offset if record else -1, "message": message}


def trusted_keys(paths: Sequence[Path] | None, data: Path) -> list[TrustedKey]:
    """The keys of files, else those that the data folder keeps of its own verifier."""
    if paths:
        return streamfile.read_trusted(paths)
    known = [path for name in ("seal.pub", "seal-keys.json") if (path := data / "keys" / name).exists()]
    return list({key.key_id: key for key in streamfile.read_trusted(known)}.values())
