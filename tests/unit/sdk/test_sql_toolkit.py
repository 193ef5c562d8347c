"""One statement, once, whatever happens to the tries; on sqlite here, and on Postgres where its server is installed."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from aetheris.sdk import (
    Confirmed,
    Drifted,
    Failed,
    Found,
    NotExecuted,
    NotFound,
    ProbeContext,
    StateChange,
    ToolContext,
)
from aetheris.sdk.toolkits import sql

ADD = "INSERT INTO notes (id, words) VALUES (:id, :words)"
ROW = StateChange(sql.ROW, "n1", "insert")


def ctx(node: str = "n") -> ToolContext:
    return ToolContext(f"aetheris:job-1:{node}:0", 0, "ab" * 32, "job-1", node)


def ask(node: str = "n") -> ProbeContext:
    return ProbeContext(f"aetheris:job-1:{node}:0", "ab" * 32, "job-1", node)


@pytest.fixture(scope="module")
def postgres() -> Generator[str]:
    """A server of its own, on a socket in its folder; Postgres refuses to run as root."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not installed:
        pytest.skip("no Postgres server is installed")
    programs, root = installed[-1].parent, os.geteuid() == 0
    user = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups") if root else ()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if root:
            shutil.chown(folder, "postgres", "postgres")
        made = [programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "me", "-N"]
        subprocess.run([*user, *made], check=True, capture_output=True)
        control = [*user, programs / "pg_ctl", "-D", folder / "data", "-w"]
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        started = [*control, "-o", options, "-l", folder / "log", "start"]
        subprocess.run(started, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"postgresql+psycopg://me@/postgres?host={folder}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True)


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    url = f"sqlite:///{tmp_path}/x.db" if request.param == "sqlite" else request.getfixturevalue("postgres")
    made = sql.database(url)
    with made.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS notes"))
        connection.execute(text("CREATE TABLE notes (id VARCHAR(20), words VARCHAR(20) UNIQUE)"))
        connection.execute(text("DELETE FROM aetheris_calls"))
    return made


def rows(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM notes")).scalar() or 0)


def test_the_same_call_again_runs_nothing(engine: Engine) -> None:
    assert isinstance(sql.find(ask(), engine), NotFound)
    first = sql.execute(ctx(), engine, ADD, {"id": "n1", "words": "x"}, change=ROW)
    again = sql.execute(ctx(), engine, ADD, {"id": "n1", "words": "x"}, change=ROW)
    assert (first, rows(engine)) == (again, 1)
    assert first.value == {"changed": 1, "rows": []}
    found = sql.find(ask(), engine, change=ROW)
    assert isinstance(found, Found)
    assert (found.result, found.external_id, found.changes) == (first.value, first.external_id, (ROW,))


def test_many_tries_at_once_are_one_effect(engine: Engine) -> None:
    outcomes: list[object] = []

    def try_once() -> None:
        try:
            outcomes.append(sql.execute(ctx(), engine, ADD, {"id": "n1", "words": "y"}).value)
        except NotExecuted as refused:
            outcomes.append(refused)

    threads = [threading.Thread(target=try_once) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(engine) == 1
    done = [one for one in outcomes if not isinstance(one, NotExecuted)]
    assert done
    assert all(one == {"changed": 1, "rows": []} for one in done)


def test_a_refused_statement_leaves_nothing(engine: Engine) -> None:
    sql.execute(ctx("a"), engine, ADD, {"id": "n1", "words": "x"})
    with pytest.raises(Failed, match="IntegrityError"):
        sql.execute(ctx("b"), engine, ADD, {"id": "n2", "words": "x"})
    with pytest.raises((Failed, NotExecuted)) as refused:
        sql.execute(ctx("c"), engine, "INSERT INTO nowhere VALUES (:secret)", {"secret": "hunter2"})
    assert "hunter2" not in str(refused.value)
    assert isinstance(sql.find(ask("b"), engine), NotFound)
    assert rows(engine) == 1


def test_a_try_that_dies_before_its_commit_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(_result: object) -> dict[str, object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sql, "_run", dies)
        with pytest.raises(KeyboardInterrupt):
            sql.execute(ctx(), engine, ADD, {"id": "n1", "words": "x"})
    assert (rows(engine), isinstance(sql.find(ask(), engine), NotFound)) == (0, True)
    sql.execute(ctx(), engine, ADD, {"id": "n1", "words": "x"})
    assert rows(engine) == 1


def test_a_row_is_confirmed_or_has_drifted(engine: Engine) -> None:
    query = "SELECT words FROM notes WHERE id = :id"
    sql.execute(ctx(), engine, ADD, {"id": "n1", "words": "x"})
    assert isinstance(sql.confirm(engine, query, {"id": "n1"}, {"words": "x"}), Confirmed)
    assert sql.confirm(engine, query, {"id": "n1"}, {"words": "z"}) == Drifted(
        {"words": {"recorded": "z", "found": "x"}}
    )
    assert isinstance(sql.confirm(engine, query, {"id": "gone"}, {"words": "x"}), Drifted)
    assert isinstance(sql.confirm(engine, query, {"id": "gone"}, None), Confirmed)


def test_a_database_that_is_not_there() -> None:
    with pytest.raises(NotExecuted):
        sql.database("sqlite:////nowhere/x.db")
    with pytest.raises((NotExecuted, OperationalError)):
        sql.database("postgresql+psycopg://me@127.0.0.1:1/x?connect_timeout=1")
