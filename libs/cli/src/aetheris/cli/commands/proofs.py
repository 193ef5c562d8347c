"""`aetheris verify | export`: proofs of a job, and the evidence of it. A file is checked here, by nobody's leave."""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from aetheris.cli import judgement, local, streamfile
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
from aetheris.cli.fresh_cosignatures import witnessed
from aetheris.cli.gateway import connected
from aetheris.cli.inputs import read_bytes
from aetheris.cli.job_ids import of_job, whole_id
from aetheris.cli.streamfile import Stream
from aetheris.proofs import call_proof
from aetheris.proofs.evidence import violations_at_first
from aetheris.proofs.timestamps import TrustedAuthorities
from aetheris.proofs.witnesses import LogPolicy
from aetheris.protocol.base.ids import check_name

_ZIP = b"PK"
MOST_SHOWN = 20
"""Records behind a seal that are printed; with --json, all."""


def verify(
    target: Annotated[
        str, typer.Argument(metavar="ID|FILE", help="A job's id, or an exported bundle, stream or call.")
    ],
    *,
    public_key: Annotated[
        list[Path] | None,
        typer.Option(
            help="Take only seals by this key (PEM) or these (file of keys); else by AETHERIS_SEAL_KEYS, or our own."
        ),
    ] = None,
    self_signed: Annotated[
        bool,
        typer.Option("--self-signed", help="Take the keys that a file brings: that says not who sealed it."),
    ] = False,
    redacted: Annotated[
        bool, typer.Option("--redacted", help="Take a bundle from which records are left out, as far as it shows.")
    ] = False,
    signers: Annotated[
        Path | None,
        typer.Option(help="Whose keys sign for whom (allowed_signers), where a rule asks approvers to sign."),
    ] = None,
    from_log: Annotated[bool, typer.Option("--from-log", help="Read Kafka here; ask no service.")] = False,
    installation: Annotated[
        str | None,
        typer.Option(help="The key id of the root by which its services must sign; else, from the log, our own."),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="Which logs count, and how many witnesses must have seen them (tlog-policy); for a bundle."),
    ] = None,
    tsa_roots: Annotated[
        Path | None,
        typer.Option(help="Roots (PEM) of time stamp authorities, one of which must have stamped a bundle's log."),
    ] = None,
    openings: Annotated[
        Path | None,
        typer.Option(help="Values that a bundle's records hide, of `aetheris openings`: are they what was hidden?"),
    ] = None,
    erasures: Annotated[
        Path | None,
        typer.Option(help="What the log of seals says of erased persons, of `aetheris seals erasures`; with FILE."),
    ] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Check a job: the four proofs, and each violation with its event. A file is checked offline."""
    with errors_as_exits(as_json=as_json):
        roots = judgement.known_roots(data) if from_log and installation is None else ()
        roots = roots if installation is None else (installation,)
        if self_signed and (public_key or from_log or not _is_file(target)):
            rule = "--self-signed: only with FILE, and without --public-key"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--self-signed")
        if policy is not None and (from_log or not _is_file(target)):
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--policy: only with a bundle's FILE", field="--policy")
        if tsa_roots is not None and (from_log or not _is_file(target)):
            rule = "--tsa-roots: only with a bundle's FILE"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--tsa-roots")
        if openings is not None and (from_log or not _is_file(target)):
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--openings: only with FILE", field="--openings")
        if erasures is not None and (from_log or not _is_file(target)):
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--erasures: only with FILE", field="--erasures")
        given = GivenKeys(
            public_key,
            self_signed,
            None if policy is None else judgement.read_policy_file(policy),
            None if tsa_roots is None else judgement.read_tsa_roots(tsa_roots),
        )
        report = _report(target, given, data, signers, roots=roots if from_log else None)
        if redacted and "redacted" not in report:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--redacted: nothing is left out of it", field="--redacted")
        if "redacted" in report and not redacted:
            report = judgement.not_whole(report)
        if roots:
            report = judgement.under_roots(report, roots)
        if "redacted" in report or "not_shown" in report:
            _check_asked_of_part(report, {"--openings": openings, "--erasures": erasures, "--signers": signers})
        if openings is not None:
            report = judgement.with_openings(report, Path(target), openings)
        if erasures is not None:
            known = judgement.trusted_keys(public_key, data) if not self_signed else []
            report = judgement.with_erasures(report, Path(target), erasures, known or None)
        if as_json:
            print_json(report)
        elif "redacted" in report:
            _print_redacted(report)
        elif "not_shown" in report:
            _print_call(report)
        else:
            _print(report)
    end(Exit.HOLDS if holds(report) else Exit.FAILED)


def _check_asked_of_part(report: Mapping[str, Any], asked: Mapping[str, Path | None]) -> None:
    """Refuse what is not judged of a redacted bundle, or of one call; signatures are, where the rules are."""
    judged = {"--signers"} if report.get("redacted", {}).get("rules_checked") else set[str]()
    for option, file in asked.items():
        if file is not None and option not in judged:
            rule = f"{option}: is not judged of what is not shown whole"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field=option)


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


def holds(report: Mapping[str, Any]) -> bool:
    """Whether every proof holds and nothing contradicts it; of a call, or a redacted bundle, what is shown."""
    if "not_shown" in report or "redacted" in report:
        return bool(report["ok"])
    if "tool_invocation_ledger_proof" not in report:
        return False
    seal: Mapping[str, Any] = report.get("seal") or {}
    proven = report["tool_invocation_ledger_proof"]["ok"] and report["replay_proof_result"]["ok"]
    return proven and not report.get("violations") and (seal.get("ok", False) or not seal.get("present", False))


@dataclass(frozen=True)
class GivenKeys:
    """By whose keys a file is judged: those of these files, or its own where that is enough."""

    files: Sequence[Path] | None
    own: bool
    policy: LogPolicy | None
    """Which logs and witnesses count, beside them."""
    authorities: TrustedAuthorities | None
    """Whose time stamps count, beside them."""


def _report(
    target: str, keys: GivenKeys, data: Path, signers: Path | None, *, roots: Collection[str] | None
) -> dict[str, Any]:
    """`roots`: those of the installation whose log is read here, without any service; None where none is read."""
    allowed = judgement.read_allowed(signers) if signers is not None else None
    if roots is not None:
        check_name(target, "ID")
        trusted = judgement.trusted_keys(keys.files, data)
        return judgement.of_log(local.kafka(data), target, trusted, data, signers=allowed, roots=roots)
    if _is_file(target):
        return _of_file(Path(target), keys, data, allowed)
    for option, given in (("--public-key", keys.files), ("--signers", signers)):
        if given:
            rule = f"{option}: only with FILE or --from-log; the verifier has its own keys, and knows no signers"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field=option)
    with of_job(target, data) as (client, job):
        return client.verify(job)


def _is_file(target: str) -> bool:
    """A job's id has no slash; where a file has the name of a job, the file is meant."""
    return "/" in target or target.endswith((".jsonl", ".zip")) or Path(target).is_file()


