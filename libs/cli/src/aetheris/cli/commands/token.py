"""`aetheris token add | let | ls | revoke`: who may call the gateway, by which token; it counts at once."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from aetheris.cli import local, token_files
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, progress, table
from aetheris.gateway.core.token_entries import TokenEntry
from aetheris.protocol.base.principals import PrincipalKind, Role

token = typer.Typer(name="token", help="Give out tokens, list them, and take them back.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; what he asks for is recorded under it.")]
File = Annotated[
    Path | None,
    typer.Option("--file", envvar="AETHERIS_TOKENS", help="The gateway's file; else tokens.toml of --data."),
]
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_ID_CHARS = 8
NEVER = "never"


@token.command()
def add(
    name: Name,
    *,
    kind: Annotated[PrincipalKind, typer.Option(help="Whose hands it is in.")],
    role: Annotated[list[Role], typer.Option(help="What it may do; give it several times for several roles.")],
    tenant: Annotated[str, typer.Option(help="Whose jobs it is about.")] = token_files.TENANT,
    expires: Annotated[str, typer.Option(help="How long it counts: such as 12h or 30d; or never.")] = "90d",
    save: Annotated[bool, typer.Option("--save", help="Keep it in the data folder too, for `--as NAME`.")] = False,
    file: File = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Make a token, and print it: once, it is stored nowhere but where you put it."""
    with errors_as_exits(as_json=as_json):
        secret, until = token_files.fresh(), _until(expires)
        try:
            made = token_files.entry(secret, name, tenant, kind=kind, roles=role, expires=until)
            with token_files.changed(_file(file, data)) as entries:
                entries.append(made)
                if save:
                    token_files.save(data, name, secret)
        except ValueError as error:
            raise CommandError(Exit.BAD_INPUT, "bad_request", f"NAME, --tenant: {error}") from None
        if as_json:
            print_json({**_shown(made), "token": secret})
        else:
            typer.echo(secret)
            progress("token", f"{_id(made)} of {name}; expires: {_ends(made)}")


