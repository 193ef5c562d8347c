"""The SQLite database that searches of jobs are answered from: a file of the data folder, which only one process has.

It is no source of anything. Each job is written in a transaction of its own, and the place up to which jobs.index was
read behind all that came of it: who is killed in between reads that stretch again. A file that is damaged, of another
format or of another log is thrown away, and made anew from the log.
"""

import json
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from aetheris.gateway.core.problems import Unavailable
from aetheris.gateway.core.searchable_job import SearchableJob
from aetheris.runtime.process import lock

_log = structlog.get_logger(__name__)

_LONGEST_S = 2.0
"""What one search may take of the processor."""
_STEPS = 10_000
_NAME = "jobs.sqlite"
_MADE_OF_IT = 1
"""To be raised whenever `searchable` makes something else of a job, or the index is read otherwise."""
_TABLES = """
CREATE TABLE job (
  n INTEGER PRIMARY KEY, job_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, submitted_by TEXT NOT NULL,
  agent TEXT NOT NULL, status TEXT NOT NULL, created_at TEXT NOT NULL, labels TEXT NOT NULL,
  is_whole INTEGER NOT NULL, ends_ms INTEGER
);
CREATE INDEX job_place ON job (tenant, created_at, job_id);
CREATE INDEX job_end ON job (ends_ms);
CREATE TABLE label (n INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL);
CREATE INDEX label_value ON label (name, value, n);
CREATE INDEX label_job ON label (n);
CREATE TABLE call (n INTEGER NOT NULL, tool TEXT NOT NULL, external_id TEXT NOT NULL);
CREATE INDEX call_tool ON call (tool, n);
CREATE INDEX call_id ON call (external_id, n);
CREATE INDEX call_job ON call (n);
CREATE TABLE argument (n INTEGER NOT NULL, tool TEXT NOT NULL, path TEXT NOT NULL, value TEXT NOT NULL);
CREATE INDEX argument_value ON argument (path, value, n);
CREATE INDEX argument_job ON argument (n);
CREATE VIRTUAL TABLE words USING fts5 (told, error, payload);
CREATE TABLE place (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL, last TEXT NOT NULL);
"""
_FORMAT = zlib.crc32(f"{_MADE_OF_IT}{_TABLES}".encode()) & 0x7FFFFFFF