def _of_file(path: Path, keys: GivenKeys, data: Path, signers: judgement.Signers) -> dict[str, Any]:
    content = read_bytes(path)
    known = [] if keys.own else judgement.trusted_keys(keys.files, data)
    trusted = known if known or keys.files else None
    if content.startswith(_ZIP) or path.suffix == ".zip":
        report = judgement.of_bundle(content, trusted, signers, keys.policy, authorities=keys.authorities)
    elif keys.authorities is not None:
        raise CommandError(Exit.BAD_INPUT, "bad_usage", "--tsa-roots: only with a bundle's FILE", field="--tsa-roots")
    elif call_proof.is_one(content):
        if keys.own:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--self-signed: a call's proof brings no key")
        return judgement.of_call(content, known, keys.policy)
    elif keys.policy is not None:
        raise CommandError(Exit.BAD_INPUT, "bad_usage", "--policy: a stream is in no log", field="--policy")
    else:
        stream = streamfile.parse(content)
        report = judgement.of_stream(stream, stream.keys if trusted is None else trusted, data, signers)
    return judgement.unvouched(report) if trusted is None and not keys.own else report


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


def _print(report: Mapping[str, Any]) -> None:
    if "tool_invocation_ledger_proof" in report:
        _print_proofs(report)
    for violation in report.get("violations", ()):
        _print_finding("violation", violation)
    for record in report.get("unproven", ()):
        _print_finding("does not count", record)
    for note in report.get("notes", ()):
        _print_finding("note", note)
    amended = report.get("amended")
    if amended:
        first = f"sealed at first: {amended['event_count']} records, which {'hold' if amended['ok'] else 'do not hold'}"
        text = f"{amended['amendments']} times; {first}; what came later breaks {len(amended['shows'])} rules"
        fields((("amended", text),))
    if report.get("hidden_values"):
        text = f"{report['hidden_values']} values, {report.get('opened_values', 0)} of them opened to this check"
        fields((("hidden", text),))
    for one in report.get("erasures", ()):
        text = f"{one['values']} values, under {one['pseudonym']}, at {one['erased_at']}; logged at {one['logged_at']}"
        fields((("erased", shown(text)),))
    after_seal = report.get("after_seal", ())
    if after_seal:
        fields((("after the seal", f"{len(after_seal)} records, not part of it"),))
    for record in after_seal[:MOST_SHOWN]:
        _print_finding("after the seal", record)
    for again in report.get("reopened_by_hand", ()):
        evidence = json.dumps(again["evidence"], ensure_ascii=False)
        fields((("tried again", f"{again['node_id']}, by {again['by']} at {again['said_at']}: {evidence}"),))
    for word in report.get("glass_broken", ()):
        text = f"{word['what']} {word['node_id'] or ''}, by {word['by']} at {word['said_at']}, alone, in an emergency"
        fields((("glass broken", shown(text)),))
    for word in report.get("signed", ()):
        whose = {None: "whose it is, --signers says", True: "his, as the signers say", False: "not his"}[word["known"]]
        text = f"{word['what']} {word['node_id']}, by {word['by']} at {word['said_at']}, key {word['key']}: {whose}"
        fields((("signed", shown(text)),))
    for gone in report.get("ended_by_hand", ()):
        evidence = json.dumps(gone["evidence"], ensure_ascii=False)
        text = f"{gone['worker_id']}, by {gone['by']} at {gone['said_at']}: {evidence}"
        fields((("said to have ended", text),))
    for word in report.get("settled_by_hand", ()):
        text = f"{word['node_id']} of job {word['of']}: {word['verdict']}, says {word['by']}: {word['evidence']}"
        fields((("by hand", shown(text)),))
    if [one["rule"] for one in report.get("violations", ())] == ["no_public_key"]:
        out.print(Text("unchanged since sealed by whoever holds these keys", "yellow"))
    else:
        out.print(Text("holds", "green") if holds(report) else Text("does not hold", "red"))


