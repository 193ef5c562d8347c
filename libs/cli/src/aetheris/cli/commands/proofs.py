"""`aetheris verify | export`: proofs of a job, and its raw stream. A file is checked here, by nobody's leave."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from aetheris.cli import local, streamfile
from aetheris.cli.console import (
    CommandError,
    Exit,
    Json,
    end,
    errors_as_exits,
    fields,
    out,
    print_json,
    progress,
    shown,
)
from aetheris.cli.gateway import connected
from aetheris.cli.inputs import read_bytes
from aetheris.cli.streamfile import Stream
from aetheris.proofs import RawRecord, Report
from aetheris.proofs import verify as judge
from aetheris.protocol.ids import check_name

_SHA256 = re.compile(r"[0-9a-f]{64}")


def verify(
    target: Annotated[str, typer.Argument(metavar="ID|FILE", help="A job's id, or an exported stream.")],
    public_key: Annotated[
        list[Path] | None, typer.Option(help="With FILE: take only seals by this key (PEM), not by those in the file.")
    ] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Check a job: the four proofs, and each violation with its event. A file is checked offline."""
    with errors_as_exits(as_json=as_json):
        report = _of_file(Path(target), public_key, data) if _is_file(target) else _of_job(target, public_key, data)
        if as_json:
            print_json(report)
        else:
            _print(report)
    end(Exit.HOLDS if holds(report) else Exit.FAILED)


def export(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    to: Annotated[Path, typer.Option("--out", help="The file to write; - writes to standard output.")],
    force: Annotated[bool, typer.Option("--force", help="Also a stream that breaks a rule.")] = False,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Write a job's raw stream to a file, for `aetheris verify FILE`; refuses one that breaks a rule."""
    with errors_as_exits(as_json=as_json):
        check_name(job_id, "ID")
        with connected(data) as client:
            stream = streamfile.of_evidence(client.evidence(job_id))
        report = _judge(stream, stream.public_keys, data).to_json()
        if report["violations"] and not force:
            raise _broken(report["violations"][0])
        _write(stream, to)
        if as_json and to != Path("-"):
            print_json({"job_id": job_id, "file": str(to), "records": len(stream.records), "ok": holds(report)})
        else:
            progress("exported", f"{len(stream.records)} records to {to}")


def holds(report: Mapping[str, Any]) -> bool:
    """Whether every proof holds and nothing contradicts it."""
    seal: Mapping[str, Any] = report.get("seal") or {}
    proven = report["tool_invocation_ledger_proof"]["ok"] and report["replay_proof_result"]["ok"]
    return proven and not report.get("violations") and (seal.get("ok", False) or not seal.get("present", False))


def _is_file(target: str) -> bool:
    """A job's id has no slash; where a file has the name of a job, the file is meant."""
    return "/" in target or target.endswith(".jsonl") or Path(target).is_file()


def _of_job(job_id: str, keys: Sequence[Path] | None, data: Path) -> dict[str, Any]:
    if keys:
        rule = "--public-key: only with FILE; export the job first"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--public-key")
    check_name(job_id, "ID")
    with connected(data) as client:
        return client.verify(job_id)


def _of_file(path: Path, keys: Sequence[Path] | None, data: Path) -> dict[str, Any]:
    stream = streamfile.read(path)
    trusted = [read_bytes(key) for key in keys] if keys else stream.public_keys
    report = {"job_id": stream.job_id, **_judge(stream, trusted, data).to_json()}
    found = list(_beside_the_proofs(stream))
    return {**report, "ok": False, "violations": [*found, *report["violations"]]} if found else report


def _beside_the_proofs(stream: Stream) -> Iterator[dict[str, Any]]:
    """What the file's first line says, and its records don't bear out."""
    records = list(stream.raw())
    first, last = (records[0], records[-1]) if records else (None, None)
    if stream.announced != len(records):
        message = f"the file announces {stream.announced} records and has {len(records)}"
        yield _finding("records_missing", last, message)
    if first is not None and first.key != stream.job_id.encode():
        yield _finding("other_job", first, f"the file says job {stream.job_id}, its first record another")


def _finding(rule: str, record: RawRecord | None, message: str) -> dict[str, Any]:
    event_id = record.header("ce_id").decode(errors="replace") if record is not None else ""
    return {"rule": rule, "event_id": event_id, "offset": record.offset if record else -1, "message": message}


def _judge(stream: Stream, pems: Sequence[str | bytes], data: Path) -> Report:
    blobs = data / "blobs"

    def load(sha256: str) -> bytes:
        """A large result, where this machine has it; the proofs check its bytes."""
        if not _SHA256.fullmatch(sha256):
            raise LookupError
        return (blobs / sha256[:2] / sha256).read_bytes()

    return judge(stream.raw(), public_keys=streamfile.public_keys(pems), load_blob=load)


def _broken(violation: Mapping[str, Any]) -> CommandError:
    where = f"event {violation['event_id']} at offset {violation['offset']}"
    message = f"{violation['rule']}: {where}: {violation['message']}. --force exports it as it is."
    return CommandError(Exit.FAILED, "stream_broken", message, **violation)


def _write(stream: Stream, to: Path) -> None:
    text = "".join(f"{line}\n" for line in stream.lines())
    if to == Path("-"):
        typer.echo(text, nl=False)
        return
    try:
        to.write_text(text)
    except OSError as error:
        rule = error.strerror or "cannot be written"
        raise CommandError(Exit.BAD_INPUT, "unwritable_file", f"{to}: {rule}", file=str(to)) from None


def _print(report: Mapping[str, Any]) -> None:
    ledger, replay = report["tool_invocation_ledger_proof"], report["replay_proof_result"]
    pending = ", ".join(ledger["pending_idempotency_keys"])
    fields(
        (
            ("job", report.get("job_id")),
            ("execution", report["execution_hash"]),
            ("event chain", report["event_chain_root_hash"]),
            ("ledger", "holds" if ledger["ok"] else f"does not hold; pending: {pending or 'none'}"),
            ("replay", "holds" if replay["ok"] else f"does not hold: {replay['error']}"),
            ("outcome", report.get("outcome_hash")),
            ("events", report.get("event_count")),
            ("seal", _seal(report.get("seal") or {})),
        )
    )
    for violation in report.get("violations", ()):
        _print_finding("violation", violation)
    for note in report.get("notes", ()):
        _print_finding("note", note)
    verdict = Text("holds", "green") if holds(report) else Text("does not hold", "red")
    out.print(verdict)


def _seal(seal: Mapping[str, Any]) -> str:
    if not seal.get("present"):
        return "none yet: nothing says that no record is missing at the end"
    return f"{'holds' if seal.get('ok') else 'does not hold'}, over {seal.get('event_count')} records"


def _print_finding(kind: str, found: Mapping[str, Any]) -> None:
    where = f"event {shown(found['event_id'])} at offset {found['offset']}"
    out.print(f"{kind:<14} {shown(found['rule'])}: {where}: {shown(found['message'])}")
