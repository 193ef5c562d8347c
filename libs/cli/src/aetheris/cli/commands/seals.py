"""`aetheris seals …`: the log of all seals, in which a dropped or replaced job is missed (docs/evidence.md)."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import judgement, keyfiles, local, receipt_audit, seal_audit
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
from aetheris.cli.embedded import lifecycle
from aetheris.cli.gateway import connected
from aetheris.cli.inputs import read_bytes
from aetheris.cli.job_ids import of_job
from aetheris.cli.receipt_audit import ReceiptAudit
from aetheris.cli.rounds import Rounds
from aetheris.cli.seal_relay import SealRelay, Stamping, post
from aetheris.cli.seal_tiles import SealEntrySource, SealTiles, TilesRefused, read_seal_log, sealed_line
from aetheris.cli.source import is_file
from aetheris.proofs import bundle, record_proof
from aetheris.proofs.claims import log_entry
from aetheris.proofs.evidence import BadEvidence
from aetheris.proofs.notes import (
    BadNote,
    Checkpoint,
    open_checkpoint,
    open_consistency,
    open_inclusion,
    read_checkpoint,
    verifier_key,
)
from aetheris.proofs.sealed_leaves import BadRecordProof
from aetheris.proofs.tiles import BadTile
from aetheris.proofs.timestamps import MOST_STAMPS
from aetheris.proofs.trust import LOG, SEAL, TrustedKey

seals = typer.Typer(name="seals", no_args_is_help=True, help="The log of all seals: checkpoints, proofs, keys.")

Keys = Annotated[list[Path] | None, typer.Option("--public-key", help="PEM, or a file of keys; default: our own.")]
To = Annotated[Path | None, typer.Option("--out", help="A file to write; default: standard output.")]
Every = Annotated[float, typer.Option("--every", min=1, help="Seconds between two rounds.")]
Tiles = Annotated[
    str | None, typer.Option("--tiles", metavar="URL|FOLDER", help="Ask the published files, and no service.")
]


@seals.command()
def checkpoint(*, to: To = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Print the log's signed state. Keep it: what is dropped or changed afterwards contradicts it."""
    with errors_as_exits(as_json=as_json), connected(data) as client:
        _hand_over("checkpoint", client.checkpoint(), to, as_json=as_json)