def _print_redacted(report: Mapping[str, Any]) -> None:
    for one in (report, *report.get("continued", ())):
        redacted = one["redacted"]
        types = ", ".join(f"{count} {shown(kind)}" for kind, count in redacted["types"].items())
        rules = "checked, but for what large results say" if redacted["rules_checked"] else "not checked"
        fields(
            (
                ("job", one["job_id"]),
                ("event tree", one["event_tree_root_hash"]),
                ("events", one.get("event_count")),
                ("signed under", one["installation"] or "no root that is shown"),
                ("left out", f"{redacted['records']} records: {types or 'none'}; large results"),
                ("rules", rules),
            )
        )
    for violation in report["violations"]:
        _print_finding("violation", violation)
    for record in report["unproven"]:
        _print_finding("does not count", record)
    fields((("trusted keys", ", ".join(report["trusted"])),))
    out.print(Text("holds, as far as it is shown", "green") if report["ok"] else Text("does not hold", "red"))


def _print_call(report: Mapping[str, Any]) -> None:
    beside = ("ok", "violations", "trusted", "not_shown", "hidden_values", "opened_values")
    fields([(name, value) for name, value in report.items() if name not in beside])
    hidden = report["hidden_values"]
    fields((("hidden", f"{hidden} values, {report['opened_values']} of them opened" if hidden else None),))
    fields((("not shown", ", ".join(report["not_shown"])), ("trusted keys", ", ".join(report["trusted"]))))
    out.print(Text("holds: this call, as its verifier signed it; what else the job did, its bundle shows", "green"))


def _print_proofs(report: Mapping[str, Any]) -> None:
    ledger, replay = report["tool_invocation_ledger_proof"], report["replay_proof_result"]
    pending = ", ".join(ledger["pending_idempotency_keys"])
    fields(
        (
            ("job", report.get("job_id")),
            ("state", "ended" if report.get("ended") else "still runs: what is open is pending"),
            ("execution", report["execution_hash"]),
            ("event chain", report["event_chain_root_hash"]),
            ("event tree", report["event_tree_root_hash"]),
            ("ledger", "holds" if ledger["ok"] else f"does not hold; pending: {pending or 'none'}"),
            ("replay", "holds" if replay["ok"] else f"does not hold: {replay['error']}"),
            ("outcome", report.get("outcome_hash")),
            ("events", report.get("event_count")),
            ("seal", _seal(report.get("seal") or {})),
            ("signed under", report.get("installation") or "no root: anybody who may write there wrote it"),
            *(("continues", f"job {one['job_id']}") for one in report.get("continued", ())),
            ("trusted keys", ", ".join(report.get("trusted", ()))),
        )
    )


def _seal(seal: Mapping[str, Any]) -> str:
    if not seal.get("present"):
        return "none yet: nothing says that no record is missing at the end"
    return f"{'holds' if seal.get('ok') else 'does not hold'}, over {seal.get('event_count')} records"


def _print_finding(kind: str, found: Mapping[str, Any]) -> None:
    where = f"event {shown(found['event_id'])} at offset {found['offset']}: " if found["offset"] >= 0 else ""
    where = f"job {shown(found['job_id'])}: {where}" if "job_id" in found else where
    out.print(f"{kind:<14} {shown(found['rule'])}: {where}{shown(found['message'])}")
