"""Temporal: its development server on a database file, one worker, one process that starts workflows.

The file is in WAL mode, in which the server is faster than in SQLite's default.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from aetheris.cli.embedded.ports import Ports, is_free
from tests.bench.environment import Environment
from tests.bench.workers import AskedPeer, asking, processes_in

_SERVER, _WORKER, _CLIENT = "temporal-server", "worker", "temporal-client"


@asynccontextmanager
async def with_activities(folder: Path, environment: Environment) -> AsyncGenerator[AskedPeer]:
    """Every step is an activity."""
    async with _running(folder, environment, local=False) as peer:
        yield peer


@asynccontextmanager
async def with_local_activities(folder: Path, environment: Environment) -> AsyncGenerator[AskedPeer]:
    """Every step is a local activity."""
    async with _running(folder, environment, local=True) as peer:
        yield peer


@asynccontextmanager
async def _running(folder: Path, environment: Environment, *, local: bool) -> AsyncGenerator[AskedPeer]:
    ports = Ports(folder)
    port, takes_jobs = ports.get("temporal"), folder / "client.sock"
    settings = {"BENCH_TEMPORAL": f"127.0.0.1:{port}", "BENCH_LOCAL": str(int(local)), "BENCH_SOCKET": str(takes_jobs)}
    async with processes_in(folder) as processes:
        database = ("--db-filename", str(folder / "temporal.sqlite"), "--sqlite-pragma", "journal_mode=wal")
        listens = ("--ip", "127.0.0.1", "--port", str(port), "--headless", "--log-level", "error")
        processes.start(_SERVER, (str(environment.temporal), "server", "start-dev", *database, *listens))
        processes.await_ready(_SERVER, lambda: not is_free(port))
        processes.start(_WORKER, environment.worker("temporal_worker"), settings)
        processes.start(_CLIENT, environment.worker("temporal_client"), settings)
        async with asking(processes, _WORKER, _CLIENT, takes_jobs) as peer:
            yield peer
