"""`aetheris archive delete`: let Kafka go of what lies in the archive (docs/archive.md)."""

import asyncio

import typer

from aetheris.cli import archive_deletion, judgement, local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, table
from aetheris.runtime.log.interface import LogUnreachable

archive = typer.Typer(
    name="archive", no_args_is_help=True, help="Sealed jobs that lie as bundles in the store of blobs."
)


@archive.callback()
def _group() -> None:
    """More may come."""


@archive.command("delete")
def delete(
    *,
    dry_run: bool = typer.Option(False, "--dry-run", help="Only say what would be deleted."),
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Delete from jobs.events, for good, what lies below every mark and in bundles that hold; needs no service."""
    with errors_as_exits(as_json=as_json):
        keys = judgement.trusted_keys(None, data)
        if not keys:
            message = "no key is known that bundles may be signed by: set AETHERIS_SEAL_KEYS"
            raise CommandError(Exit.BAD_INPUT, "no_public_key", message)
        try:
            found = asyncio.run(archive_deletion.delete(local.kafka(data), data, keys, dry=dry_run))
        except LogUnreachable as error:
            raise CommandError(Exit.UNREACHABLE, error.code, str(error)) from None
        if as_json:
            print_json({"deleted": not dry_run, "partitions": [one.to_json() for one in found]})
            return
        columns = ("partition", "may go from" if dry_run else "gone from", "up to", "of", "because")
        table(columns, [(one.partition, one.begin, one.until, one.end, one.held_by) for one in found])
