"""Services as processes of their own, on brokers and settings that a test brings."""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from aetheris.cli.embedded.kafka import wait_ready
from aetheris.cli.embedded.ports import Ports, free_port
from aetheris.cli.embedded.probes import redis_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.cli.embedded.valkey import server_binary
from aetheris.verifier.apart import KEYS, OTHERS_KEYS, SUBJECT_KEYS, TOOLS

SERVICES = ("planner", "ledger", "tool_executor", "prober", "verifier", "gateway")
_WITHHELD = {
    "planner": SUBJECT_KEYS,
    "ledger": SUBJECT_KEYS,
    "tool_executor": KEYS,
    "prober": (*OTHERS_KEYS, *SUBJECT_KEYS),
    "verifier": (*TOOLS, *SUBJECT_KEYS),
}


def module_of(service: str) -> str:
    """What Python runs to be it."""
    return "aetheris.verifier.prober" if service == "prober" else f"aetheris.{service}"


def withheld_from(service: str) -> dict[str, str]:
    """The settings that it is not told, whoever shares the others with it."""
    return dict.fromkeys(_WITHHELD.get(service, ()), "")


def asked(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, dict[str, Any]]:
    """Status and body; (0, {}) where nothing listens."""
    try:
        answer = httpx.get(f"http://{host}:{port}{path}", timeout=10, trust_env=False)
    except httpx.TransportError:
        return 0, {}
    return answer.status_code, answer.json()


@dataclass(frozen=True)
class ServiceProcess:
    """A service in a process of its own, where its log is, and the port of its health."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def ready(self) -> bool:
        return asked(self.port, "/readyz")[0] == 200

    def unready(self, part: str) -> str:
        """What it says of a part that is not ready; empty where it says nothing of it."""
        return str(asked(self.port, "/readyz")[1].get("unready", {}).get(part, ""))

    def ended(self) -> bool:
        return self.process.poll() is not None

    def wait_ended(self, deadline_s: float = 90.0) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(deadline_s)


@contextmanager
def running_service(service: str, folder: Path, env: Mapping[str, str]) -> Generator[ServiceProcess]:
    """A service that sees no settings but these; its log is in the folder. Killed with -9 at the end."""
    port = free_port()
    log = folder / f"{service}-{port}.log"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AETHERIS_")}
    given = {"AETHERIS_DEV": "1", "AETHERIS_HEALTH_PORT": str(port), **env}
    process = spawn((sys.executable, "-m", module_of(service)), log=log, env=kept | given)
    try:
        yield ServiceProcess(process, log, port)
    finally:
        process.kill()
        process.wait()


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
            argv = [*(within or {}).get(service, ()), sys.executable, "-m", module_of(service)]
            child = spawn(
                argv,
                log=folder / f"{service}.log",
                env=os.environ | settings | withheld_from(service) | named | dict((own or {}).get(service, {})),
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
