"""Processes of a peer, ended by their pids; and how its worker is asked for jobs."""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from aetheris.cli.embedded.bytecode import kept_bytecode
from aetheris.cli.embedded.kafka import wait_ready
from aetheris.cli.embedded.processes import end, spawn
from aetheris.rigs.bench.measurement import JobNotCompleted, kill, notes_in
from aetheris.rigs.bench.workloads import Workload

GRACE_S = 5.0
_ASK_AGAIN_S = 0.02


class Processes:
    """The children of one peer on one folder, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[str, tuple[Popen[bytes], tuple[str, ...], Mapping[str, str]]] = {}

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start a child; `env` comes on top of this process's own, and says where the tool's file is."""
        full = {**os.environ, "BENCH_FILE": str(notes_in(self.folder)), **kept_bytecode(), **(env or {})}
        self._children[name] = (spawn(argv, log=self._log(name), env=full), tuple(argv), full)

    def await_ready(self, name: str, ready: Callable[[], bool]) -> None:
        """Ask until the answer is yes.

        Raises: NotReadyError.
        """
        child = self._children[name][0]
        wait_ready(name, ready, lambda: child.poll() is None, self._log(name))

    def crash(self, name: str) -> None:
        """Kill it; once it is gone, start it again, at once."""
        child, argv, env = self._children[name]
        kill(child.pid)
        child.wait()
        self._children[name] = (spawn(argv, log=self._log(name), env=env), argv, env)

    def pids(self) -> Mapping[str, int]:
        """Of all of them."""
        return {name: child.pid for name, (child, _, _) in self._children.items()}

    def end(self) -> None:
        """The last one started first; past the grace by SIGKILL."""
        for child, _, _ in reversed(self._children.values()):
            end(child, GRACE_S)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


class Asking:
    """Asks for jobs over a worker's socket (peers/asked.py); asks again where the worker was killed meanwhile."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()

    async def job(self, workload: Workload) -> str:
        """Run one job.

        Raises:
            JobNotCompleted.
        """
        asked = request(workload)
        while True:
            try:
                await self._ask(asked)
                return asked["job"]
            except OSError:  # nobody listens, or nobody any more
                await asyncio.sleep(_ASK_AGAIN_S)

    async def close(self) -> None:
        """Whoever waits is left alone."""
        if self._writer is not None and self._reading is not None:
            self._writer.close()
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _ask(self, asked: Mapping[str, Any]) -> None:
        writer = await self._connected()
        ended = self._waiting[asked["job"]] = asyncio.get_running_loop().create_future()
        writer.write(json.dumps(asked).encode() + b"\n")
        await ended

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None:
                reader, self._writer = await asyncio.open_unix_connection(str(self._socket))
                self._reading = asyncio.create_task(self._read(reader))
            return self._writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._take(json.loads(line))
        except OSError:
            pass
        self._writer, lost, self._waiting = None, self._waiting, {}
        for ended in lost.values():
            ended.set_exception(ConnectionResetError())

    def _take(self, said: Mapping[str, str]) -> None:
        ended = self._waiting.pop(said["job"])
        if "error" in said:
            ended.set_exception(JobNotCompleted(said["error"]))
        else:
            ended.set_result(None)


class AskedPeer:
    """A peer whose jobs are asked for over a socket, as the bench sees it."""

    def __init__(self, processes: Processes, worker: str, asking: Asking) -> None:
        self._processes = processes
        self._worker = worker
        self._asking = asking

    def pids(self) -> Mapping[str, int]:
        """Of its processes."""
        return self._processes.pids()

    async def job(self, workload: Workload) -> str:
        """Ask for one job, by whichever process takes them."""
        return await self._asking.job(workload)

    def crash_worker(self) -> None:
        """Kill the process that runs the tool, and start it again."""
        self._processes.crash(self._worker)


def request(workload: Workload) -> dict[str, Any]:
    """One job of a workload (note.Job)."""
    return {
        "job": uuid.uuid4().hex,
        "steps": workload.steps,
        "parallel": workload.parallel,
        "slow": workload.slow,
    }


@asynccontextmanager
async def processes_in(folder: Path) -> AsyncGenerator[Processes]:
    """Children that end with the block."""
    processes = Processes(folder)
    try:
        yield processes
    finally:
        processes.end()


@asynccontextmanager
async def asking(processes: Processes, worker: str, taker: str, socket: Path) -> AsyncGenerator[AskedPeer]:
    """The peer whose tool runs in `worker`, once `taker` takes jobs at the socket."""
    processes.await_ready(taker, socket.is_socket)
    asks = Asking(socket)
    try:
        yield AskedPeer(processes, worker, asks)
    finally:
        await asks.close()
