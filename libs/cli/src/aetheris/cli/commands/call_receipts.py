"""`aetheris receipt`: one call by itself, with what is disclosed of it, for who may not see the job."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import judgement, keyfiles, local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, progress
from aetheris.cli.gateway import connected
from aetheris.cli.job_ids import whole_id
from aetheris.proofs import call_proof
from aetheris.proofs.sealed_leaves import BadRecordProof
from aetheris.sdk.client import Client


def receipt(
    job_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Of which job; else it is looked for.")] = None,
    *,
    external_id: Annotated[str, typer.Option(help="What the external system calls it, such as re_123.")],
    disclose: Annotated[
        str, typer.Option(metavar="FIELDS", help="tool, version, result, …, arguments by their names; with commas.")
    ] = "",
    step: Annotated[str | None, typer.Option(help="Of which node, where several have that external id.")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="The file to write; else standard output.")] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Write the proof of one call, for `aetheris verify FILE`: with these fields and arguments alone."""
    with errors_as_exits(as_json=as_json or to is None):
        named = tuple(dict.fromkeys(name for part in disclose.split(",") if (name := part.strip())))
        with connected(data, who) as client:
            job = whole_id(client, job_id) if job_id is not None else _job_of(client, external_id)
            proof = client.call_proof(job, external_id, disclose=named, step=step)
            try:
                proof = _opened(client, job, proof, named)
                found = _checked(proof, data)
            except BadRecordProof as error:
                raise CommandError(Exit.FAILED, error.rule, error.message) from None
        if to is None:
            typer.echo(proof.decode(), nl=False)
            return
        keyfiles.put(to, proof, 0o600)
        if as_json:
            print_json({"job_id": job, "file": str(to), "bytes": len(proof), "shows": found})
        else:
            progress("disclosed", f"{external_id}: {len(proof)} bytes to {to}")


def _job_of(client: Client, external_id: str) -> str:
    """The job that had this effect."""
    rows = [tree["facts"] for tree in client.why(external_id=external_id)["effects"]]
    jobs = sorted({row["job_id"] for row in rows if row.get("external_id") == external_id})
    if not jobs:
        raise CommandError(Exit.FAILED, "unknown_call", f"nothing that was done is called {external_id}")
    if len(jobs) > 1:
        raise CommandError(Exit.BAD_INPUT, "several_calls", f"jobs {', '.join(jobs)}: say which, by its ID")
    return jobs[0]


def _opened(client: Client, job_id: str, proof: bytes, named: Sequence[str]) -> bytes:
    """With the hidden values that are to be disclosed, opened, and no others.

    Raises:
        CommandError: one can't be.
        BadRecordProof.
    """
    wanted = call_proof.hidden_among(proof, named)
    if not wanted:
        return proof
    opened, cursor = dict[str, Any](), ""
    while cursor is not None and not opened.keys() >= {*wanted}:
        page = client.openings(job_id, cursor=cursor or None)
        opened |= {one["c"]: one for one in page["openings"]}
        cursor = page.get("cursor")
    if any(c not in opened for c in wanted):
        rule = "a value that is to be disclosed is hidden, and can't be opened: erased, or its store is away"
        raise CommandError(Exit.FAILED, "not_opened", rule)
    return call_proof.with_openings(proof, [opened[c] for c in wanted])


def _checked(proof: bytes, data: Path) -> dict[str, Any]:
    """What it shows, by the keys that are known here; nothing where none is.

    Raises:
        BadRecordProof: it does not hold.
    """
    keys = judgement.trusted_keys(None, data)
    return call_proof.check(proof, keys, datetime.now(UTC)) if keys else {}
