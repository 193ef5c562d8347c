"""`aetheris mcp proxy` before a server of tests, on the whole system; agents behind it are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.testkit.attempts import cleared_by, fresh
from tests.testkit.external_server import until
from tests.testkit.mcp_server import effects
from tests.testkit.policies import ruled_by
from tests.testkit.system import REPOSITORY, System, running_system

POLICY = """
[[rules]]
name = "acts"
tools = ["t.act"]
effect = "approval"

[[rules]]
name = "all"
tools = ["*"]
effect = "allow"
"""


@dataclass(frozen=True)
class ProxyRig:
    """A system with the tools of an MCP server that keeps its effects in `home`; `env` is what a proxy is given."""

    system: System
    home: Path
    env: dict[str, str]

    def command(self, *options: str, server: str = "t") -> list[str]:
        """A proxy on stdio."""
        own = ["mcp", "proxy", server, "--data", str(self.system.data), *options]
        return [sys.executable, "-m", "aetheris.cli", *own]

    @asynccontextmanager
    async def agent(self, *options: str, server: str = "t", **how: Any) -> AsyncGenerator[Client]:
        """A client of a proxy of its own."""
        command, *args = self.command(*options, server=server)
        proxy = StdioServerParameters(command=command, args=args, env=self.env, cwd=REPOSITORY)
        async with Client(proxy, **how) as client:
            yield client

    @contextmanager
    def listening(self, *options: str) -> Generator[str]:
        """A proxy on HTTP; gives its URL, below which the servers are."""
        argv = [sys.executable, "-m", "aetheris.cli", "mcp", "proxy", "--data", str(self.system.data), *options]
        argv += ["--listen", "127.0.0.1", "--port", "0"]
        env = {**os.environ, **self.env}
        with subprocess.Popen(argv, cwd=REPOSITORY, env=env, stderr=subprocess.PIPE, text=True) as proxy:
            try:
                assert proxy.stderr is not None
                yield proxy.stderr.readline().split()[-1].removesuffix("/t/mcp")
            finally:
                proxy.terminate()

    def jobs(self) -> set[str]:
        return {one["job_id"] for one in self.system.api.get("/jobs", params={"limit": 200}).json()["jobs"]}


@contextmanager
def running_proxy_rig(folder: Path, **servers: Any) -> Generator[ProxyRig]:
    """Up, and down again; `servers` are more of them."""
    home = folder / "home"
    home.mkdir()
    server: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-m", "tests.testkit.mcp_rich_server", str(home)],
        "cwd": str(REPOSITORY),
        "annotations": "trusted",
        "tools": {"issue": {"external_key": "request_id", "effect_class": "idempotent", "irreversible": True}},
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"t": server, **servers}}))
    env = {"AETHERIS_TOOLS": "tests.testkit.file_tools", "AETHERIS_MCP": str(folder / "mcp.json")}
    env |= ruled_by(folder, POLICY)
    held = home / "hold"
    with running_system(folder / "data", env) as system, cleared_by(lambda: held.unlink(missing_ok=True)):
        yield ProxyRig(system, home, {"AETHERIS_MCP": env["AETHERIS_MCP"], "PATH": os.environ["PATH"]})


def killed_flow(rig: ProxyRig, agent: list[str], kills: int) -> None:
    """A refund and a mail by an agent, which is given a tag and a proxy's command; each happens once.

    Half of the kills come in the refund, half in the mail: of the agent, of its proxy, now and then of the executor.
    """
    tag = fresh("flow")
    argv = [*agent, tag, *rig.command("--run", tag)]
    held, env, before = rig.home / "hold", {**os.environ, **rig.env}, rig.jobs()
    pauses = random.Random(tag)  # noqa: S311 - no secret
    for what in ("refund", "mail"):
        held.touch()
        for kill in range(kills // 2):
            with subprocess.Popen(argv, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, text=True) as started:
                if kill == 0:
                    until(lambda text=f"{what} {tag}": bool(effects(rig.home, "issue", text)), 60)
                else:
                    time.sleep(pauses.uniform(0.5, 3.0))
                if kill % 6 == 0:
                    rig.system.kill("executor-0")
                elif kill % 2:
                    started.kill()
                else:
                    for child in children(started.pid):
                        os.kill(child, signal.SIGKILL)
                started.kill()
        if what == "refund":
            held.unlink()
            rig.system.wait_ended(rig.jobs() - before)
    held.unlink()
    done = subprocess.run(argv, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "done\n", done.stderr
    assert [len(effects(rig.home, "issue", f"{what} {tag}")) for what in ("refund", "mail")] == [1, 1]
    until(lambda: not proxies_of(tag), 30)
    for job in rig.jobs() - before:
        assert rig.system.report(job)["violations"] == []


def children(pid: int) -> list[int]:
    """Processes that it has started, and that live."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def proxies_of(run: str) -> list[int]:
    """Those that live, of a run."""
    found: list[int] = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            argv = (process / "cmdline").read_text().split("\0") if process.name.isdigit() else []
            if argv[-3:-1] == ["--run", run] and "refund_flow" not in " ".join(argv):
                found.append(int(process.name))
    return found
