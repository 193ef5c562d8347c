"""`aetheris export`: a job's evidence as a file, checked here before it is written."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import judgement, local, streamfile
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, progress, shown
from aetheris.cli.fresh_cosignatures import witnessed
from aetheris.cli.gateway import connected
from aetheris.cli.job_ids import whole_id
from aetheris.cli.proof_report import holds
from aetheris.cli.streamfile import Stream
from aetheris.proofs.evidence import violations_at_first
from aetheris.protocol.base.ids import check_name


def export(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    *,
    to: Annotated[
        Path | None, typer.Option("--out", help="The file to write, default ID.zip; - is standard output.")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Only the raw stream; also of a job that still runs.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="With --stream: also one that breaks a rule.")] = False,
    audience: Annotated[
        str | None, typer.Option("--for", metavar="auditor", help="Leave out payloads that no rule needs.")
    ] = None,
    redact: Annotated[
        str,
        typer.Option(metavar="FIELDS", help="Leave out: arguments, results, reasons, types of records; with commas."),
    ] = "",
    policy: Annotated[
        Path | None,
        typer.Option(
            envvar="AETHERIS_SEAL_POLICY", help="Whose witnesses must have seen its seal: they are asked now."
        ),
    ] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Write a job's evidence to a file, for `aetheris verify FILE`; refuses what breaks a rule."""
    with errors_as_exits(as_json=as_json):
        check_name(job_id, "ID")
        if force and not stream:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--force: only with --stream", field="--force")
        names = [name for part in redact.split(",") if (name := part.strip())]
        if stream and (audience is not None or redact):
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--for, --redact: only of a bundle", field="--redact")
        if redact and not names:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--redact: says nothing", field="--redact")
        with connected(data) as client:
            job_id = whole_id(client, job_id)
        seen = _witnessed(job_id, policy, data) if policy is not None and not stream else {}
        if stream:
            content, ok = _stream(job_id, data, force=force)
        elif audience is not None or names:
            content, ok = _redacted(job_id, data, audience, names)
        else:
            content, ok = _bundle(job_id, data)
        file = to if to is not None else Path(f"{job_id}.{'jsonl' if stream else 'zip'}")
        _write(content, file)
        if as_json and file != Path("-"):
            print_json({"job_id": job_id, "file": str(file), "bytes": len(content), "ok": ok, **seen})
        else:
            progress("exported", f"{len(content)} bytes to {file}")


def _bundle(job_id: str, data: Path) -> tuple[bytes, bool]:
    """What the verifier signed, checked here before it is written."""
    with connected(data) as client:
        content = client.evidence(job_id)
    report = judgement.of_bundle(content, None)
    for broken in violations_at_first(report):
        raise _broken(broken)
    return content, holds(report)


def _witnessed(job_id: str, policy: Path, data: Path) -> dict[str, Any]:
    """{witnessed}: who has seen its seal in the log; said, and no reason not to export."""
    found = witnessed(job_id, judgement.read_policy_file(policy), data)
    for name, why in found["missing"].items():
        progress("not seen", f"by {name}: {shown(why)}")
    if found["by"]:
        progress("seen", f"by {', '.join(found['by'])}, at {found['at']}")
    else:
        progress("unwitnessed", "too few witnesses have seen its seal: it does not hold under the policy yet")
    return {"witnessed": found}


def _redacted(job_id: str, data: Path, audience: str | None, names: Sequence[str]) -> tuple[bytes, bool]:
    """The same without what is left out: written only if it is."""
    with connected(data) as client:
        content = client.evidence(job_id, audience=audience, redact=names)
    report = judgement.of_bundle(content, None)
    for broken in report["violations"]:
        raise _broken(broken)
    left_out = report.get("redacted")
    if left_out is None or (left_out["for"], left_out["names"]) != (audience, sorted({*names})):
        raise CommandError(Exit.FAILED, "not_redacted", "the verifier's bundle is another than was asked for")
    progress("left out", f"{left_out['records']} of {report['event_count']} records, and large results")
    return content, report["ok"]


def _stream(job_id: str, data: Path, *, force: bool) -> tuple[bytes, bool]:
    with connected(data) as client:
        stream = streamfile.of_answer(client.raw_stream(job_id))
    report = judgement.of_records(list(stream.raw()), stream.keys, data).to_json()
    if report["violations"] and not force:
        raise _broken(report["violations"][0])
    return _lines(stream), holds(report)


def _lines(stream: Stream) -> bytes:
    return "".join(f"{line}\n" for line in stream.lines()).encode()


def _broken(violation: Mapping[str, Any]) -> CommandError:
    where = f"event {violation['event_id']} at offset {violation['offset']}"
    message = f"{violation['rule']}: {where}: {violation['message']}. --stream --force exports it as it is."
    return CommandError(Exit.FAILED, "stream_broken", message, **violation)


def _write(content: bytes, to: Path) -> None:
    try:
        if to == Path("-"):
            sys.stdout.buffer.write(content)
        else:
            to.write_bytes(content)
    except OSError as error:
        rule = error.strerror or "cannot be written"
        raise CommandError(Exit.BAD_INPUT, "unwritable_file", f"{to}: {rule}", file=str(to)) from None
