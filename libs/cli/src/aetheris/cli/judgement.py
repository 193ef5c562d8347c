"""A job checked here: from a bundle, from an exported stream, or from Kafka itself."""

import gc
import os
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aetheris.cli import streamfile
from aetheris.cli.console import CommandError, Exit
from aetheris.cli.embedded.plan import RECORD_KEYS
from aetheris.cli.inputs import read_bytes
from aetheris.cli.streamfile import Stream
from aetheris.proofs import ProofReport, RawRecord, bundle, call_proof
from aetheris.proofs.approver_signatures import BadSigners, TrustedSigner, read_signers
from aetheris.proofs.authorship import since_birth
from aetheris.proofs.claims import against_claims
from aetheris.proofs.continued import MAX_CONTINUED, Link
from aetheris.proofs.erasures import BadErasures, erased_values, read_erasures
from aetheris.proofs.evidence import BadEvidence, judge, with_chain
from aetheris.proofs.execution import LoadBlob
from aetheris.proofs.openings import BadOpenings, hidden_values_in, opened_values, read_openings
from aetheris.proofs.records import body_of
from aetheris.proofs.sealed import SealReport
from aetheris.proofs.sealed_leaves import BadRecordProof
from aetheris.proofs.timestamps import TrustedAuthorities
from aetheris.proofs.trust import TrustedKey
from aetheris.proofs.witnesses import BadLogPolicy, LogPolicy, read_log_policy
from aetheris.protocol.base.signing import key_id_of
from aetheris.runtime.keys.files import ROOT, load_key
from aetheris.runtime.keys.signing import raw_public_key

if TYPE_CHECKING:
    from aetheris.cli.fromlog import JobRecords
    from aetheris.cli.timestamp_authority import AuthorityRoots

Signers = Sequence[TrustedSigner] | None
"""Whose SSH keys and passkeys sign for whom; None: signatures are held against the keys that they name."""


def of_bundle(
    data: bytes,
    keys: Sequence[TrustedKey] | None,
    signers: Signers = None,
    policy: LogPolicy | None = None,
    *,
    authorities: TrustedAuthorities | None = None,
) -> dict[str, Any]:
    """The report on an evidence bundle, whole or redacted; one that can't be read does not hold."""
    try:
        with _uncollected():
            return bundle.judge(data, keys, signers, datetime.now(UTC), policy, whole=False, authorities=authorities)
    except BadEvidence as error:
        return {"ok": False, "violations": [_finding(error.rule, None, error.message)]}


@contextmanager
def _uncollected() -> Generator[None]:
    """Without the collector of circles: a history is many objects and no circle, and it would walk them ever again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def of_call(data: bytes, keys: Sequence[TrustedKey], policy: LogPolicy | None = None) -> dict[str, Any]:
    """What the proof of one call shows; one that can't be read does not hold."""
    try:
        return call_proof.check(data, keys, datetime.now(UTC), policy)
    except BadRecordProof as error:
        return {"ok": False, "violations": [_finding(error.rule, None, error.message)]}


def of_stream(stream: Stream, keys: Sequence[TrustedKey], data: Path, signers: Signers = None) -> dict[str, Any]:
    """The report on an exported stream."""
    link = judged(stream.job_id, list(stream.raw()), keys, data, signers)
    found = list(_beside_the_proofs(stream, sealed=link.report.seal.present))
    return _with(with_chain([link]), found)


def of_log(
    bootstrap: str,
    job_id: str,
    keys: Sequence[TrustedKey],
    data: Path,
    *,
    signers: Signers = None,
    roots: Collection[str] = (),
) -> dict[str, Any]:
    """The report on a job as it lies in Kafka, with its line in the log of seals; no service is asked.

    So are the jobs that it continues. Where `roots` are known, a job begins with the creation that is signed under one
    of them, as it does for the services.

    Raises:
        CommandError: no broker answers, or the log has no such job.
    """
    import asyncio  # noqa: PLC0415  with Kafka's client: half a second for who has a file

    from aetheris.cli.fromlog import read_log  # noqa: PLC0415

    chain: list[Link] = []
    beside: list[dict[str, Any]] = []
    wanted = job_id
    while wanted and len(chain) <= MAX_CONTINUED:
        found = asyncio.run(read_log(bootstrap, wanted, keys, data))
        if not found.records and not found.claims:
            break
        found.records = list(since_birth(found.records, roots))
        link = judged(wanted, found.records, keys, data, signers)
        beside += [one if not chain else {**one, "job_id": wanted} for one in _against_seals(found, link.report.seal)]
        chain.append(link)
        wanted = link.continues
    if not chain:
        raise CommandError(Exit.UNKNOWN_JOB, "unknown_job", f"the log has no job {job_id}")
    return _with({**with_chain(chain), "source": "log"}, beside)


