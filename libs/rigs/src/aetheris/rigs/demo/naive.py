"""The naive agent, killed (SIGKILL) once in each call that changes something: what the external systems have then."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aetheris.rigs.demo.external_systems import DemoExternalSystems, EffectCounts
from aetheris.rigs.demo.gate import Gate

WITHIN_S = 60.0


@dataclass(frozen=True)
class NaiveCrash:
    """Where an agent is killed: the call in words, its server, its bytes, what counts its effect."""

    effect: str
    server: str
    call: bytes
    effects: Callable[[EffectCounts], int]
    variable: str
    address: str

    def through(self, port: int) -> dict[str, str]:
        """The environment of an agent that calls the server by another port."""
        return {self.variable: self.address.format(port)}


CRASHES = (
    NaiveCrash(
        "refund", "stripe", b"POST /v1/refunds", lambda has: has.refunds, "DEMO_STRIPE_URL", "http://127.0.0.1:{}"
    ),
    NaiveCrash("mail", "smtp", b"\r\n.\r\n", lambda has: has.mails, "DEMO_SMTP", "127.0.0.1:{}"),
    NaiveCrash(
        "issue", "tracker", b"POST /rest/data/issue", lambda has: has.issues, "DEMO_TRACKER_URL", "http://127.0.0.1:{}"
    ),
)


def run_naive(
    external: DemoExternalSystems,
    folder: Path,
    order_id: str,
    on_kill: Callable[[NaiveCrash], None] = lambda _crash: None,
) -> EffectCounts:
    """Run the agent to its end with a kill in each call; gives what the external systems have of the order.

    Each kill comes when the effect is there and its answer is still on the way. Started again, the agent goes on
    from its progress file.

    Raises:
        TimeoutError: an effect didn't come, or the agent didn't end, within a minute.
        RuntimeError: the agent ended before it could be killed, or failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for crash in CRASHES:
        _run_and_kill(external, folder, order_id, crash)
        on_kill(crash)
    _run_to_the_end(external, folder, order_id)
    return external.counts(order_id)


def _run_and_kill(external: DemoExternalSystems, folder: Path, order_id: str, crash: NaiveCrash) -> None:
    before = crash.effects(external.counts(order_id))
    with Gate(external.ports[crash.server]) as gate:
        gate.hold_after(crash.call)
        agent = _start(folder, order_id, {**external.env, **crash.through(gate.port)})
        try:
            _wait_for_effect(agent, lambda: crash.effects(external.counts(order_id)) > before)
        finally:
            agent.kill()
            agent.wait()


def _wait_for_effect(agent: subprocess.Popen[bytes], seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not seen():
        if agent.poll() is not None:
            raise RuntimeError("the naive agent ended before it could be killed")
        if time.monotonic() > deadline:
            raise TimeoutError("the naive agent's call took no effect")
        time.sleep(0.01)


def _run_to_the_end(external: DemoExternalSystems, folder: Path, order_id: str) -> None:
    agent = _start(folder, order_id, external.env)
    try:
        agent.wait(WITHIN_S)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()
        raise TimeoutError("the naive agent did not end") from None
    if agent.returncode:
        raise RuntimeError(f"the naive agent failed: see {folder / 'naive.log'}")


def _start(folder: Path, order_id: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    progress = str(folder / "progress.json")
    argv = [sys.executable, "-m", "aetheris.rigs.demo.naive_agent", progress, order_id]
    with (folder / "naive.log").open("ab") as log:
        return subprocess.Popen(argv, env={**os.environ, **env}, stdout=log, stderr=log)