@seals.command()
def vkey(*, keys: Keys = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Print the log's verifier key (C2SP signed note), for witnesses and for policies: origin, key id, public key."""
    with errors_as_exits(as_json=as_json), connected(data) as client:
        trusted = judgement.trusted_keys(keys, data)
        note = client.checkpoint()
        signed = [key for key in trusted if key.ended(datetime.now(UTC)) == "" and _is_by(note, key)]
        if not signed:
            raise CommandError(Exit.FAILED, "checkpoint_unknown_key", "the checkpoint is signed by none of these keys")
        text = verifier_key(read_checkpoint(note).origin, signed[0].public_key)
        _hand_over("vkey", f"{text}\n", None, as_json=as_json)


def _is_by(note: str, key: TrustedKey) -> bool:
    try:
        open_checkpoint(note, [key])
    except BadNote:
        return False
    return True


@seals.command()
def inclusion(
    target: Annotated[str, typer.Argument(metavar="ID|BUNDLE", help="A job's id; with --tiles its bundle.")],
    *,
    tiles: Tiles = None,
    keys: Keys = None,
    to: To = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Print the proof (tlog-proof) that a job's seal is in the log; with --tiles, that a bundle's still is."""
    with errors_as_exits(as_json=as_json):
        if tiles is not None:
            proof = _still_in(read_bytes(Path(target)), tiles, judgement.trusted_keys(keys, data))
        else:
            with of_job(target, data) as (client, job):
                proof = client.inclusion(job)
        _hand_over("inclusion", proof, to, as_json=as_json)


def _still_in(content: bytes, tiles: str, keys: Sequence[TrustedKey]) -> str:
    try:
        index, line = sealed_line(bundle.contents(content, keys, datetime.now(UTC)))
        proof = read_seal_log(tiles).inclusion(index, line)
        open_inclusion(proof, log_entry(line), keys, datetime.now(UTC))
    except (BadEvidence, BadNote) as error:
        raise CommandError(Exit.FAILED, error.rule, error.message) from None
    except BadTile as error:
        raise CommandError(Exit.FAILED, error.code, str(error)) from None
    return proof


@seals.command()
def consistency(
    old: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint kept from before.")],
    *,
    tiles: Tiles = None,
    keys: Keys = None,
    to: To = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Check that the log only grew since an old checkpoint; --out keeps the new one."""
    with errors_as_exits(as_json=as_json):
        trusted = judgement.trusted_keys(keys, data)
        before = _opened(old, trusted)
        try:
            if tiles is not None:
                proof = read_seal_log(tiles).consistency(before.size)
            else:
                with connected(data) as client:
                    proof = client.consistency(before.size)
            grown = open_consistency(proof, before, trusted, datetime.now(UTC))
        except BadTile as error:
            raise CommandError(Exit.FAILED, error.code, str(error)) from None
        except BadNote as error:
            raise CommandError(Exit.FAILED, error.rule, error.message) from None
        if to is not None:
            to.write_text(grown.note)
        _say({"ok": True, "old_size": before.size, "size": grown.size, "root": grown.root.hex()}, as_json=as_json)


@seals.command()
def relay(
    *,
    policy: Annotated[Path, typer.Option(help="The log, its witnesses with their URLs, and the quorum (tlog-policy).")],
    folder: Annotated[Path | None, typer.Option("--to", help="Default: witnessed in the data folder.")] = None,
    tiles: Annotated[
        Path | None,
        typer.Option("--tiles", help="A folder to publish, as `seals tiles` does, what enough have cosigned."),
    ] = None,
    tsa: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A time stamp authority (RFC 3161), asked for what has its quorum."),
    ] = None,
    tsa_roots: Annotated[Path | None, typer.Option(help="With --tsa: the authorities' roots (PEM).")] = None,
    every_s: Every = 60,
    once: Annotated[bool, typer.Option("--once", help="One round; ends with 1 where the quorum is missing.")] = False,
    health_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Answer there, at AETHERIS_LISTEN: /livez, /readyz.")
    ] = None,
    data: local.Data = local.DEFAULT_DATA,
) -> None:
    """Carry the log's checkpoints to witnesses; the folder gets those that enough of them have cosigned."""
    with errors_as_exits():
        authorities = _authorities(tsa or (), tsa_roots)
        carrier = SealRelay(judgement.read_policy_file(policy), folder or data / "witnessed", post, authorities)
        if not carrier.witnesses and not authorities:
            raise CommandError(Exit.BAD_INPUT, "bad_log_policy", f"{policy} says of no witness where it is")
        _repeat(lambda: _round(carrier, tiles, data), every_s, once=once, health_port=health_port)


@seals.command(name="tiles")
def publish_tiles(
    *,
    to: Annotated[Path, typer.Option("--out", help="The folder, for a web server to show as it is.")],
    every_s: Every = 60,
    once: Annotated[bool, typer.Option("--once", help="One round.")] = False,
    keys: Keys = None,
    data: local.Data = local.DEFAULT_DATA,
) -> None:
    """Write the log as static files (tlog-tiles), hashes alone, for anybody to read."""
    with errors_as_exits():
        trusted = judgement.trusted_keys(keys, data)

        def publish() -> bool:
            with connected(data) as client:
                try:
                    found = open_checkpoint(client.checkpoint(), trusted, datetime.now(UTC))
                except BadNote as error:
                    raise CommandError(Exit.FAILED, error.rule, error.message) from None
                _publish(to, found, client)
            return True

        _repeat(publish, every_s, once=once)


def _authorities(urls: Sequence[str], roots: Path | None) -> Sequence[Stamping]:
    if not urls and roots is None:
        return ()
    if not urls or roots is None or len(urls) > MOST_STAMPS:
        rule = f"--tsa and --tsa-roots: both or none, and at most {MOST_STAMPS} authorities"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--tsa")
    trusted = judgement.read_tsa_roots(roots)
    return [trusted.asked_at(url) for url in urls]


