"""Services as processes of their own, on brokers and settings that a test brings."""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from aetheris.cli.embedded.kafka import wait_ready
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import redis_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.cli.embedded.valkey import server_binary

SERVICES = ("planner", "ledger", "tool_executor", "verifier", "gateway")


def asked(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, dict[str, Any]]:
    """Status and body; (0, {}) where nothing listens."""
    try:
        answer = httpx.get(f"http://{host}:{port}{path}", timeout=10, trust_env=False)
    except httpx.TransportError:
        return 0, {}
    return answer.status_code, answer.json()


@contextmanager
def processes(
    folder: Path,
    settings: Mapping[str, str],
    own: Mapping[str, Mapping[str, str]] | None = None,
    within: Mapping[str, Sequence[str]] | None = None,
) -> Generator[dict[str, tuple[subprocess.Popen[bytes], int]]]:
    """Each service, and the port of its health; `own` are the settings of one service alone, `within` is what
    runs it."""
    ports = Ports(folder)
    with ExitStack() as ending:
        found: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
        for service in SERVICES:
            named = {
                "AETHERIS_WORKER_ID": f"{service}-0",
                "AETHERIS_HEALTH_PORT": str(ports.get(f"{service}-health")),
                "AETHERIS_HTTP_PORT": str(ports.get(f"{service}-http")),
            }
            argv = [*(within or {}).get(service, ()), sys.executable, "-m", f"aetheris.{service}"]
            child = spawn(
                argv,
                log=folder / f"{service}.log",
                env=os.environ | settings | named | dict((own or {}).get(service, {})),
            )
            ending.callback(end, child, 1.0)
            found[service] = (child, ports.get(f"{service}-health"))
        yield found


@contextmanager
def valkey_on_a_port(folder: Path, port: int, host: str = "127.0.0.1") -> Generator[str]:
    """A Valkey that others reach; its Redis url."""
    url, log = f"redis://{host}:{port}/0", folder / "valkey.log"
    argv = [str(server_binary()), "--bind", host, "--port", str(port), "--protected-mode", "no"]
    argv += ["--dir", str(folder), "--appendonly", "yes"]
    child = spawn(argv, log=log)
    try:
        wait_ready("valkey", lambda: redis_answers(url), lambda: child.poll() is None, log)
        yield url
    finally:
        end(child, 10)
