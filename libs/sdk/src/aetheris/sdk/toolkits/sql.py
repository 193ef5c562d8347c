"""One SQL statement for a tool, truly exactly once: the database itself remembers the call (docs/toolkits.md).

The statement and a line under the external key are one transaction. A second try meets the line, takes what it says
and runs nothing; a try of which nobody knows whether it committed is settled by asking for the line. Needs the extra
`aetheris-tool-sdk[sql]`; everything here blocks.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import Column, Engine, MetaData, String, Table, Text, create_engine, insert, select, text
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.pool import NullPool

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import canonical
from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.outcomes import (
    Confirmed,
    Drifted,
    Failed,
    Found,
    NotExecuted,
    NotFound,
    Result,
    StateChange,
    Verdict,
)

ROW = "sql_row"
MOST_ROWS = 1_000

_CALLS = Table(
    "aetheris_calls",
    MetaData(),
    Column("external_key", String(255), primary_key=True),
    Column("outcome", Text, nullable=False),
)


def database(url: str) -> Engine:
    """A database by its SQLAlchemy URL (sqlite:///…, postgresql+psycopg://…), with the table `aetheris_calls`.

    Raises:
        NotExecuted: it can't be reached.
    """
    engine = create_engine(url, poolclass=NullPool, hide_parameters=True)
    try:
        _CALLS.metadata.create_all(engine)
    except (OperationalError, InterfaceError) as error:
        raise NotExecuted(f"no database: {type(error).__name__}") from None
    except (IntegrityError, ProgrammingError):
        pass  # somebody else makes it at the same time
    return engine


def execute(
    ctx: ToolContext,
    engine: Engine,
    statement: str,
    parameters: Mapping[str, Any],
    *,
    change: StateChange | None = None,
) -> Result:
    """Run one statement once, however often it is called for: {"rows", "changed"}; raises as below.

    Args:
        statement: the tool's own, with `:name` for parameters; never an argument.
        change: the row that it changes, for a verifier.

    Raises:
        NotExecuted: nothing was committed; it may be later.
        Failed: the database refuses it for what it is; nothing was committed.
        DBAPIError: the connection was lost at the commit: in doubt, and `find` knows.
    """
    changes = [change] if change is not None else []
    try:
        connection = engine.connect()
    except DBAPIError as error:
        raise NotExecuted(f"no connection: {type(error).__name__}") from None
    with connection:
        try:
            found = _said(connection.execute(_of(ctx.external_key)).scalar())
            if found is None:
                connection.execute(insert(_CALLS).values(external_key=ctx.external_key, outcome="{}"))
                found = _run(connection.execute(text(statement), dict(parameters)))
                kept = _CALLS.update().where(_CALLS.c.external_key == ctx.external_key)
                connection.execute(kept.values(outcome=canonical(found).decode()))
        except (OperationalError, InterfaceError) as error:
            raise NotExecuted(f"not committed: {type(error).__name__}") from None
        except DBAPIError as error:
            raise _refused(error) from None
        connection.commit()
    return Result(found, ctx.external_key, changes)


def find(ctx: ProbeContext, engine: Engine, *, change: StateChange | None = None) -> Found | NotFound:
    """What the database remembers of the call; raises where it can't be asked."""
    with engine.connect() as connection:
        found = _said(connection.execute(_of(ctx.external_key)).scalar())
    if found is None:
        return NotFound(("no line in aetheris_calls",))
    return Found(found, ctx.external_key, ("a line in aetheris_calls",), (change,) if change is not None else ())


def confirm(engine: Engine, query: str, parameters: Mapping[str, Any], expected: Mapping[str, Any] | None) -> Verdict:
    """Whether the one row that a query of the tool selects is as it was left; `expected` None: there is none."""
    with engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(text(query), dict(parameters)).mappings()]
    if len(rows) != (expected is not None):
        return Drifted({"rows": {"recorded": int(expected is not None), "found": len(rows)}})
    row = rows[0] if rows else {}
    wanted = expected or {}
    differs = (name for name in wanted if row.get(name) != wanted[name])
    diff = {name: {"recorded": wanted[name], "found": row.get(name)} for name in differs}
    return Drifted(diff) if diff else Confirmed((f"{len(rows)} row",))


def _of(external_key: str) -> Any:
    return select(_CALLS.c.outcome).where(_CALLS.c.external_key == external_key)


def _said(outcome: str | None) -> dict[str, Any] | None:
    return cast("dict[str, Any]", json.loads(outcome)) if outcome is not None else None


def _run(result: Any) -> dict[str, Any]:
    if not result.returns_rows:
        return {"changed": int(result.rowcount), "rows": []}
    rows = [[_plain(value) for value in row] for row in result.fetchmany(MOST_ROWS)]
    return {"changed": len(rows), "rows": rows}


def _plain(value: Any) -> Any:
    """As JSON has it; what JSON can't say exactly is text."""
    plain = value is None or isinstance(value, str | int | float | bool)
    return value if plain and recordable.result(value)[0] is value else str(value)


def _refused(error: DBAPIError) -> Exception:
    """Another try of this call that commits first is no refusal; its line is found by the next try."""
    if isinstance(error, IntegrityError) and _CALLS.name in str(error.orig):
        return NotExecuted("another try of this call was faster")
    return Failed(f"refused by the database: {type(error).__name__}")
