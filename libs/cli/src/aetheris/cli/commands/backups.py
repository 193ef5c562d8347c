"""`aetheris backup` and `aetheris restore` (docs/backup.md)."""

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.backup import bucket_copies, files, key_copies
from aetheris.cli.backup import take as taking
from aetheris.cli.backup.examined import examine
from aetheris.cli.backup.fence import RestoreOrder
from aetheris.cli.backup.restore import Restored, Restorer
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, out, print_json, progress, table
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.plan import RECORD_KEYS, Plan, State
from aetheris.cli.large import store
from aetheris.protocol.base.writers import Party
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import load_service_key
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer
from aetheris.runtime.log.interface import LogError, LogUnreachable
from aetheris.runtime.process.settings import RuntimeSettings, load

_LONGEST_WORD = 1_000
_SETTINGS = {"AETHERIS_POLICY": "policy.toml", "AETHERIS_SIGNERS": "signers", "AETHERIS_CONFIG": "aetheris.toml"}
"""Setting → under which name its file is kept."""


def backup(
    to: Annotated[str, typer.Argument(metavar="TO", help="A new folder, or s3://bucket/prefix.")],
    *,
    blobs: Annotated[
        bool, typer.Option("--blobs/--no-blobs", help="Also large results and the archive, in a folder or on S3.")
    ] = True,
    keys_to: Annotated[
        list[str] | None,
        typer.Option(
            "--keys-to",
            metavar="KEY",
            help="Also keys, tokens and policy, encrypted to this public key (age1…, ssh-ed25519 …), or to each in a "
            "file. Again for more.",
        ),
    ] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Copy the log and the blobs, while everything runs; keys where it is said who may open them."""
    with errors_as_exits(as_json=as_json):
        keys = key_copies.sealed(data, _settings(data), key_copies.recipients(keys_to)) if keys_to else None
        try:
            blobs_of = store(data) if blobs else None
            with bucket_copies.folder_to(to) as folder:
                taken = asyncio.run(taking.take(local.kafka(data), blobs_of, folder, progress, keys=keys))
        except LogUnreachable as error:
            raise CommandError(Exit.UNREACHABLE, error.code, str(error)) from None
        said = {
            "taken_at": taken.manifest.taken_at,
            "sha256": taken.sha256,
            "records": taken.records,
            "blobs": taken.manifest.blobs,
            "seals": taken.manifest.seals.size,
            "keys": keys is not None,
            "corrupt_blobs": list(taken.corrupt_blobs),
        }
        if as_json:
            print_json(said)
        else:
            progress("backup", f"of {said['taken_at']}: {taken.records} records, {said['seals']} lines of seals")
            progress("sha256", f"{taken.sha256}  (of {files.MANIFEST}: keep it elsewhere, `restore --expect` takes it)")
            progress("keys", _said_of_keys(keys))
        if taken.corrupt_blobs:
            names = ", ".join(taken.corrupt_blobs[:3])
            message = f"the backup is whole, but {len(taken.corrupt_blobs)} blobs were corrupt before: {names}"
            raise CommandError(Exit.FAILED, "blob_corrupt", message)


def restore(
    source: Annotated[str, typer.Argument(metavar="FROM", help="What `aetheris backup` has written.")],
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
    identity: Annotated[
        Path | None,
        typer.Option(
            "--identity",
            metavar="FILE",
            help="Your private key, of age or SSH: the backup's keys and tokens go into the data folder.",
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Look at the backup, and touch nothing.")] = False,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Lay a backup into an empty installation: all that was open is paused, and every tenant frozen."""
    with errors_as_exits(as_json=as_json), bucket_copies.folder_from(source) as folder:
        manifest, sha256 = files.load(folder)
        if expect is not None and sha256 != expect.strip().lower():
            raise CommandError(
                Exit.FAILED, "other_backup", f"{source} is not the backup that you expect: its manifest has {sha256}"
            )
        held = None if identity is None else key_copies.opened(folder, identity)
        keys = UNSIGNED if check or held is not None else _keys(data, manifest.roots)
        found = examine(folder, keys.roots if held is None else key_copies.roots_in(held), progress)
        if check:
            said = {"taken_at": manifest.taken_at, "sha256": sha256, "whole": True}
            if as_json:
                print_json(said)
            else:
                progress("whole", f"{source}, taken at {manifest.taken_at}")
            return
        word = _word(by, ended, manifest.taken_at)
        if held is not None:
            key_copies.lay(held, data)
            keys = _keys(data, manifest.roots)
        with _servers(data) as (kafka, redis):
            try:
                restorer = Restorer(kafka, redis, data.resolve(), keys, keys_are_copies=held is not None)
                restored = asyncio.run(restorer.restore(found, word, tenants or [], progress))
            except LogError as error:
                unreachable = isinstance(error, LogUnreachable)
                raise CommandError(Exit.UNREACHABLE if unreachable else Exit.FAILED, error.code, str(error)) from None
        _show(restored, manifest.taken_at, as_json=as_json)


def _settings(data: Path) -> dict[str, Path]:
    """The files by which policy is decided, as services were given them; what was activated since is in the log."""
    given = dict(os.environ)
    with suppress(OSError, ValueError):
        for part in Plan.load(data).parts:
            given |= {name: value for name, value in part.env.items() if name in _SETTINGS}
    named = {name: Path(given[setting]) for setting, name in _SETTINGS.items() if given.get(setting)}
    return {name: path for name, path in named.items() if path.is_file()}


def _said_of_keys(keys: bytes | None) -> str:
    if keys is None:
        return "none is in it: --keys-to KEY says to whom to encrypt them, else keep them elsewhere (docs/backup.md)"
    return f"in {key_copies.KEYS}, with tokens and policy; not those of personal values (docs/backup.md)"


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
    if restored.new_log_key is not None:
        progress("seals", "their log has a new key: give it to witnesses and policies (`aetheris seals vkey`)")
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
