"""`aetheris key`: the idempotency key of a call, computed here."""

from typing import Annotated

import typer

from aetheris.cli.console import Json, errors_as_exits, print_json
from aetheris.cli.inputs import json_object
from aetheris.protocol.base.keys import args_hash, external_key, idempotency_key, trace_id


def key(
    job: Annotated[str, typer.Option(help="The job's id.")],
    node: Annotated[str, typer.Option(help="The node's id.")],
    tool: Annotated[str, typer.Option(help="The tool's name.")],
    args: Annotated[str, typer.Option(help="The arguments, resolved and with defaults: a JSON object.")] = "{}",
    as_json: Json = False,
) -> None:
    """Print the idempotency key of a call."""
    with errors_as_exits(as_json=as_json):
        value = json_object(args, "--args")
        computed = idempotency_key(job, node, tool, value)
        if not as_json:
            typer.echo(computed)
            return
        print_json(
            {
                "idempotency_key": computed,
                "args_hash": args_hash(value),
                "external_key": external_key(job, node, 0),
                "trace_id": trace_id(computed),
            }
        )
