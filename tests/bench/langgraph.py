"""LangGraph: a library in the worker, with its SQLite checkpointer."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bench.environment import Environment
from tests.bench.workers import AskedPeer, asking, processes_in

_WORKER = "worker"


@asynccontextmanager
async def running(folder: Path, environment: Environment) -> AsyncGenerator[AskedPeer]:
    """The worker alone."""
    socket = folder / "worker.sock"
    settings = {"BENCH_DATABASE": str(folder / "langgraph.sqlite"), "BENCH_SOCKET": str(socket)}
    async with processes_in(folder) as processes:
        processes.start(_WORKER, environment.worker("langgraph_worker"), settings)
        async with asking(processes, _WORKER, _WORKER, socket) as peer:
            yield peer
