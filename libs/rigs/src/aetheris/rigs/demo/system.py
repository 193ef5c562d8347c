"""Aetheris for the demo: the embedded system on a folder, in an environment of its own, and ways to hurt it."""

import asyncio
import os
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from aetheris.cli import local, token_files
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.environment import alone
from aetheris.cli.embedded.errors import EmbeddedError, NotRunningError
from aetheris.cli.embedded.plan import State
from aetheris.rigs.demo.progress import Say
from aetheris.runtime.redis.client import Redis
from aetheris.sdk.client import Client, Job, Unreachable

SETTINGS = {
    "AETHERIS_TOOLS": "aetheris.rigs.demo.tools",
    "AETHERIS_POLICY": str(Path(__file__).with_name("policy.toml")),
    "AETHERIS_TRACE_SAMPLE": "1",
}
RESTART_WITHIN_S = 20.0
_LOOK_EVERY_S = 0.01
_ASK_AGAIN_S = 0.2


@dataclass(frozen=True)
class DemoSystem:
    """What runs on the data folder."""

    data: Path
    client: Client

    def submit(self, plan: Mapping[str, Any], idempotency_key: str) -> str:
        """The job's id; asks again while the gateway is not ready, which the key makes safe.

        Raises:
            ApiError: it can't be taken.
        """
        deadline = time.monotonic() + RESTART_WITHIN_S
        while True:
            try:
                return self.client.submit(plan, idempotency_key=idempotency_key).job_id
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_ASK_AGAIN_S)

    def kill(self, part: str) -> int:
        """kill -9 the process of a part, such as `executor-0`; returns its pid.

        Raises:
            TimeoutError: it does not run.
        """
        pid = self._pid(part)
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_everything(self) -> int:
        """kill -9 the supervisor, Kafka, Valkey and every service; returns how many processes there were.

        The client of this system is of no use afterwards: start it again on the same folder.
        """
        state = self._state()
        pids = [pid for pid in (state.pid, *(part.pid for part in state.parts.values())) if pid is not None]
        for pid in pids:  # the supervisor first: it would start the others again
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def flush_redis(self) -> None:
        """FLUSHALL: leases, the effect store and every view are gone.

        Raises:
            RedisUnavailable.
        """
        asyncio.run(_flush(self._state().redis))

    def job(self, job_id: str) -> Job | None:
        """How the job stands; None while the gateway can't say."""
        try:
            return self.client.job(job_id)
        except Unreachable:
            return None

    def _pid(self, part: str) -> int:
        """It may be between two lives."""
        deadline = time.monotonic() + RESTART_WITHIN_S
        while (pid := self._state().parts[part].pid) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{part} does not run: see {self.data / 'logs'}")
            time.sleep(_LOOK_EVERY_S)
        return pid

    def _state(self) -> State:
        state = State.load(self.data)
        if state is None:
            raise NotRunningError(f"Nothing runs on {self.data}", "Run the demo again.")
        return state


def check_free(data: Path) -> None:
    """Raises: EmbeddedError: a system runs on the folder; it is not ours to kill."""
    if lifecycle.supervisor_pid(data) is not None:
        raise EmbeddedError(f"Something runs on {data}", f"End it with `aetheris down --data {data}`.")


@contextmanager
def running(data: Path, env: Mapping[str, str], say: Say, *, keep: bool) -> Generator[DemoSystem]:
    """Everything up, and down again at the end unless it is to be kept; `env` is for the tools.

    Raises:
        EmbeddedError: it doesn't come up.
    """
    with ExitStack() as stack:
        with alone({**SETTINGS, **env}):
            token_files.ensure_tokens(data)
            if not keep:
                stack.callback(_down, data)
            lifecycle.up(data, progress=lambda part, what: say.detail(f"{part}: {what}"))
            gateway = local.target(data)
        client = Client(gateway.url, gateway.token, transport=httpx.HTTPTransport())  # past any proxy
        yield DemoSystem(data, stack.enter_context(client))


def _down(data: Path) -> None:
    with suppress(NotRunningError):
        lifecycle.down(data)


async def _flush(url: str) -> None:
    redis = Redis(url)
    try:
        await redis.pipeline([("FLUSHALL",)])
    finally:
        await redis.close()
