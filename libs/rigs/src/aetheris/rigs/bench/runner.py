"""Runs workloads on an embedded system of its own, on a temporary folder, and measures them."""

import asyncio
import os
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from aetheris.cli import local, token_files
from aetheris.cli.embedded import kafka, lifecycle
from aetheris.cli.embedded.environment import alone
from aetheris.cli.embedded.jars import Progress
from aetheris.cli.embedded.plan import State
from aetheris.rigs.bench.completions import Completions, completions
from aetheris.rigs.bench.measurement import JobNotCompleted, NotMeasured, kill, measure_all, notes_in
from aetheris.rigs.bench.workloads import WARM_UP, Workload
from aetheris.sdk.client import AsyncClient

TOOLS = "aetheris.rigs.bench.tools"
FLOWS = "aetheris.rigs.bench.flows"
TOOLS_KNOWN_WITHIN_S = 30.0
WORKER = "executor-0"
HEAP_MIB = 1024
"""Of all brokers together."""
_KNOWN = frozenset({"note", "note_slowly"})
_IDLE_S = 2.0
"""Less than after what the gateway closes an idle connection: a request on its way then would be lost."""


@dataclass(frozen=True)
class Variant:
    """How the system is set up: whether chains of steps run as one, whether the broker flushes every record to disk.

    `policy` decides about the calls, where there is one; `env` is what its services see on top. Several `brokers` are a
    cluster with as many replicas, and share the memory that one has.
    """

    runs: bool = True
    flush_each: bool = False
    policy: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    brokers: int = 1

    @property
    def tuning(self) -> kafka.Tuning:
        """Each broker's."""
        share = (f"-Xms{HEAP_MIB // self.brokers}m", f"-Xmx{HEAP_MIB // self.brokers}m")
        jvm = (*share, *(option for option in kafka.FAST if not option.startswith(("-Xms", "-Xmx"))))
        return kafka.Tuning(jvm, {"log.flush.interval.messages": "1"} if self.flush_each else {})


class Aetheris:
    """The embedded system, as the bench sees it."""

    def __init__(self, data: Path, http: aiohttp.ClientSession, client: AsyncClient, seen: Completions) -> None:
        self._data = data
        self._http = http
        self._client = client
        self._seen = seen

    def pids(self) -> Mapping[str, int]:
        """Of the servers and the services, not of their supervisor."""
        state = State.load(self._data)
        parts = state.parts if state else {}
        return {name: part.pid for name, part in parts.items() if part.pid is not None}

    async def job(self, workload: Workload) -> str:
        """W2 asks once, and is answered at the job's end, as a client would; the others read the end from the log."""
        if workload.name == "W2":
            return await self._waited(workload)
        job_id = (await self._submit(workload))["job_id"]
        await self._seen.wait(job_id)
        return job_id

    async def _waited(self, workload: Workload) -> str:
        job = await self._submit(workload, {"Prefer": "wait=60"})
        if job["status"] != "completed":
            raise JobNotCompleted(f"{job['job_id']}: {job['status']}")
        return job["job_id"]

    async def _submit(self, workload: Workload, headers: Mapping[str, str] | None = None) -> dict[str, str]:
        """By a client that takes little of the machine that is measured (httpx: 2 ms of CPU a request)."""
        async with self._http.post("/api/jobs", json={"plan": workload.plan()}, headers=headers) as answer:
            answer.raise_for_status()
            return await answer.json()

    def crash_worker(self) -> None:
        """The executor; the supervisor starts it again."""
        kill(self.pids()[WORKER])

    async def tools_known(self, wanted: AbstractSet[str]) -> None:
        """The gateway learns of tools and workflows from the log, a moment after the executor has announced them.

        Raises:
            NotMeasured.
        """
        until = time.monotonic() + TOOLS_KNOWN_WITHIN_S
        while not wanted <= {tool["name"] for tool in await self._client.tools()}:
            if time.monotonic() > until:
                raise NotMeasured("the gateway knows no tool", [])
            await asyncio.sleep(0.05)


def run(
    workloads: Sequence[Workload], *, variant: Variant, warm_up_s: float, progress: Progress
) -> list[dict[str, Any]]:
    """Start, warm up, measure one workload after the other, end; a report of each.

    Raises:
        EmbeddedError, NotMeasured.
    """
    with tempfile.TemporaryDirectory(prefix="aetheris-bench-") as folder:
        data = Path(folder)
        with _running(data, variant, _in_code(workloads), progress) as state:
            reports = asyncio.run(_session(workloads, data, state, warm_up_s, progress))
    about = {
        "runs": variant.runs,
        "flush_each": variant.flush_each,
        "policy": variant.policy is not None,
        "cores": os.cpu_count(),
    }
    return [{**figures, **about} for figures in reports]


async def _session(
    workloads: Sequence[Workload], data: Path, state: State, warm_up_s: float, progress: Progress
) -> list[dict[str, Any]]:
    in_flight = max(workload.in_flight for workload in (*workloads, WARM_UP))
    token = local.target(data).token
    async with (
        _http(state, token, in_flight) as http,
        AsyncClient(state.gateway, token) as client,
        completions(state.kafka) as seen,
    ):
        system = Aetheris(data, http, client, seen)
        await system.tools_known(_KNOWN | ({"notes"} if _in_code(workloads) else frozenset()))
        return await measure_all(system, workloads, notes_in(data), warm_up_s, progress)


def _in_code(workloads: Sequence[Workload]) -> bool:
    return any(one.in_code for one in workloads)


@contextmanager
def _running(data: Path, variant: Variant, in_code: bool, progress: Progress) -> Generator[State]:
    """`in_code`: with the process of a workflow's bodies, which the other workloads do without."""
    runs, notes = str(variant.runs).lower(), str(notes_in(data))
    env = {
        "AETHERIS_TOOLS": f"{TOOLS},{FLOWS}" if in_code else TOOLS,
        "AETHERIS_BENCH_FILE": notes,
        "AETHERIS_RUNS": runs,
    }
    if variant.policy is not None:
        env["AETHERIS_POLICY"] = str(variant.policy.resolve())
    with alone(env | dict(variant.env)):
        token_files.ensure_tokens(data)
        state = lifecycle.up(data, progress=progress, brokers=variant.brokers, tuning=lambda _node: variant.tuning)
    try:
        yield state
    finally:
        lifecycle.down(data)


def _http(state: State, token: str, in_flight: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        state.gateway,
        headers={"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(limit=in_flight, keepalive_timeout=_IDLE_S),
    )