def _publish(folder: Path, found: Checkpoint, client: SealEntrySource) -> None:
    try:
        came = SealTiles(folder).publish(found, client)
    except TilesRefused as error:
        raise CommandError(Exit.FAILED, error.rule, error.message) from None
    except OSError as error:
        rule = error.strerror or "cannot be written"
        raise CommandError(Exit.BAD_INPUT, "unwritable_file", f"{folder}: {rule}") from None
    progress("published", f"{found.size} leaves, {came} of them new")


def _repeat(work: Callable[[], bool], every_s: float, *, once: bool, health_port: int | None = None) -> None:
    """What does its work again and again, whatever one time is refused or breaks; or once, and ends by how it went."""
    if once:
        end(Exit.HOLDS if work() else Exit.FAILED)
        return
    asyncio.run(Rounds(work).run(every_s, health_port))


def _round(carrier: SealRelay, tiles: Path | None, data: Path) -> bool:
    with connected(data) as client:
        try:
            found, missing = carrier.carry(client)
        except BadNote as error:
            raise CommandError(Exit.FAILED, error.rule, error.message) from None
        for name, why in missing.items():
            progress("not seen", f"by {name}: {why}")
        if found is not None:
            progress("seen", f"{found.checkpoint.size} leaves, by {', '.join(found.by)}")
            if tiles is not None:
                _publish(tiles, found.checkpoint, client)
    return found is not None


@seals.command()
def audit(
    *,
    kept: Annotated[Path | None, typer.Option("--checkpoint", help="Also compare with one kept from before.")] = None,
    receipts: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Ask the API instead: what became of these receipts' jobs.")
    ] = None,
    installation: Annotated[
        list[str] | None, typer.Option(help="With --receipts: the root's key id; default: our own.")
    ] = None,
    within_s: Annotated[
        float, typer.Option("--within", min=1, help="With --receipts: seconds that nothing may be said of an open job.")
    ] = receipt_audit.OPEN_WITHIN_S,
    answered_s: Annotated[
        float, typer.Option("--answered-within", min=1, help="With --receipts: seconds within which one is answered.")
    ] = receipt_audit.ANSWERED_WITHIN_S,
    keys: Keys = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Read Kafka here, and check that every sealed job is still there as it was sealed; asks no service.

    With --receipts it reads no Kafka, but what the HTTP API shows to anybody who may see these jobs.
    """
    with errors_as_exits(as_json=as_json):
        trusted = judgement.trusted_keys(keys, data)
        if not trusted:
            rule = "without a public key no line of the log of seals says anything: --public-key"
            raise CommandError(Exit.BAD_INPUT, "no_public_key", rule)
        if receipts is not None:
            found = _of_receipts(receipts, trusted, tuple(installation or ()), (answered_s, within_s), data)
            _say(found, as_json=as_json)
            end(Exit.HOLDS if found["ok"] else Exit.FAILED)
            return
        before = _opened(kept, trusted) if kept is not None else None
        found = asyncio.run(seal_audit.audit(local.kafka(data), trusted, before, data))
        _say(found, as_json=as_json)
        end(Exit.HOLDS if found["ok"] else Exit.FAILED)


def _of_receipts(
    folder: Path, keys: Sequence[TrustedKey], named: Sequence[str], bounds: tuple[float, float], data: Path
) -> dict[str, Any]:
    roots = named or judgement.known_roots(data)
    if not roots:
        raise CommandError(Exit.BAD_INPUT, "no_installation", "whose receipts count? --installation KEY_ID")
    with connected(data) as client:
        try:
            return ReceiptAudit(client, folder, keys, roots, datetime.now(UTC), *bounds).run()
        except OSError as error:
            raise CommandError(Exit.BAD_INPUT, "receipts_folder", f"{folder}: {error.strerror}") from None


@seals.command()
def prove(
    target: Annotated[str, typer.Argument(metavar="ID|BUNDLE", help="A sealed job's id, or its bundle.")],
    *,
    event: Annotated[str, typer.Option(help="The id of the event, as `aetheris ledger` and `trace` name it.")],
    hash_only: Annotated[
        bool, typer.Option("--hash-only", help="Leave out the payload: its hash stands for it.")
    ] = False,
    to: To = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Prove one record of a sealed job without any other; `seals check` checks the proof."""
    with errors_as_exits(as_json=as_json):
        try:
            proof = record_proof.of_event(_bundle(target, data), event, hash_only=hash_only)
        except (BadEvidence, BadRecordProof) as error:
            raise CommandError(Exit.FAILED, error.rule, error.message) from None
        _hand_over("proof", proof.decode(), to, as_json=as_json)