def of_records(records: Sequence[RawRecord], keys: Sequence[TrustedKey], data: Path) -> ProofReport:
    """The report on records; large results are looked up in the store of blobs, and their bytes are checked."""
    return judge(records, keys, _stored(data)).report


def with_openings(report: dict[str, Any], path: Path, openings: Path) -> dict[str, Any]:
    """The report on a file, and whether the values that were opened are those which its records hide.

    Raises:
        CommandError: the openings can't be read.
    """
    shown = _openings_in(openings)
    try:
        found = opened_values(_records_in(path)[0], shown)
    except BadEvidence:
        return report  # it says so already
    wrong = [_finding("opening_differs", None, f"an opening of {c!r} is not what a record hides") for c in found.wrong]
    return _with(report, wrong) | {"opened_values": found.opened}


def with_erasures(
    report: dict[str, Any], path: Path, erasures: Path, keys: Sequence[TrustedKey] | None
) -> dict[str, Any]:
    """The report on a file, and which of the values that its records hide were erased; `keys` None: the file's own.

    Raises:
        CommandError: the lines can't be read.
    """
    try:
        lines = read_erasures(read_bytes(erasures))
    except BadErasures as error:
        raise CommandError(Exit.BAD_INPUT, error.code, f"{erasures}: {error}", file=str(erasures)) from None
    try:
        records, own = _records_in(path)
    except BadEvidence:
        return report  # it says so already
    found = erased_values(records, lines, own if keys is None else keys, datetime.now(UTC))
    said = "is not signed by one of these keys, or is not shown to lie in the log of seals"
    wrong = [_finding("erasure_unproven", None, f"line {at + 1} of the erasures {said}") for at in found.wrong]
    erased = {"erased_values": found.erased, "erasures": [one.to_json() for one in found.erasures]}
    return _with(report, wrong) | erased


def pseudonyms_in(path: Path) -> list[str]:
    """Those of all persons whose values a file's records hide.

    Raises:
        CommandError: it can't be read.
    """
    try:
        records, _ = _records_in(path)
    except BadEvidence as error:
        raise CommandError(Exit.BAD_INPUT, error.rule, error.message, file=str(path)) from None
    said = (k for record in records for _, k in hidden_values_in(record, body_of(record.value)))
    return list(dict.fromkeys(name for k in said for name in k.split(".")))


def _records_in(path: Path) -> tuple[list[RawRecord], Sequence[TrustedKey]]:
    """The records of a bundle or a stream, and the keys that it brings; raises BadEvidence."""
    content = read_bytes(path)
    if content.startswith(b"PK") or path.suffix == ".zip":
        found = bundle.contents(content)
        return [one for job in found.chain for one in job.records], found.keys
    stream = streamfile.parse(content)
    return list(stream.raw()), stream.keys


def _openings_in(path: Path) -> list[Mapping[str, Any]]:
    try:
        return read_openings(read_bytes(path))
    except BadOpenings as error:
        raise CommandError(Exit.BAD_INPUT, error.code, f"{path}: {error}", file=str(path)) from None


def unvouched(report: dict[str, Any]) -> dict[str, Any]:
    """The report on a file that was judged by its own keys, where nobody said that these will do."""
    said = "no key was given: where nothing else is wrong, it is unchanged since sealed by whoever holds these keys"
    found = _finding("no_public_key", None, said)
    return {**report, "ok": False, "violations": [*report["violations"], found]}


def not_whole(report: dict[str, Any]) -> dict[str, Any]:
    """The report on a redacted bundle, where nobody said that this will do."""
    found = _finding("redacted", None, "records are left out of it: --redacted says that this will do")
    return {**report, "ok": False, "violations": [*report["violations"], found]}


