"""`aetheris amendments`: was a job amended since its bundle was exported (docs/evidence.md#amendments)?"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import judgement, later_amendments, local
from aetheris.cli.console import CommandError, Exit, Json, end, errors_as_exits, fields, out, print_json, shown
from aetheris.cli.gateway import connected
from aetheris.cli.inputs import read_bytes
from aetheris.cli.later_amendments import KeptBundle, ShownLines
from aetheris.proofs.evidence import LogCheck


def amendments(
    kept: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle that was exported before.")],
    *,
    newer: Annotated[Path | None, typer.Option(help="Compare with this bundle of the job; asks nobody.")] = None,
    lines: Annotated[
        Path | None, typer.Option(help="Compare with these lines of the log of seals; asks nobody.")
    ] = None,
    from_log: Annotated[bool, typer.Option("--from-log", help="Read all lines from Kafka; ask no service.")] = False,
    tiles: Annotated[
        str | None,
        typer.Option(metavar="URL|FOLDER", help="Look up there (`seals tiles`) whether what is shown is in the log."),
    ] = None,
    public_key: Annotated[
        list[Path] | None, typer.Option(help="PEM, or a file of keys; default: AETHERIS_SEAL_KEYS, or our own.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Which logs count, and how many witnesses must have seen them (tlog-policy).")
    ] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Name each amendment of a job's seal since its bundle was exported; 1 if there is one, or if anything lies.

    Without --newer, --lines and --from-log the gateway is asked for the job's bundle as it is now.
    """
    with errors_as_exits(as_json=as_json):
        given = {"--newer": newer, "--lines": lines, "--from-log": from_log or None}
        named = [option for option, value in given.items() if value is not None]
        if len(named) > 1:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", f"{named[1]}: not with {named[0]}", field=named[1])
        keys = judgement.trusted_keys(public_key, data)
        if not keys:
            rule = "without a public key no seal says anything: --public-key"
            raise CommandError(Exit.BAD_INPUT, "no_public_key", rule)
        by = LogCheck(keys, datetime.now(UTC), None if policy is None else judgement.read_policy_file(policy))
        found = KeptBundle.read(kept, by)
        said = _shown(found, newer, lines, data, from_log=from_log)
        report = found.against(said, None if tiles is None else later_amendments.published_entries(tiles, by))
        if as_json:
            print_json(report)
        else:
            _print(report)
        end(Exit.HOLDS if report["ok"] else Exit.FAILED)


def _shown(kept: KeptBundle, newer: Path | None, lines: Path | None, data: Path, *, from_log: bool) -> ShownLines:
    if newer is not None:
        return later_amendments.newer_bundle(read_bytes(newer), kept, "bundle")
    if lines is not None:
        return later_amendments.lines_file(lines, kept)
    if from_log:
        return later_amendments.lines_of_log(local.kafka(data))
    with connected(data) as client:
        return later_amendments.newer_bundle(client.evidence(kept.job_id), kept, "gateway")


def _print(report: Mapping[str, Any]) -> None:
    fields((("job", report["job_id"]), ("bundle", f"covers {report['event_count']} records")))
    for one in report["amendments"]:
        leaf = "named by a line of the log" if one["leaf"] is None else f"leaf {one['leaf']} of the log"
        text = f"at {one['sealed_at']}, over {one['event_count']} records; {leaf}; key {one['key_id']}"
        fields((("amended", shown(text)),))
        for fact in one["facts"] or ():
            said = " ".join(part for part in (fact["type"], fact["node_id"], fact["outcome"]) if part)
            fields((("  fact", shown(f"{said}: event {fact['event_id']} at offset {fact['offset']}")),))
    for one in report["shows"] or ():
        fields((("  shows", shown(f"{one['rule']}: event {one['event_id']}: {one['message']}")),))
    if report["published"] is not None:
        text = f"{report['published']['leaves']} leaves; of {report['published']['not_shown']} no line was shown"
        fields((("published", text),))
    if report["unsigned"]:
        fields((("unsigned", f"{report['unsigned']} lines name the job, and say nothing"),))
    for broken in report["violations"]:
        out.print(f"violation      {broken['rule']}: {shown(broken['message'])}")
    out.print(_verdict(report))


def _verdict(report: Mapping[str, Any]) -> str:
    if report["violations"]:
        return "does not hold"
    return "amended since: export it again" if report["amendments"] else "not amended, by what was shown"
