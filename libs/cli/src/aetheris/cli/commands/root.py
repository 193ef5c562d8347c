"""`aetheris root new | certify | revoke | show`: an installation's root key, and its word for the keys of services.

What is asked of nobody: it needs files only, so that the root can lie where no network is (docs/adr/0009). `bring`
needs no root, and asks Kafka.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.cli import keyfiles, local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, progress
from aetheris.cli.inputs import read_bytes
from aetheris.cli.reachable_log import reachable
from aetheris.protocol.base.signing import Certificate, key_id_of, read_certificate
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party, signed_types
from aetheris.protocol.fold.revocations import ToldRevocation
from aetheris.runtime.keys.files import KeyUnusable, certified, load_key, make_key, revoked
from aetheris.runtime.keys.revocations import read_one, read_told, written
from aetheris.runtime.keys.signing import raw_public_key

root = typer.Typer(
    name="root",
    help="Make a root key, and certify keys of services by it, with which they sign their records.",
    no_args_is_help=True,
)

DAYS = 365
_LONGEST_DAYS = 3650
_EARLIER = timedelta(minutes=5)
"""A service's clock may be behind that of the machine where the root lies."""
_LONGEST_REASON = 500
_SIGN = tuple(party.value for party in Party if signed_types(party))

Key = Annotated[Path, typer.Argument(metavar="FILE", help="The root's private key, PEM.", dir_okay=False)]


@root.command()
def new(path: Key, *, as_json: Json = False) -> None:
    """Make a root key in a file that is not there yet, and print its key id, which jobs pin."""
    with errors_as_exits(as_json=as_json):
        if path.exists():
            raise CommandError(Exit.FAILED, "key_exists", f"{path} is there already: a root is never overwritten")
        make_key(path)
        _say({"key_id": key_id_of(raw_public_key(_load(path)))}, as_json=as_json)


@root.command()
def certify(
    service: Annotated[str, typer.Argument(help=f"Whose key it is: {', '.join(_SIGN)}.")],
    *,
    by: Annotated[Path, typer.Option("--root", help="The root's private key, PEM.", dir_okay=False)],
    folder: Annotated[Path, typer.Option(help="Where SERVICE.pem and SERVICE.cert.json lie, or are put.")],
    public_key: Annotated[
        Path | None, typer.Option(help="The service's public key, PEM, where its private one is elsewhere.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=_LONGEST_DAYS, help="How long the service may sign.")] = DAYS,
    new_key: Annotated[bool, typer.Option("--new-key", help="Make another key, in place of the one there.")] = False,
    as_json: Json = False,
) -> None:
    """Give a service a certificate, and a key if it has none; what it has signed before stays signed."""
    with errors_as_exits(as_json=as_json):
        _check(service, public_key, new_key=new_key)
        held = _load(by)
        public = keyfiles.raw_key_in(public_key) if public_key else _service_key(folder, service, new_key=new_key)
        begin = datetime.now(UTC).replace(microsecond=0) - _EARLIER
        made = certified(held, Party(service), public, begin, begin + _EARLIER + timedelta(days=days))
        written = folder / f"{service}.cert.json"
        written.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        keyfiles.put(written, json.dumps(made.to_json(), indent=2).encode() + b"\n", 0o600)
        progress("certified", f"{written}, until {made.not_after}")
        _say(_shown(made), as_json=as_json)


@root.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="A key id, or the file of its certificate.")],
    *,
    by: Annotated[Path, typer.Option("--root", help="The root's private key, PEM.", dir_okay=False)],
    reason: Annotated[str, typer.Option(help="Why; it is recorded in each job.")],
    to: Annotated[Path | None, typer.Option("--out", help="A file to write; default: standard output.")] = None,
    as_json: Json = False,
) -> None:
    """Say that a service's key counts no more: a file, which is to be brought into the jobs that live."""
    with errors_as_exits(as_json=as_json):
        _check_reason(reason)
        held, named = _load(by), _key_id(key_id)
        if named == key_id_of(raw_public_key(held)):
            raise CommandError(Exit.BAD_INPUT, "bad_request", "KEY: a root can't revoke itself")
        made = revoked(held, named, datetime.now(UTC).replace(microsecond=0), reason)
        if to is not None:
            keyfiles.put(to, json.dumps(made.to_json(), indent=2).encode() + b"\n", 0o644)
            progress("revoked", f"{named}, in {to}")
        if as_json or to is None:
            print_json(made.to_json())


