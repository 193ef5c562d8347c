"""Jobs, steps, effects and events as tables of DuckDB: those in Parquet, and those that live (docs/query.md).

Needs the extra `sql`. A query reads these tables and nothing else: no file, no address, no setting.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from aetheris.archiver.parquet_files import SCHEMAS
from aetheris.cli.console import CommandError, Exit
from aetheris.views.query_rows import COLUMNS, QueryRows, Table

_ONLY = "it is not one SELECT: rows are read here, and nothing is changed"
_SETTINGS = (
    "TimeZone='UTC'",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "python_enable_replacements=false",
)


class Tables:
    """A database in memory, which knows `jobs`, `steps`, `effects` and `events`."""

    def __init__(self, store: Path | None, tenants: Sequence[str] | None) -> None:
        """`store`: the folder that the archiver writes; `tenants`: the folders asked about, None: all."""
        self._connection = duckdb.connect(":memory:")
        self._store = store.resolve() if store is not None else None
        self._jobs = sorted(self._files(tenants))
        self._are_amended = self._find_amended()

    def known(self) -> frozenset[str]:
        """The jobs that are in Parquet."""
        if not self._jobs:
            return frozenset()
        rows = self._connection.execute("SELECT job_id FROM read_parquet(?)", [self._jobs]).fetchall()
        return frozenset(job_id for (job_id,) in rows)

    def close(self, live: QueryRows) -> None:
        """These are the live jobs; from now on nothing but the tables can be read, and nothing can be written."""
        for table in COLUMNS:
            rows = pa.Table.from_pylist(live.of(table), schema=SCHEMAS[table])
            self._connection.register("given", rows)
            self._connection.execute(f"CREATE TABLE live_{table} AS SELECT * FROM given")  # noqa: S608  ours
            self._connection.unregister("given")
            self._connection.execute(f"CREATE VIEW {table} AS {self._select(table)}")
        if self._store is not None:
            self._connection.execute(f"SET allowed_directories = [{_quoted(str(self._store))}]")
        for setting in (*_SETTINGS, "enable_external_access=false", "lock_configuration=true"):
            self._connection.execute(f"SET {setting}")

    def ask(self, query: str) -> tuple[Sequence[str], Iterator[tuple[Any, ...]]]:
        """(the columns, the rows) of a query.

        Raises:
            CommandError: it is not one SELECT, or DuckDB can't answer it.
        """
        with _as_exit():
            statements = self._connection.extract_statements(query)
            if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
                raise CommandError(Exit.BAD_INPUT, "not_a_select", _ONLY)
            found = self._connection.execute(statements[0])
            return [name for name, *_ in found.description or ()], self._rows()

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        with _as_exit():
            while rows := self._connection.fetchmany(1000):
                yield from rows

    def _files(self, tenants: Sequence[str] | None) -> Iterator[str]:
        """The files of jobs, which are written last: where one is, those beside it are, too."""
        if self._store is None:
            return
        for named in ("*",) if tenants is None else tenants:
            yield from map(str, self._store.glob(f"tenants/{named}/jobs/day=*/*.parquet"))

    def _find_amended(self) -> bool:
        """Note of each job that was amended how often: of its rows, those with what its last amendment says count."""
        if not self._jobs:
            return False
        last = "SELECT job_id, max(amendment) AS times FROM read_parquet(?) WHERE amendment > 0 GROUP BY job_id"
        self._connection.execute(f"CREATE TABLE amended AS {last}", [self._jobs])
        return bool(self._connection.execute("SELECT 1 FROM amended LIMIT 1").fetchall())

    def _select(self, table: Table) -> str:
        live = f"SELECT *, NULL::DATE AS day, true AS live FROM live_{table}"  # noqa: S608  ours
        files = [one for path in self._jobs if Path(one := path.replace("/jobs/day=", f"/{table}/day=")).exists()]
        if not files:
            return live
        listed = ", ".join(map(_quoted, files))
        archived = f"SELECT f.*, false AS live FROM read_parquet([{listed}], hive_partitioning = true) AS f"  # noqa: S608
        if self._are_amended:
            archived += " LEFT JOIN amended AS a ON a.job_id = f.job_id WHERE f.amendment = coalesce(a.times, 0)"
        return f"{archived} UNION ALL BY NAME {live}"


@contextmanager
def _as_exit() -> Generator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise CommandError(Exit.BAD_INPUT, "bad_sql", str(error).strip()) from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
