"""`aetheris erase | enrol`: a person's hidden values can't be opened again, or may be hidden anew."""

from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import Json, errors_as_exits, print_json
from aetheris.cli.gateway import connected

Subject = Annotated[str, typer.Option("--subject", help="The person, by the name that plans have.")]
Tenant = Annotated[str | None, typer.Option(help="Whose subject it is, if not yours; for administrators.")]


def erase(
    *,
    subject: Subject,
    tenant: Tenant = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Destroy the key of a person's hidden values: nobody can open them again."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            answer = client.erase_subject(subject, tenant=tenant)
        _print(answer, "erased", as_json=as_json)


def enrol(
    *,
    subject: Subject,
    tenant: Tenant = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Let values of an erased person be hidden again, under a fresh key."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            answer = client.enrol_subject(subject, tenant=tenant)
        _print(answer, "enrolled anew", as_json=as_json)


def _print(answer: dict[str, Any], word: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{answer['pseudonym']} {word}")
