"""Two executors, and a body whose executor sleeps or has other code: each effect is there once all the same."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from aetheris.runtime.process.installation import process_of
from tests.testkit.attempts import fresh
from tests.testkit.external_flows import flow_node
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

MODULES = "tests.testkit.external_tools,tests.testkit.external_flows,deployed_flow"
CODE = """
from aetheris.sdk.workflows import WorkflowContext, workflow
from tests.testkit.external_tools import poke_idempotent

@workflow(name="deployed", tools=[poke_idempotent])
async def deployed(ctx: WorkflowContext, tag: str) -> str:
    for number in range(20):
        await ctx.call(poke_idempotent, tag=f"{tag}-{number}", delay_s=0.2)
"""
OLD = (
    CODE
    + """
    return "old"
"""
)
NEW = (
    CODE
    + """
    await ctx.call(poke_idempotent, tag=f"{tag}-20")
    return "new"
"""
)
STEPS = 40
SLEEP_S = 180


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a workflow, as an executor loads it that starts from now on."""
    return tmp_path_factory.mktemp("code") / "deployed_flow.py"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, code: Path) -> Generator[Rig]:
    code.write_text(OLD)
    env = {"AETHERIS_TOOLS": MODULES, "AETHERIS_TOOLS_FOLDER": str(code.parent)}
    with running_rig(tmp_path_factory.mktemp("superseded"), env, executor=2) as rig:
        yield rig


def bodies(rig: Rig, job: str) -> list[dict[str, Any]]:
    """The starts of a job's bodies."""
    return [one for one in rig.system.data_of(job, "tool_invocation_started") if one.get("plans")]


def executor_of(body: dict[str, Any]) -> str:
    """The part that runs a body."""
    return process_of(body["worker_id"])


def keys_of(rig: Rig, tag: str, steps: int) -> list[list[str]]:
    """Under which keys each of a job's effects has reached the external system."""
    found: dict[str, list[str]] = {}
    for effect in rig.external.effects():
        found.setdefault(effect["tag"], []).append(effect["key"])
    return [found.get(f"{tag}-{number}", []) for number in range(steps)]


@pytest.mark.parametrize("wakes", ["in the middle", "behind its end"])
def test_an_executor_that_sleeps_in_the_middle_of_a_body_and_wakes_makes_no_effect_a_second_time(
    rig: Rig, wakes: str
) -> None:
    tag = fresh("sleeps")
    job = rig.system.submit(flow_node("w", "steady", tag=tag, steps=STEPS, delay_s=0.2))
    rig.external.wait_for(1, f"{tag}-4")
    first = bodies(rig, job)[0]
    with rig.system.asleep(executor_of(first)):
        until(lambda: len(bodies(rig, job)) == 2, SLEEP_S)
        if wakes == "behind its end":
            rig.system.wait_status(job, "completed", SLEEP_S)
    rig.system.wait_status(job, "completed", SLEEP_S)
    second = bodies(rig, job)[1]
    assert second["worker_id"] != first["worker_id"]
    rig.system.wait_ready(120)
    other = fresh("behind")  # whatever the woken one still does, it does before this
    behind = [rig.system.submit(flow_node("w", "steady", tag=f"{other}{one}", steps=3)) for one in range(6)]
    rig.system.wait_ended(behind, SLEEP_S)
    assert [len(set(found)) for found in keys_of(rig, tag, STEPS)] == [1] * STEPS
    again = [at for at, found in enumerate(keys_of(rig, tag, STEPS)) if len(found) > 1]
    assert len(again) <= 1, f"only what was under way when it fell asleep may be sent again: {again}"
    planned = [one for one in rig.system.data_of(job, "call_planned") if one["invocation_id"] == first["invocation_id"]]
    assert len(planned) < STEPS, "the sleeper had not planned them all"
    assert rig.system.job(job)["result"]["w"] == STEPS
    rig.system.verified(job)


def test_an_executor_with_old_code_beside_one_with_new_takes_over_what_that_has_begun(rig: Rig, code: Path) -> None:
    code.write_text(NEW)
    rig.system.kill("executor-1")
    rig.system.wait_ready(120)
    seen: set[tuple[str, str]] = set()
    for _ in range(2):
        tag = fresh("deployed")
        job = rig.system.submit(flow_node("w", "deployed", tag=tag))
        rig.external.wait_for(1, f"{tag}-3")
        first = bodies(rig, job)[0]
        with rig.system.asleep(executor_of(first)):
            rig.system.wait_status(job, "completed", SLEEP_S)
        hashes = [one["code"]["hash"] for one in bodies(rig, job)]
        result = rig.system.job(job)["result"]["w"]
        seen.add((executor_of(first), result))
        assert len(set(hashes)) == 2, "old and new code have run"
        assert [len(set(found)) for found in keys_of(rig, tag, 20)] == [1] * 20
        assert rig.external.count(f"{tag}-20") == (result == "new")
        rig.system.verified(job)
        rig.system.wait_ready(120)
    assert all(result == ("new" if part == "executor-0" else "old") for part, result in seen)