@seals.command()
def check(
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="What `seals prove` wrote.")],
    *,
    keys: Keys = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Check the proof of one record, offline; its time is its writer's word, by its writer's clock."""
    with errors_as_exits(as_json=as_json):
        trusted = judgement.trusted_keys(keys, data)
        try:
            found = record_proof.check(read_bytes(proof), trusted, datetime.now(UTC))
        except BadRecordProof as error:
            raise CommandError(Exit.FAILED, error.rule, error.message) from None
        _say(found.to_json(), as_json=as_json)


@seals.command()
def erasures(
    target: Annotated[str, typer.Argument(metavar="PSEUDONYM|BUNDLE", help="Of a person, or of all in a bundle.")],
    *,
    to: To = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Print what the log says of erased persons, each line with its proof, for `verify BUNDLE --erasures`."""
    with errors_as_exits(as_json=as_json):
        names = judgement.pseudonyms_in(Path(target)) if is_file(target) else [target]
        with connected(data) as client:
            lines = [line for name in names for line in client.erasures(name)]
        text = json.dumps({"lines": lines}, indent=1) + "\n"
        if to is not None:
            to.write_text(text)
        if as_json or to is None:
            typer.echo(text, nl=False)
        else:
            progress("erasures", f"{len(lines)}, of {len(names)} persons, to {to}")


@seals.command()
def rotate(
    *,
    revoke: Annotated[bool, typer.Option("--revoke", help="The old key's word counts no longer from now on.")] = False,
    log: Annotated[bool, typer.Option("--log", help="The key of the log of seals, not the one that seals.")] = False,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Make a new key for the data folder's verifier, and keep the public part of the old one."""
    with errors_as_exits(as_json=as_json):
        if lifecycle.supervisor_pid(data) is not None:
            rule = "the verifier would go on with the old key: `aetheris down` first"
            raise CommandError(Exit.FAILED, "running", rule)
        old, new = keyfiles.rotate(data / "keys", LOG if log else SEAL, revoke=revoke)
        if as_json:
            print_json({"old": old, "new": new, "revoked": revoke})
        else:
            progress("key", f"{new} signs from now on; {old} is {'revoked' if revoke else 'retired'}")


def _bundle(target: str, data: Path) -> bytes:
    if is_file(target):
        return read_bytes(Path(target))
    with of_job(target, data) as (client, job):
        return client.evidence(job)


def _opened(path: Path, keys: Sequence[TrustedKey]) -> Checkpoint:
    try:
        return open_checkpoint(read_bytes(path).decode(), keys)
    except UnicodeDecodeError:
        raise CommandError(Exit.BAD_INPUT, "bad_checkpoint", f"{path}: no text") from None
    except BadNote as error:
        raise CommandError(Exit.BAD_INPUT, error.rule, f"{path}: {error.message}") from None


def _hand_over(name: str, text: str, to: Path | None, *, as_json: bool) -> None:
    if to is not None:
        to.write_text(text)
    if as_json:
        print_json({name: text})
    elif to is None:
        typer.echo(text, nl=False)


def _say(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    fields([(name, value) for name, value in found.items() if name not in ("ok", "not_asked", "violations")])
    for left in found.get("not_asked", ()):
        out.print(f"not told       {shown(left['receipt'])}: {shown(left['message'])} ({left['code']})")
    for broken in found.get("violations", ()):
        whose = f"job {broken['job_id']}, by {broken['receipt']}: " if "receipt" in broken else ""
        out.print(f"violation      {broken['rule']}: {shown(whose)}{shown(broken['message'])}")
    out.print("holds" if found["ok"] else "does not hold")
