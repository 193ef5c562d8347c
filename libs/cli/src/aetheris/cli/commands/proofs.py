"""`aetheris verify`: proofs of a job. A file is checked here, by nobody's leave."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import jobs_beside, judgement, local, streamfile
from aetheris.cli.console import (
    CommandError,
    Exit,
    Json,
    end,
    errors_as_exits,
    print_json,
)
from aetheris.cli.inputs import read_bytes
from aetheris.cli.proof_report import holds, print_report
from aetheris.proofs import call_proof
from aetheris.proofs.timestamps import TrustedAuthorities
from aetheris.proofs.witnesses import LogPolicy
from aetheris.protocol.base.ids import check_name

_ZIP = b"PK"


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
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            help="A bundle or stream of a job that it has begun, or that began it; repeat: do they say the same?",
        ),
    ] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Check a job: the four proofs, and each violation with its event. A file is checked offline."""
    with errors_as_exits(as_json=as_json):
        roots = judgement.known_roots(data) if from_log and installation is None else ()
        roots = roots if installation is None else (installation,)
        _check_usage(
            from_log or not _is_file(target),
            {
                "--self-signed": self_signed,
                "--policy": policy,
                "--tsa-roots": tsa_roots,
                "--openings": openings,
                "--erasures": erasures,
                "--with": beside,
            },
        )
        if self_signed and public_key:
            rule = "--self-signed: without --public-key, which says whose keys count"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--self-signed")
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
        if beside:
            report = _with_jobs(report, Path(target), beside, given, data)
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
        else:
            print_report(report)
    end(Exit.HOLDS if holds(report) else Exit.FAILED)


def _check_usage(is_online: bool, of_file: Mapping[str, object]) -> None:
    """Refuse what is asked of a file where none is given."""
    for option, given in of_file.items():
        if is_online and given:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", f"{option}: only with FILE", field=option)


def _check_asked_of_part(report: Mapping[str, Any], asked: Mapping[str, Path | None]) -> None:
    """Refuse what is not judged of a redacted bundle, or of one call; signatures are, where the rules are."""
    judged = {"--signers"} if report.get("redacted", {}).get("rules_checked") else set[str]()
    for option, file in asked.items():
        if file is not None and option not in judged:
            rule = f"{option}: is not judged of what is not shown whole"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field=option)


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
    from aetheris.cli.job_ids import of_job  # noqa: PLC0415  a client of gateways: half of the time that a file takes

    with of_job(target, data) as (client, job):
        return client.verify(job)


def _with_jobs(
    report: dict[str, Any], path: Path, beside: Sequence[Path], keys: GivenKeys, data: Path
) -> dict[str, Any]:
    """The report, and what is wrong between the jobs of all these files."""
    if "redacted" in report or "not_shown" in report:
        rule = "--with: what it says of other jobs is not shown whole"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--with")
    known = [] if keys.own else judgement.trusted_keys(keys.files, data)
    trusted = known if known or keys.files else None
    judged = partial(_of_file, keys=keys, data=data, signers=None)
    return jobs_beside.with_jobs(report, path, beside, judged, keys=trusted, data=data)


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