@token.command()
def let(
    lender: Annotated[str, typer.Argument(metavar="LENDER", help="In whose place is decided.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who decides; it is recorded under both names.")],
    *,
    expires: Annotated[str, typer.Option(help="How long it counts: such as 12h or 30d.")],
    role: Annotated[list[Role] | None, typer.Option(help="What is lent; else approve, read, read_payloads.")] = None,
    kind: Annotated[PrincipalKind, typer.Option(help="Whose hands it is in.")] = PrincipalKind.PERSON,
    tenant: Annotated[str, typer.Option(help="Whose jobs it is about.")] = token_files.TENANT,
    save: Annotated[
        bool, typer.Option("--save", help="Keep it in the data folder too, for `--as NAME:LENDER`.")
    ] = False,
    file: File = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Make a token by which somebody decides in another's place until it ends, and print it once."""
    with errors_as_exits(as_json=as_json):
        secret, roles = token_files.fresh(), role or [Role.APPROVE, Role.READ, Role.READ_PAYLOADS]
        if (until := _until(expires)) is None:
            raise CommandError(Exit.BAD_INPUT, "bad_request", "--expires: what is lent must have an end")
        try:
            made = token_files.entry(secret, name, tenant, kind=kind, roles=roles, expires=until, acts_for=lender)
            with token_files.changed(_file(file, data)) as entries:
                _check_lender(made, entries)
                entries.append(made)
                if save:
                    token_files.save(data, name, secret, lender)
        except ValueError as error:
            raise CommandError(Exit.BAD_INPUT, "bad_request", _what_is_wrong(error)) from None
        if as_json:
            print_json({**_shown(made), "token": secret})
        else:
            typer.echo(secret)
            progress("token", f"{_id(made)} of {name}, in {lender}'s place; expires: {_ends(made)}")


@token.command()
def ls(*, file: File = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """List who has one, what it may do, and until when; the tokens themselves are not known."""
    with errors_as_exits(as_json=as_json):
        found = token_files.listed(_file(file, data))
        if as_json:
            print_json([_shown(one) for one in found])
        else:
            table(("id", "name", "tenant", "kind", "roles", "expires"), [_row(one) for one in found])


@token.command()
def revoke(
    name: Name,
    *,
    one: Annotated[str | None, typer.Option("--id", help="Only this one of them, as `ls` shows it.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant's; needed where several have the name.")] = None,
    file: File = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Take back every token of a name: from now on they are refused."""
    with errors_as_exits(as_json=as_json):
        with token_files.changed(_file(file, data)) as entries:
            gone = [entry for entry in entries if _is_meant(entry, name, tenant, one)]
            if not gone:
                raise CommandError(Exit.BAD_INPUT, "unknown_token", f"no such token of {name}: `aetheris token ls`")
            if len({entry.tenant for entry in gone}) > 1:
                raise CommandError(Exit.BAD_INPUT, "several_tenants", f"{name} is of several tenants: say --tenant")
            entries[:] = [entry for entry in entries if entry not in gone]
        digests = frozenset(entry.digest for entry in gone)
        for kept in {token_files.kept_as(entry) for entry in gone}:
            token_files.forget(data, kept, digests)
        if as_json:
            print_json([_shown(entry) for entry in gone])
        else:
            typer.echo(f"{len(gone)} of {name} revoked: {', '.join(map(_id, gone))}")


def _file(file: Path | None, data: Path) -> Path:
    return file if file is not None else data / "tokens.toml"


def _is_meant(entry: TokenEntry, name: str, tenant: str | None, one: str | None) -> bool:
    if entry.name != name or tenant not in (None, entry.tenant):
        return False
    return one is None or (len(one) >= _ID_CHARS and entry.sha256.startswith(one))


def _until(expires: str) -> datetime | None:
    """Raises: CommandError."""
    if expires == NEVER:
        return None
    reported = re.fullmatch(r"([1-9][0-9]{0,4})([mhd])", expires)
    if reported is None:
        raise CommandError(Exit.BAD_INPUT, "bad_request", "--expires: such as 12h or 30d, or never", field="--expires")
    until = datetime.now(UTC) + timedelta(**{_UNITS[reported[2]]: int(reported[1])})
    return until.replace(microsecond=0)


def _shown(entry: TokenEntry) -> dict[str, object]:
    return {
        "id": _id(entry),
        "name": entry.name,
        "tenant": entry.tenant,
        "kind": entry.kind.value,
        "roles": [role.value for role in entry.roles],
        "expires": entry.expires.isoformat() if entry.expires is not None else None,
        "expired": entry.ended(datetime.now(UTC)),
        "acts_for": entry.acts_for,
    }


def _check_lender(made: TokenEntry, entries: list[TokenEntry]) -> None:
    """Raises: CommandError: the lender has not all of it himself."""
    lent = made.lent(entries, datetime.now(UTC))
    missing = set(made.roles) - (lent.roles if lent is not None else set())
    if missing:
        lacking = (
            f"{made.acts_for} has no token here that may {', '.join(sorted(missing))}: nobody lends more than he has"
        )
        raise CommandError(Exit.BAD_INPUT, "bad_request", lacking)


def _row(entry: TokenEntry) -> tuple[str, ...]:
    who = entry.name if entry.acts_for is None else f"{entry.name} for {entry.acts_for}"
    return (_id(entry), who, entry.tenant, entry.kind.value, ", ".join(entry.roles), _ends(entry))


def _what_is_wrong(error: ValueError) -> str:
    """In one line, without what was given."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return first["msg"].removeprefix("Value error, ")


def _id(entry: TokenEntry) -> str:
    return entry.sha256[:_ID_CHARS]


def _ends(entry: TokenEntry) -> str:
    if entry.expires is None:
        return NEVER
    until = entry.expires.isoformat()
    return f"{until} (over)" if entry.ended(datetime.now(UTC)) else until