@root.command()
def bring(
    path: Annotated[Path, typer.Argument(metavar="REVOCATION", help="A file of `root revoke`.", dir_okay=False)],
    *,
    to: Annotated[Path, typer.Option("--to", help="The file that services read (AETHERIS_REVOCATIONS).")],
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Add a revocation to what services read when they start, with where the log ends now; asks Kafka, no service.

    Checkpoints that the key signed count no more: jobs are read from their births, and one whose birth was deleted from
    jobs.events stands still. Delete nothing there above the oldest live job's birth, less 10,000 records.
    """
    with errors_as_exits(as_json=as_json):
        revocation = read_one(read_bytes(path))
        if revocation is None:
            raise CommandError(Exit.BAD_INPUT, "bad_request", f"{path}: no revocation that its root has signed")
        known = _told(to)
        is_new = all(one.revocation.key_id != revocation.key_id for one in known)
        if is_new:
            below = asyncio.run(_ends(local.kafka(data)))
            keyfiles.put(to, written([*known, ToldRevocation(revocation, below)]), 0o644)
        progress("revoked", f"{revocation.key_id}, in {to}: start planner, ledger, gateway and executors anew")
        _say({"key_id": revocation.key_id, "added": "yes" if is_new else "no"}, as_json=as_json)


@root.command()
def show(path: Key, *, as_json: Json = False) -> None:
    """Print the key id of a root, by which AETHERIS_INSTALLATION and who verifies a bundle name it."""
    with errors_as_exits(as_json=as_json):
        _say({"key_id": key_id_of(raw_public_key(_load(path)))}, as_json=as_json)


def _check(service: str, public_key: Path | None, *, new_key: bool) -> None:
    """Raises: CommandError."""
    if service not in _SIGN:
        raise CommandError(Exit.BAD_INPUT, "bad_request", f"SERVICE: {service} signs nothing; {', '.join(_SIGN)} do")
    if new_key and public_key is not None:
        raise CommandError(Exit.BAD_INPUT, "bad_request", "--new-key: the private key of --public-key is elsewhere")


def _told(path: Path) -> Sequence[ToldRevocation]:
    """Raises: CommandError."""
    try:
        return read_told(path) if path.exists() else ()
    except KeyUnusable as error:
        raise CommandError(Exit.BAD_INPUT, error.code, str(error), file=str(path)) from None


async def _ends(bootstrap: str) -> tuple[int, ...]:
    """Where each partition of jobs.events ends."""
    async with reachable(bootstrap) as log:
        places = [(Topic.JOBS_EVENTS, number) for number in range(await log.partitions(Topic.JOBS_EVENTS))]
        ends = await log.end_offsets(places)
    return tuple(ends[place] for place in places)


def _check_reason(reason: str) -> None:
    """Raises: CommandError."""
    if not reason.isprintable() or not 0 < len(reason) <= _LONGEST_REASON:
        rule = f"--reason: 1 to {_LONGEST_REASON} characters that can be printed"
        raise CommandError(Exit.BAD_INPUT, "bad_request", rule)


def _key_id(said: str) -> str:
    """Raises: CommandError."""
    if re.fullmatch("[0-9a-f]{64}", said):
        return said
    try:
        certificate = read_certificate(json.loads(Path(said).read_bytes()))
    except (OSError, ValueError, RecursionError):
        certificate = None
    if certificate is None:
        raise CommandError(Exit.BAD_INPUT, "bad_request", f"KEY: {said} is no key id, and no file of a certificate")
    return certificate.key_id


def _service_key(folder: Path, service: str, *, new_key: bool) -> bytes:
    path = folder / f"{service}.pem"
    if new_key:
        keyfiles.put(path, keyfiles.fresh_key(), 0o600)
    elif not path.exists():
        make_key(path)
    return raw_public_key(_load(path))


def _load(path: Path) -> Ed25519PrivateKey:
    try:
        return load_key(path)
    except KeyUnusable as error:
        raise CommandError(Exit.BAD_INPUT, error.code, str(error), file=str(path)) from None


def _shown(certificate: Certificate) -> dict[str, str]:
    return {
        "service": certificate.service,
        "key_id": certificate.key_id,
        "installation": certificate.installation,
        "not_before": certificate.not_before,
        "not_after": certificate.not_after,
    }


def _say(found: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json(dict(found))
    else:
        typer.echo(found["key_id"])
