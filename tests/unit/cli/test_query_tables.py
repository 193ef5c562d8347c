"""Queries read four tables and nothing else; those of the documentation are executed."""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.console import CommandError
from aetheris.cli.query_tables import Tables
from aetheris.views.query_rows import COLUMNS, QueryRows, query_rows
from tests.testkit.system import REPOSITORY
from tests.testkit.written_rows import (
    AmendedJob,
    handler_of,
    record_of,
    run_until,
    shop_job,
    unsure_then_late,
    written,
)

PAGE = (REPOSITORY / "docs" / "query.md").read_text()
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
JOBS = 20


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    asyncio.run(written(folder, JOBS))
    return folder


def asked(store: Path | None, query: str, live: QueryRows | None = None, tenants: Sequence[str] | None = None) -> Any:
    tables = Tables(store, tenants)
    tables.close(live or QueryRows())
    columns, rows = tables.ask(query)
    return columns, list(rows)


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_of_the_page_is_answered(store: Path, query: str) -> None:
    if "layout" in query:
        with duckdb.connect() as connection:
            assert connection.execute(query.replace("STORE", str(store))).fetchall()
    else:
        assert asked(store, query)[1], query


def test_the_page_names_every_column() -> None:
    for table, columns in COLUMNS.items():
        [line] = re.findall(rf"^\| `{table}` \|.*$", PAGE, re.MULTILINE)
        assert re.findall(r"`(\w+)`", line)[1:] == list(columns)


def test_archived_and_live_rows_are_told_apart_and_none_comes_twice(store: Path) -> None:
    live = query_rows([record_of(one) for one in shop_job(JOBS)[:6]])
    columns, rows = asked(store, "SELECT status, live, count(*) FROM jobs GROUP BY ALL ORDER BY 3", live)
    assert columns == ["status", "live", "count_star()"]
    assert rows == [("running", True, 1), ("failed", False, 2), ("completed", False, 18)]
    assert asked(store, "SELECT count(*), count(day) FROM steps", live)[1] == [(2 * JOBS + 2, 2 * JOBS)]
    assert asked(None, "SELECT count(*) FROM events", live)[1] == [(6,)]
    assert asked(store, "SELECT count(*) FROM jobs", tenants=["nobody"])[1] == [(0,)]
    assert len(Tables(store, ["shop"]).known()) == JOBS


def test_of_a_job_that_was_amended_only_what_its_last_amendment_says_is_answered(tmp_path: Path) -> None:
    async def both() -> None:
        job = AmendedJob(unsure_then_late())
        handler = handler_of(tmp_path, job)
        await handler.begin()
        await handler.came(job.lines)
        await run_until(handler, 2)

    asyncio.run(both())
    live = query_rows([record_of(one) for one in shop_job(JOBS)[:6]])
    for given in (None, live):
        more = 0 if given is None else 1
        rows = asked(tmp_path, "SELECT live, amendment, amended_at IS NOT NULL FROM jobs ORDER BY live", given)[1]
        assert rows == [(False, 1, True), (True, 0, False)][: 1 + more]
        for table in ("steps", "effects", "events"):
            query = f"SELECT count(*) FROM {table} JOIN jobs USING (job_id) WHERE {table}.amendment <> jobs.amendment"  # noqa: S608
            assert asked(tmp_path, query, given)[1] == [(0,)]
    assert asked(tmp_path, "SELECT count(*) FROM effects WHERE external_id = 're_late'")[1] == [(1,)]
    (layout,) = (query for query in QUERIES if "QUALIFY" in query)
    with duckdb.connect() as connection:
        rows = connection.execute(layout.replace("STORE", str(tmp_path))).fetchall()
    assert len(rows) == asked(tmp_path, "SELECT count(*) FROM effects")[1][0][0]


def test_a_file_of_jobs_that_is_not_there_yet_hides_the_files_beside_it(store: Path) -> None:
    [path] = store.glob("tenants/*/jobs/*/*.parquet")
    held = path.read_bytes()
    path.unlink()
    try:
        assert asked(store, "SELECT count(*) FROM events")[1] == [(0,)]
    finally:
        path.write_bytes(held)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('https://example.org/x.csv')",
        "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
        "SELECT * FROM glob('/etc/*')",
        "COPY jobs TO '/tmp/x.csv'",
        "EXPLAIN ANALYZE COPY jobs TO 'STORE/x.csv'",
        "COPY jobs TO 'STORE/x.csv'",
        "INSERT INTO live_jobs (job_id) VALUES ('x')",
        "DROP VIEW jobs",
        "ATTACH '/tmp/x.db'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA version",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP VIEW jobs",
        "WITH x AS (SELECT 1) DELETE FROM live_jobs",
        "SELECT * FROM nothing",
        "SELEC 1",
        "",
        "SELECT * FROM store",
        "SELECT * FROM query('COPY jobs TO ''/tmp/x.csv''')",
    ],
)
def test_what_is_no_question_to_the_tables_is_refused(store: Path, query: str) -> None:
    before = {path: path.stat().st_size for path in store.rglob("*")}
    with pytest.raises(CommandError) as refused:
        asked(store, query.replace("STORE", str(store)))
    assert refused.value.code in ("bad_sql", "not_a_select")
    assert {path: path.stat().st_size for path in store.rglob("*")} == before


def run(*argv: str, text: str | None = None) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["sql", *argv], input=text, env={"AETHERIS_PARQUET": ""})
    return done.exit_code, done.stdout, done.stderr


def test_the_command_prints_tables_json_and_csv(store: Path) -> None:
    given = ("--no-live", "--parquet", str(store))
    query = "SELECT job_id, created_at, day, steps FROM jobs WHERE status = 'failed' ORDER BY created_at"
    code, out, _ = run(*given, "--json", query)
    assert code == 0
    assert json.loads(out)[0] | {"job_id": ""} == {
        "job_id": "",
        "created_at": "2026-01-01T00:09:00+00:00",
        "day": "2026-01-01",
        "steps": 2,
    }
    code, out, _ = run(*given, "--csv", "-", text=query)
    assert (code, out.splitlines()[0], len(out.splitlines())) == (0, "job_id,created_at,day,steps", 3)
    code, out, err = run(*given, "SELECT count(*) AS n FROM effects")
    assert (code, out.split(), "1" in err) == (0, ["n", "38"], True)


def test_what_can_not_be_asked_says_what_to_do(store: Path, tmp_path: Path) -> None:
    assert run("--no-live", "SELECT 1")[0] == 2
    assert "aetheris.toml" in run("--no-live", "SELECT 1")[2]
    assert run("--no-live", "--parquet", str(tmp_path / "none"), "SELECT 1")[0] == 2
    assert run("--no-live", "--parquet", str(store), "--json", "--csv", "SELECT 1")[0] == 2
    code, _, err = run("--no-live", "--parquet", str(store), "SELECT wrong FROM jobs")
    assert (code, "bad_sql" in err, "wrong" in err) == (2, True, True)
    code, _, err = run("--parquet", str(store), "--data", str(tmp_path), "SELECT 1")
    assert (code, "aetheris up" in err) == (5, True), "without a gateway nobody says that nothing lives"
