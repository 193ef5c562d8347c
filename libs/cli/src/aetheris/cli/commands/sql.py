"""`aetheris sql`: a query over jobs in Parquet and live ones (docs/query.md)."""

import asyncio
import csv
import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, progress, table
from aetheris.cli.gateway import connected
from aetheris.cli.inputs import read_bytes
from aetheris.cli.project_file import project

if TYPE_CHECKING:
    from aetheris.cli.query_tables import Tables

_S3 = "s3://"


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT, as DuckDB has it; - is standard input.")],
    *,
    parquet: Annotated[
        str | None,
        typer.Option(envvar="AETHERIS_PARQUET", help="Where the archiver writes; else aetheris.toml says it."),
    ] = None,
    live: Annotated[bool, typer.Option("--live/--no-live", help="Also jobs that are not in Parquet yet.")] = True,
    live_limit: Annotated[int, typer.Option(min=0, help="So many of these at most, or none are read.")] = 1000,
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant's jobs; else the token's, with --no-live everybody's.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a header.")] = False,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Ask jobs, steps, effects and events by SQL; reads only."""
    with errors_as_exits(as_json=as_json):
        if as_csv and as_json:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "give --json or --csv: one", field="--csv")
        text = query if query != "-" else read_bytes(Path("-")).decode(errors="replace")
        where = parquet or project(_config()).settings().get("AETHERIS_PARQUET")
        if where is None and not live:
            rule = "say where the archiver writes: --parquet, AETHERIS_PARQUET, or `parquet` in aetheris.toml"
            raise CommandError(Exit.BAD_INPUT, "no_parquet", rule, field="--parquet")
        tables = _tables(where, data, live=live, live_limit=live_limit, tenant=tenant, who=who)
        columns, rows = tables.ask(text)
        _print(columns, rows, as_json=as_json, as_csv=as_csv)


def _tables(
    where: str | None, data: Path, *, live: bool, live_limit: int, tenant: str | None, who: str | None
) -> "Tables":
    try:
        from aetheris.cli import live_rows, query_tables  # noqa: PLC0415  an extra
        from aetheris.cli.parquet_copy import folder_of, folders_of  # noqa: PLC0415
        from aetheris.views.query_rows import QueryRows  # noqa: PLC0415
    except ModuleNotFoundError as error:
        rule = f"{error.name} is missing: pip install 'aetheris-cli[sql]'"
        raise CommandError(Exit.BAD_INPUT, "extra_missing", rule) from None
    store = asyncio.run(folder_of(where, data, may_lack=live)) if where is not None else None
    if not live:
        tables = query_tables.Tables(store, folders_of(tenant))
        tables.close(QueryRows())
        return tables
    with connected(data, who) as client:
        own = client.caller().tenant
        if tenant is not None and tenant != own:
            rule = (
                f"the token is of tenant {own}, whose live jobs it may read: --no-live asks about another's in Parquet"
            )
            raise CommandError(Exit.BAD_INPUT, "other_tenant", rule, field="--tenant")
        tables = query_tables.Tables(store, folders_of(own))
        tables.close(live_rows.live_rows(client, tables.known(), data, live_limit))
        return tables


def _config() -> Path | None:
    named = os.environ.get("AETHERIS_CONFIG")
    return Path(named) if named else None


def _print(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool, as_csv: bool) -> None:
    if as_json:
        found = [dict(zip(columns, map(_value, row), strict=True)) for row in rows]
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False, default=str) + "\n")
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_value(cell) for cell in row] for row in rows)
    else:
        listed = [[_value(cell) for cell in row] for row in rows]
        table(columns, listed)
        progress("rows", str(len(listed)))


def _value(cell: Any) -> Any:
    return cell.isoformat() if isinstance(cell, date | datetime) else cell
