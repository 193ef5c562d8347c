"""DBOS: a library in the worker, with Postgres or SQLite."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bench import postgres
from tests.bench.environment import Environment
from tests.bench.workers import AskedPeer, asking, processes_in

_WORKER = "worker"


@asynccontextmanager
async def on_postgres(folder: Path, environment: Environment) -> AsyncGenerator[AskedPeer]:
    """The worker, and a Postgres of its own."""
    async with processes_in(folder) as processes:
        settings = _settings(folder, postgres.start(processes))
        processes.start(_WORKER, environment.worker("dbos_worker"), settings)
        async with asking(processes, _WORKER, _WORKER, _socket(folder)) as peer:
            yield peer


@asynccontextmanager
async def on_sqlite(folder: Path, environment: Environment) -> AsyncGenerator[AskedPeer]:
    """The worker alone."""
    async with processes_in(folder) as processes:
        settings = _settings(folder, f"sqlite:///{folder / 'dbos.sqlite'}")
        processes.start(_WORKER, environment.worker("dbos_worker"), settings)
        async with asking(processes, _WORKER, _WORKER, _socket(folder)) as peer:
            yield peer


def _settings(folder: Path, database: str) -> dict[str, str]:
    return {"BENCH_DATABASE": database, "BENCH_SOCKET": str(_socket(folder))}


def _socket(folder: Path) -> Path:
    return folder / "worker.sock"