def under_roots(report: dict[str, Any], roots: Collection[str]) -> dict[str, Any]:
    """The report, with each of its jobs as a violation whose services sign under none of these roots."""
    beside = (*report.get("continued", ()), *report.get("with", ()))
    named = [report, *beside] if "installation" in report else [report]
    others = [one.get("job_id", "") for one in named if one.get("installation") not in roots]
    said = "its records are not signed under the root of the installation"
    return _with(report, [{**_finding("other_installation", None, said), "job_id": job_id} for job_id in others])


def judged(
    job_id: str, records: Sequence[RawRecord], keys: Sequence[TrustedKey], data: Path, signers: Signers = None
) -> Link:
    """A job by itself; large results are looked up in the store of blobs."""
    with _uncollected():
        found = judge(records, keys, _stored(data), signers)
    return Link(job_id, found.report, found.validity, _stored(data))


def _stored(data: Path) -> LoadBlob:
    from aetheris.cli.large import stored  # noqa: PLC0415  who has a bundle needs no store

    return stored(data)


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


def _against_seals(found: "JobRecords", seal: SealReport) -> Iterator[dict[str, Any]]:
    """What the log of seals says of the job must be borne out, and its seal be in there."""
    for broken in against_claims(found.records, found.claims):
        yield broken.to_json()
    if seal.present and found.records[seal.at].value not in found.seals:
        yield _finding("seal_not_logged", found.records[seal.at], "the log of seals lacks this seal")


def _finding(rule: str, record: RawRecord | None, message: str) -> dict[str, Any]:
    event_id = record.header("ce_id").decode(errors="replace") if record is not None else ""
    return {"rule": rule, "event_id": event_id, "offset": record.offset if record else -1, "message": message}


def read_allowed(path: Path) -> Sequence[TrustedSigner]:
    """A file of allowed signers; raises CommandError."""
    try:
        return read_signers(path.read_bytes())
    except OSError as error:
        rule = error.strerror or "cannot be read"
        raise CommandError(Exit.BAD_INPUT, "unreadable_file", f"{path}: {rule}", file=str(path)) from None
    except BadSigners as error:
        message = f"{path}, line {error.line}: {error}"
        raise CommandError(Exit.BAD_INPUT, "bad_signers", message, file=str(path)) from None


def read_tsa_roots(path: Path) -> "AuthorityRoots":
    """Certificates of time stamp authorities' roots; raises CommandError."""
    try:
        from aetheris.cli.timestamp_authority import AuthorityRoots  # noqa: PLC0415  an extra, which few have
    except ModuleNotFoundError:
        rule = "time stamps need the extra: pip install 'aetheris-cli[timestamps]'"
        raise CommandError(Exit.BAD_INPUT, "extra_missing", rule) from None
    return AuthorityRoots.read(path)


def read_policy_file(path: Path) -> LogPolicy:
    """A policy of logs and witnesses; raises CommandError."""
    try:
        return read_log_policy(read_bytes(path))
    except BadLogPolicy as error:
        raise CommandError(Exit.BAD_INPUT, error.code, f"{path}: {error}", file=str(path)) from None


def trusted_keys(paths: Sequence[Path] | None, data: Path) -> list[TrustedKey]:
    """The keys of files, else of AETHERIS_SEAL_KEYS, else those that the data folder keeps of its own verifier."""
    configured = os.environ.get("AETHERIS_SEAL_KEYS")
    if paths or configured:
        return streamfile.read_trusted(paths or [Path(configured or "")])
    known = [path for name in ("seal.pub", "seal-keys.json") if (path := data / "keys" / name).exists()]
    return list({key.key_id: key for key in streamfile.read_trusted(known)}.values())


def known_roots(data: Path) -> tuple[str, ...]:
    """The key ids of the roots under which jobs are signed in the log that is read here; none where nobody says so.

    AETHERIS_INSTALLATION, else that of what runs on the data folder.

    Raises:
        KeyUnusable: the folder's root can't be read.
    """
    named = tuple(one for part in os.environ.get("AETHERIS_INSTALLATION", "").split(",") if (one := part.strip()))
    root = data / RECORD_KEYS / ROOT
    if named or os.environ.get("AETHERIS_KAFKA") or not root.exists():
        return named
    return (key_id_of(raw_public_key(load_key(root))),)
