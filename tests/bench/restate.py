"""Restate: its server, and one worker that it calls over HTTP/2."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import httpx

from aetheris.cli.embedded.ports import Ports, is_free
from aetheris.rigs.bench.measurement import DEADLINE_S, JobNotCompleted
from aetheris.rigs.bench.workloads import Workload
from tests.bench.environment import Environment
from tests.bench.workers import Processes, processes_in, request

_SERVER, _WORKER = "restate-server", "worker"
_LOCAL = "http://127.0.0.1"


class Restate:
    """Jobs are calls of its ingress, which answers at their end."""

    def __init__(self, processes: Processes, ingress: aiohttp.ClientSession) -> None:
        self._processes = processes
        self._ingress = ingress

    def pids(self) -> Mapping[str, int]:
        """The server's and the worker's."""
        return self._processes.pids()

    async def job(self, workload: Workload) -> str:
        """Call the handler."""
        asked = request(workload)
        async with self._ingress.post("/bench/run", json=asked) as answer:
            if not answer.ok:
                raise JobNotCompleted(f"{answer.status}: {await answer.text()}")
        return asked["job"]

    def crash_worker(self) -> None:
        """The server notices, and calls again."""
        self._processes.crash(_WORKER)


@asynccontextmanager
async def running(folder: Path, environment: Environment) -> AsyncGenerator[Restate]:
    """Start the server and the worker, and make them known to each other."""
    ports = Ports(folder)
    ingress, admin, node, worker = (ports.get(name) for name in ("ingress", "admin", "node", "worker"))
    async with processes_in(folder) as processes:
        processes.start(_SERVER, (str(environment.restate), "--no-logo"), _settings(folder, ingress, admin, node))
        processes.start(_WORKER, environment.worker("restate_worker"), {"BENCH_PORT": str(worker)})
        processes.await_ready(_SERVER, lambda: _answers(f"{_LOCAL}:{admin}/health"))
        processes.await_ready(_SERVER, lambda: _answers(f"{_LOCAL}:{ingress}/restate/health"))
        processes.await_ready(_WORKER, lambda: not is_free(worker))
        async with _client(f"{_LOCAL}:{ingress}") as client:
            known = await client.post(f"{_LOCAL}:{admin}/deployments", json={"uri": f"{_LOCAL}:{worker}"})
            known.raise_for_status()
            yield Restate(processes, client)


def _client(url: str) -> aiohttp.ClientSession:
    """As Aetheris is asked."""
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=DEADLINE_S)
    return aiohttp.ClientSession(url, connector=connector, timeout=timeout)


def _settings(folder: Path, ingress: int, admin: int, node: int) -> Mapping[str, str]:
    return {
        "RESTATE_BASE_DIR": str(folder / "restate"),
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_ADVERTISED_HOST": "127.0.0.1",
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
    }


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).is_success
    except httpx.TransportError:
        return False
