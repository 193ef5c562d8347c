"""Where a command takes a job's records from: a file, which is read without any network."""

from collections import ChainMap
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from aetheris.cli import judgement, streamfile
from aetheris.cli.console import CommandError, Exit, progress
from aetheris.cli.inputs import read_bytes
from aetheris.cli.large import LazyResults
from aetheris.proofs import RawRecord, bundle
from aetheris.proofs.evidence import BadEvidence, Evidence
from aetheris.proofs.sealed_prefix import sealed_prefix
from aetheris.proofs.trust import TrustedKey
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic


def is_file(target: str) -> bool:
    """A job's id has no slash; where a file has the name of a job, the file is meant."""
    return "/" in target or target.endswith((".jsonl", ".zip")) or Path(target).is_file()


def read_job(path: Path, data: Path) -> tuple[list[Record], LazyResults]:
    """A job's records, in log order, and its large results: those in the file, else in the store of blobs.

    Raises:
        CommandError: it can't be read, or is neither an exported stream nor a bundle; names the line.
    """
    content = read_bytes(path)
    if not content.startswith(b"PK"):
        stream = streamfile.parse(content)
        progress("unvouched", f"{path}: a stream is signed by nobody but its seal: `aetheris verify` it first")
        return [_record(raw) for raw in _judged(path, list(stream.raw()), stream.keys)], LazyResults(data)
    try:
        found = _opened(path, content, data)
    except BadEvidence as error:
        raise CommandError(Exit.BAD_INPUT, error.rule, f"{path}: {error.message}", file=str(path)) from None
    blobs = dict(ChainMap(*(dict(one.blobs) for one in found.chain)))  # it uses those of what it continues, too
    return [_record(raw) for raw in _judged(path, found.records, found.keys)], LazyResults(data, blobs)


def _opened(path: Path, content: bytes, data: Path) -> Evidence:
    """What is in a bundle. Any may be looked into that its own key signed; but it is said if that key is nobody's here.

    Raises:
        BadEvidence: it can't be read, or a signature of it does not hold.
    """
    known, now = judgement.trusted_keys(None, data), datetime.now(UTC)
    try:
        if known:
            return bundle.contents(content, known, now)
    except BadEvidence as error:
        if error.rule not in ("envelope_unknown_key", "envelope_retired_key"):
            raise
    found = bundle.contents(content, now=now)
    progress("unvouched", f"{path}: no key known here signed it, so nobody vouches for it: `aetheris verify` it first")
    return found


def _judged(path: Path, records: Sequence[RawRecord], keys: Sequence[TrustedKey]) -> Sequence[RawRecord]:
    """Those that a seal covers, and what amends it, by the file's own keys, with these; all where there is none."""
    found = sealed_prefix(records, keys)
    if found.behind:
        progress("after the seal", f"{path}: {len(found.behind)} records are not part of it, and not shown")
    return found.counted


def _record(raw: RawRecord) -> Record:
    return Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value)
