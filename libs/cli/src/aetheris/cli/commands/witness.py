"""`aetheris witness init | serve`: a witness of other installations' logs of seals (docs/evidence.md)."""

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, progress
from aetheris.cli.witness_server import WitnessServer
from aetheris.cli.witness_state import WitnessState, check_empty, make_state
from aetheris.http_server.server import HttpServer
from aetheris.proofs.notes import COSIGNATURE, SIGNATURE, verifier_key
from aetheris.proofs.witnesses import NoteKey, read_vkey
from aetheris.runtime.keys.files import load_key, make_key

witness = typer.Typer(name="witness", no_args_is_help=True, help="Witness logs of seals: cosign what only grew.")

Key = Annotated[Path, typer.Option("--key", help="The witness's private key, PEM.", dir_okay=False)]
State = Annotated[Path, typer.Option("--state", help="The folder of what it has cosigned.", file_okay=False)]
PORT = 8090


@witness.command()
def init(
    name: Annotated[str, typer.Option(help="Its name: a URL without scheme, yours.")],
    key: Key,
    state: State,
    *,
    as_json: Json = False,
) -> None:
    """Make a witness: a new key, and an empty folder; print its verifier key, for policies."""
    with errors_as_exits(as_json=as_json):
        if key.exists():
            rule = "is there already: a key that may have cosigned never begins with an empty folder"
            raise CommandError(Exit.FAILED, "key_exists", f"{key} {rule}")
        if not name or len(name) > 255 or "+" in name or any(char.isspace() or not char.isprintable() for char in name):
            rule = "--name: must be 1 to 255 characters, without white space and +"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--name")
        check_empty(state)
        make_key(key)
        vkey = verifier_key(name, load_key(key).public_key(), COSIGNATURE)
        make_state(state, vkey)
        if as_json:
            print_json({"vkey": vkey})
        else:
            typer.echo(vkey)


@witness.command()
def serve(
    key: Key,
    state: State,
    logs: Annotated[list[str], typer.Option("--log", metavar="VKEY", help="A log's verifier key; may be repeated.")],
    *,
    listen: Annotated[str, typer.Option(help="The address to listen on; TLS is for a proxy before it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port; 0 takes a free one.")] = PORT,
) -> None:
    """Take checkpoints of these logs (C2SP tlog-witness), and cosign those that only grew, until it is told to stop."""
    with errors_as_exits():
        private_key, known = load_key(key), [_log(text) for text in logs]
        held = WitnessState.load(state, {log.name for log in known})
        try:
            if held.key.public_key != private_key.public_key():
                raise CommandError(Exit.BAD_INPUT, "other_key", f"{state} is the folder of another key than {key}")
            asyncio.run(_serve(held, private_key, known, (listen, port)))
        finally:
            held.close()


def _log(text: str) -> NoteKey:
    try:
        return read_vkey(text, (SIGNATURE,))
    except ValueError as error:
        raise CommandError(Exit.BAD_INPUT, "bad_usage", f"--log: {error}", field="--log") from None


async def _serve(
    state: WitnessState, private_key: Ed25519PrivateKey, logs: Sequence[NoteKey], address: tuple[str, int]
) -> None:
    try:
        server = HttpServer(WitnessServer(state, private_key, logs, time.time).app(), *address)
    except OSError as error:
        rule = f"{address[0]}:{address[1]}: {error.strerror or 'cannot listen'}"
        raise CommandError(Exit.BAD_INPUT, "cannot_listen", rule) from None
    for told in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(told, server.stop)
    running = asyncio.create_task(server.run())
    await server.listening()
    progress("witness", f"{state.key.name} at http://{address[0]}:{server.port}")
    await running