class SearchDatabase:
    """One connection, one thread at a time; it blocks. `folder`: where it is kept; None: in a file of the process."""

    def __init__(self, folder: Path | None) -> None:
        self._turn = threading.Lock()
        self._lock: lock.Lock | None = None
        self._path = self._taken(folder) if folder is not None else None
        self._rows = self._opened()

    def text(self) -> str:
        """All that is in it, as SQL."""
        with self._turn:
            return "\n".join(self._rows.iterdump())

    def close(self) -> None:
        """What is kept stays for the next process."""
        with self._turn:
            self._rows.close()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def start_anew(self, why: str) -> None:
        """Throw away what there is: the log is read from its beginning."""
        with self._turn:
            _log.warning("what jobs are searched by is read from the log anew", reason=why)
            self._rows.close()
            self._thrown_away()
            self._rows = self._opened()

    def places(self) -> Mapping[int, tuple[int, str]]:
        """Partition of jobs.index → (up to where it is known, the digest of the record before that)."""
        with self._turn:
            found = self._rows.execute("SELECT partition, next, last FROM place").fetchall()
        return {partition: (following, last) for partition, following, last in found}

    def reached(self, partition: int, following: int, last: str) -> None:
        """What lies before `following` is in the tables."""
        with self._turn:
            self._rows.execute("INSERT OR REPLACE INTO place VALUES (?, ?, ?)", (partition, following, last))

    def select(self, statement: str, parameters: Sequence[Any]) -> list[tuple[str, ...]]:
        """Rows; raises Unavailable: it takes too long."""
        ends_s = time.monotonic() + _LONGEST_S
        with self._turn:
            self._rows.set_progress_handler(lambda: time.monotonic() > ends_s, _STEPS)
            try:
                return self._rows.execute(statement, parameters).fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_INTERRUPT":
                    raise
                raise Unavailable("search_too_long", "the search takes too long: ask for less") from None
            finally:
                self._rows.set_progress_handler(None, 0)

    def is_whole(self, job_id: str) -> bool | None:
        """Whether all of a job is in it; None: nothing."""
        with self._turn:
            found = self._rows.execute("SELECT is_whole FROM job WHERE job_id = ?", (job_id,)).fetchone()
        return None if found is None else bool(found[0])

    def put(self, job: SearchableJob, created_at: str, *, is_whole: bool) -> None:
        """In the place of what was known of it."""
        fields = (job.job_id, job.tenant, job.submitted_by, job.agent, "", created_at, json.dumps(dict(job.labels)))
        with self._turn, self._rows:
            self._rows.execute("BEGIN")
            self._delete("job_id = ?", job.job_id)
            insert = "INSERT INTO job VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"
            n = self._rows.execute(insert, (*map(_kept, fields), is_whole)).lastrowid
            self._rows.executemany(
                "INSERT INTO label VALUES (?, ?, ?)",
                [(n, _kept(name), _kept(value)) for name, value in job.labels.items()],
            )
            self._rows.executemany(
                "INSERT INTO call VALUES (?, ?, ?)", [(n, _kept(tool), _kept(id_)) for tool, id_ in job.calls]
            )
            self._rows.executemany(
                "INSERT INTO argument VALUES (?, ?, ?, ?)",
                [(n, _kept(one.tool), _kept(one.path), _kept(one.value)) for one in job.arguments],
            )
            words = (n, _kept(job.told), _kept(job.error), _kept(job.payload))
            self._rows.execute("INSERT INTO words (rowid, told, error, payload) VALUES (?, ?, ?, ?)", words)

    def stand(self, job_id: str, status: str, ends_ms: int | None) -> None:
        """How a job stands, and when it leaves the lists."""
        with self._turn:
            update = "UPDATE job SET status = ?, ends_ms = ? WHERE job_id = ?"
            self._rows.execute(update, (status, ends_ms, job_id))

    def drop(self, job_id: str) -> None:
        """Nothing of a job is left."""
        with self._turn, self._rows:
            self._rows.execute("BEGIN")
            self._delete("job_id = ?", job_id)

    def drop_ended(self, now_ms: int) -> None:
        """Nor of those that have left the lists."""
        with self._turn, self._rows:
            self._rows.execute("BEGIN")
            self._delete("ends_ms <= ?", now_ms)

    def _delete(self, which: str, value: str | int) -> None:
        for (n,) in self._rows.execute(f"SELECT n FROM job WHERE {which}", (value,)).fetchall():  # noqa: S608  ours
            for table in ("label", "call", "argument", "job"):
                self._rows.execute(f"DELETE FROM {table} WHERE n = ?", (n,))  # noqa: S608  ours
            self._rows.execute("DELETE FROM words WHERE rowid = ?", (n,))

    def _taken(self, folder: Path) -> Path | None:
        """The file, where no other process has it, and where the folder can be written to."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = lock.opened(folder / "lock")
        except OSError as error:
            _log.warning("what jobs are searched by is not kept", reason=type(error).__name__)
            return None
        if not lock.locked(descriptor):
            os.close(descriptor)
            return None  # another gateway of this folder keeps it
        self._lock = lock.Lock(descriptor)
        return folder / _NAME

    def _opened(self) -> sqlite3.Connection:
        if self._path is None:
            return _made("")
        try:
            return _kept_at(self._path)
        except (sqlite3.DatabaseError, _OfNoUseError) as error:
            _log.warning("what jobs are searched by is read from the log anew", reason=type(error).__name__)
            self._thrown_away()
            return _made(str(self._path))

    def _thrown_away(self) -> None:
        for tail in ("", "-wal", "-shm", "-journal") if self._path is not None else ():
            Path(f"{self._path}{tail}").unlink(missing_ok=True)


class _OfNoUseError(Exception):
    """The file is of another format, or damaged."""


def _kept_at(path: Path) -> sqlite3.Connection:
    """What an earlier process left; raises sqlite3.DatabaseError, _OfNoUseError."""
    if not path.exists():
        return _made(str(path))
    rows = _connected(str(path))
    try:
        _check(rows)
    except BaseException:
        rows.close()
        raise
    return rows


def _check(rows: sqlite3.Connection) -> None:
    if rows.execute("PRAGMA user_version").fetchone() != (_FORMAT,):
        raise _OfNoUseError
    if rows.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise _OfNoUseError
    rows.execute("INSERT INTO words (words) VALUES ('integrity-check')")


def _made(path: str) -> sqlite3.Connection:
    """An empty one; of a process that is killed before it is whole, the next sees another format."""
    if path:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    rows = _connected(path)
    rows.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_FORMAT}; COMMIT;")
    return rows


def _connected(path: str) -> sqlite3.Connection:
    rows = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    rows.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;" if path else _UNKEPT)
    return rows


_UNKEPT = "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;"


def _kept(text: str) -> str:
    """A text that SQLite takes."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
