"""`aetheris backup` and `aetheris restore` (docs/backup.md)."""

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.backup import files
from aetheris.cli.backup import take as taking
from aetheris.cli.backup.examined import examine
from aetheris.cli.backup.fence import RestoreOrder
from aetheris.cli.backup.restore import Restored, Restorer
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, out, print_json, progress, table
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.plan import RECORD_KEYS, State
from aetheris.protocol.base.writers import Party
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import load_service_key
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer
from aetheris.runtime.log.interface import LogError, LogUnreachable
from aetheris.runtime.process.settings import RuntimeSettings, load

_LONGEST_WORD = 1_000


def backup(
    to: Annotated[Path, typer.Argument(metavar="TO", help="A new folder.")],
    *,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Copy the log, and the blobs of the data folder, while everything runs; no key is copied."""
    with errors_as_exits(as_json=as_json):
        try:
            taken = asyncio.run(taking.take(local.kafka(data), data, to, progress))
        except LogUnreachable as error:
            raise CommandError(Exit.UNREACHABLE, error.code, str(error)) from None
        said = {
            "taken_at": taken.manifest.taken_at,
            "sha256": taken.sha256,
            "records": taken.records,
            "blobs": taken.manifest.blobs,
            "seals": taken.manifest.seals.size,
            "corrupt_blobs": list(taken.corrupt_blobs),
        }
        if as_json:
            print_json(said)
        else:
            progress("backup", f"of {said['taken_at']}: {taken.records} records, {said['seals']} lines of seals")
            progress("sha256", f"{taken.sha256}  (of {files.MANIFEST}: keep it elsewhere, `restore --expect` takes it)")
            progress("not in it", "keys, tokens, files of policy and tools, keys of personal values: docs/backup.md")
        if taken.corrupt_blobs:
            names = ", ".join(taken.corrupt_blobs[:3])
            message = f"the backup is whole, but {len(taken.corrupt_blobs)} blobs were corrupt before: {names}"
            raise CommandError(Exit.FAILED, "blob_corrupt", message)


def restore(
    source: Annotated[Path, typer.Argument(metavar="FROM", help="A folder that `aetheris backup` has written.")],
    *,
    by: Annotated[str | None, typer.Option("--by", help="Your name: it stands in all that is held.")] = None,
    ended: Annotated[
        str | None,
        typer.Option("--old-ended", metavar="TEXT", help="By what you know that nothing of the old one acts any more."),
    ] = None,
    tenants: Annotated[
        list[str] | None,
        typer.Option("--tenant", help="Of which the backup may not know yet: it is frozen too. Again for more."),
    ] = None,
    expect: Annotated[
        str | None, typer.Option("--expect", help="SHA-256 of the manifest, as `backup` said it.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Look at the backup, and touch nothing.")] = False,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Lay a backup into an empty installation: all that was open is paused, and every tenant frozen."""
    with errors_as_exits(as_json=as_json):
        manifest, sha256 = files.load(source)
        if expect is not None and sha256 != expect.strip().lower():
            raise CommandError(
                Exit.FAILED, "other_backup", f"{source} is not the backup that you expect: its manifest has {sha256}"
            )
        keys = UNSIGNED if check else _keys(data, manifest.roots)
        found = examine(source, keys.roots, progress)
        if check:
            said = {"taken_at": manifest.taken_at, "sha256": sha256, "whole": True}
            if as_json:
                print_json(said)
            else:
                progress("whole", f"{source}, taken at {manifest.taken_at}")
            return
        word = _word(by, ended, manifest.taken_at)
        with _servers(data) as (kafka, redis):
            try:
                restorer = Restorer(kafka, redis, data.resolve(), keys)
                restored = asyncio.run(restorer.restore(found, word, tenants or [], progress))
            except LogError as error:
                unreachable = isinstance(error, LogUnreachable)
                raise CommandError(Exit.UNREACHABLE if unreachable else Exit.FAILED, error.code, str(error)) from None
        _show(restored, manifest.taken_at, as_json=as_json)


def _word(by: str | None, ended: str | None, taken_at: str) -> RestoreOrder:
    for name, value in (("--by", by), ("--old-ended", ended)):
        if not value or len(value) > _LONGEST_WORD:
            what = "your name" if name == "--by" else "by what you know that nothing of the old installation still acts"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", f"{name}: say {what}", field=name)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    reason = f"restored from the backup of {taken_at}: what happened since is not known. The old one has ended: {ended}"
    return RestoreOrder(by or "", now, reason)


def _keys(data: Path, roots: Sequence[str]) -> RecordKeys:
    """What signs the fence: without it no service would believe it."""
    if not roots:
        return UNSIGNED
    folder = data / RECORD_KEYS
    signers: dict[Party, Signer] = {}
    for party in (Party.PLANNER, Party.GATEWAY):
        held = load_service_key(folder, party)
        if held.certificate.installation not in roots:
            message = f"{folder / f'{party}.cert.json'} is of another root than the backup's jobs"
            raise CommandError(Exit.BAD_INPUT, "other_root", message)
        signers[party] = Signer(held.private_key, held.certificate)
    known = load(RuntimeSettings).installation or tuple({one.certificate.installation for one in signers.values()})
    return RecordKeys(frozenset(known), RecordSigner(signers, SystemClock()))


@contextmanager
def _servers(data: Path) -> Generator[tuple[str, str]]:
    """Those that the environment names, else those of the data folder, started without any service."""
    if lifecycle.supervisor_pid(data.resolve()) is not None:
        raise CommandError(Exit.FAILED, "running", f"something runs on {data}: `aetheris down` first")
    outside = os.environ.get("AETHERIS_KAFKA")
    if outside:
        yield outside, load(RuntimeSettings).redis
        return
    state: State = lifecycle.up(data, services=(), progress=progress)
    try:
        yield state.kafka, state.redis
    finally:
        lifecycle.down(data)


def _show(restored: Restored, taken_at: str, *, as_json: bool) -> None:
    said: dict[str, Any] = asdict(restored)
    if as_json:
        print_json({"taken_at": taken_at, **said})
        return
    if restored.seals_lost:
        progress("seals", f"{restored.seals_lost} lines of the log of seals are lost: it is another log from now on")
    rows = [
        (job.job_id, job.tenant, "paused" if job.paused else "frozen only", step.node_id, step.tool, step.stands)
        for job in restored.jobs
        for step in job.uncertain
    ]
    rows += [
        (job.job_id, job.tenant, "paused" if job.paused else "frozen only", None, None, None)
        for job in restored.jobs
        if not job.uncertain
    ]
    table(("job", "tenant", "held", "step in doubt", "tool", "in the backup"), rows)
    out.print(f"{len(restored.jobs)} jobs wait for a person. Look at each outside, then resume or cancel it;")
    out.print(f"then let tenants go on, here {', '.join(restored.frozen)}: docs/backup.md")
