"""Tools in processes of their own, on a whole system: what they can read, and kill -9 in mid-call counted outside."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from aetheris.cli.embedded import lifecycle
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import TOOLS, Rig, poke, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
CANARY = "a-word-of-this-test-alone"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    env = {
        "AETHERIS_TOOLS": f"{TOOLS},tests.testkit.isolated_tools",
        "AETHERIS_TOOL_ISOLATION": "process",
        "AETHERIS_TOOL_ENV": "OUTSIDE_URL",
        "AETHERIS_LEASE_TTL_S": "2",
        "AETHERIS_SESSION_TIMEOUT_S": "3",
        "CREDENTIAL": CANARY,
    }
    with running_rig(tmp_path_factory.mktemp("isolation"), env) as rig:
        yield rig


def processes_of(rig: Rig) -> set[int]:
    """All that the executor has started, and what that has."""
    found, queue = set[int](), [rig.system.pid("executor-0")]
    while queue:
        for path in Path(f"/proc/{queue.pop()}/task").glob("*/children"):
            queue += (pids := [int(pid) for pid in path.read_text().split()])
            found.update(pids)
    return found


def test_a_tool_that_takes_all_it_can_read_has_no_credential(rig: Rig, tmp_path: Path) -> None:
    job = rig.system.completed({"id": "a", "tool": "pries", "args": {"loot": str(tmp_path)}})
    (finished,) = rig.system.data_of(job, "tool_invocation_finished")
    assert finished["result"] == [], "no process of ours lets itself be read"
    taken = b"\0".join(one.read_bytes() for one in tmp_path.iterdir())
    state = rig.system.state()
    assert str(tmp_path).encode() in taken, "its own memory is in it"
    secrets = {"a variable": CANARY, "the brokers": state.kafka, "the store": state.redis}
    assert [name for name, secret in secrets.items() if secret.encode() in taken] == []
    rig.system.verified(job)


def test_the_executor_killed_in_mid_call_takes_its_tools_along(rig: Rig) -> None:
    name = fresh("executor-killed")
    held = rig.external.hold(name)
    job = rig.system.submit(poke("a", name, hold=name))
    rig.external.wait_for(1, name, PATIENCE_S)
    left = processes_of(rig)
    assert len(left) > 2, "a process of each module, and the call's"
    rig.system.kill("executor-0")
    until(lambda: not any(_lives(pid) for pid in left), PATIENCE_S)
    held.unlink()
    rig.system.wait_status(job, "completed", PATIENCE_S)
    assert rig.external.count(name) == 1
    assert rig.system.types(job, "invocation_probed"), "nobody had seen its end"
    rig.system.verified(job)


def test_a_calls_process_killed_in_the_middle_is_a_doubt_and_its_executor_goes_on(rig: Rig) -> None:
    name = fresh("call-killed")
    rig.system.completed(poke("a", f"{name}-before"))
    executor, before = rig.system.pid("executor-0"), processes_of(rig)
    held = rig.external.hold(name)
    job = rig.system.submit(poke("a", name, hold=name))
    rig.external.wait_for(1, name, PATIENCE_S)
    (call,) = processes_of(rig) - before
    os.kill(call, signal.SIGKILL)
    rig.system.wait_status(job, "completed", PATIENCE_S)
    held.unlink()
    assert rig.external.count(name) == 1
    (doubt,) = rig.system.data_of(job, "invocation_in_doubt")
    assert (doubt["error_class"], doubt["returned"]) == ("ToolProcessDied", True)
    assert rig.system.pid("executor-0") == executor
    rig.system.verified(job)


def test_a_hundred_calls_each_take_effect_once(rig: Rig) -> None:
    name = fresh("many")
    job = rig.system.submit(*(poke(f"n{number}", name) for number in range(100)))
    rig.system.wait_status(job, "completed", PATIENCE_S)
    assert rig.external.count(name) == 100
    assert lifecycle.status(rig.system.data).ready


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
