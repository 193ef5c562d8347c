"""`aetheris openings | erase | enrol | hold | release`: hidden values of persons, opened, closed for ever, or kept."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import keyfiles, local
from aetheris.cli.console import Json, errors_as_exits, print_json, progress
from aetheris.cli.gateway import connected
from aetheris.cli.job_ids import whole_id
from aetheris.proofs.notes import parse_inclusion
from aetheris.sdk.client import Client

Subject = Annotated[str, typer.Option("--subject", help="The person, by the name that plans have.")]
Tenant = Annotated[str | None, typer.Option(help="Whose subject it is, if not yours; for administrators.")]


def openings(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    *,
    to: Annotated[Path | None, typer.Option("--out", help="The file to write; else standard output.")] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Write a job's hidden values in the clear, as JSON, for who may see payloads and for `verify FILE --openings`."""
    with errors_as_exits(as_json=as_json or to is None):
        with connected(data, who) as client:
            job_id = whole_id(client, job_id)
            found = _all(client, job_id)
        if to is None:
            print_json(found)
            return
        keyfiles.put(to, json.dumps(found, indent=1).encode() + b"\n", 0o600)
        opened, hidden = len(found["openings"]), found["hidden"]
        if as_json:
            print_json({"job_id": job_id, "file": str(to), "opened": opened, "hidden": hidden})
        else:
            progress("opened", f"{opened} of {hidden} hidden values to {to}")


def _all(client: Client, job_id: str) -> dict[str, Any]:
    """The values of all pages."""
    found = client.openings(job_id)
    cursor = found.pop("cursor", None)
    while cursor is not None:
        page = client.openings(job_id, cursor=cursor)
        for name in ("openings", "erased", "left_out"):
            found[name] += page[name]
        found["hidden"], cursor = page["hidden"], page.get("cursor")
    return found


def erase(
    *,
    subject: Subject,
    tenant: Tenant = None,
    to: Annotated[Path | None, typer.Option("--out", help="A file for its lines, for `verify --erasures`.")] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Destroy the key of a person's hidden values: nobody can open them again. The log of seals says so."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            answer = client.erase_subject(subject, tenant=tenant)
        lines = answer.get("lines", [])
        if to is not None:
            keyfiles.put(to, json.dumps({"lines": lines}, indent=1).encode() + b"\n", 0o644)
        places = [str(parse_inclusion(one["proof"]).index) for one in lines]
        follows = f"its line follows: aetheris seals erasures {answer['pseudonym']}"
        said = f"line {', '.join(places)} of the log of seals" if places else follows
        _print(answer, f"erased; {said}", as_json=as_json)


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


def hold(
    *,
    subject: Subject,
    tenant: Tenant = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Let nobody erase a person, until `release`."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            answer = client.hold_subject(subject, tenant=tenant)
        _print(answer, "on hold", as_json=as_json)


def release(
    *,
    subject: Subject,
    tenant: Tenant = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """End the hold of a person, who may be erased then."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            answer = client.release_subject(subject, tenant=tenant)
        _print(answer, "released", as_json=as_json)


def _print(answer: dict[str, Any], word: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{answer['pseudonym']} {word}")
