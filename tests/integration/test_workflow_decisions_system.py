"""Workflows on the whole system: what people, the clock and the policy say of them, and how they are undone."""

from collections.abc import Generator

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.external_flows import flow_node
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(240)]

MODULES = "tests.testkit.external_tools,tests.testkit.waiting_flows"
PATIENCE_S = 60.0
POLICY = '[[rules]]\nname = "ask"\ntools = ["poke_irreversible"]\neffect = "approval"\n' + ALLOW_REST


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    folder = tmp_path_factory.mktemp("workflow-decisions")
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    env = {"AETHERIS_TOOLS": MODULES, "AETHERIS_POLICY": str(policy), "AETHERIS_WORKFLOW_IDLE_S": "0.5"}
    with running_rig(folder, env) as rig:
        yield rig


def decided(rig: Rig, answer: str) -> tuple[str, str]:
    """(tag, the job): everything that it waits for has been answered; a signal before its workflow asks for it."""
    tag = fresh("decided")
    job = rig.system.submit(flow_node("w", "decided", tag=tag))
    assert rig.system.signal(job, "go", "it").status_code in (200, 202)
    asked = rig.system.wait_asked(job, PATIENCE_S)
    body = {"request_id": asked["request_id"], "action": answer}
    answered = rig.system.api.post("/ecs/respond", json=body, headers=rig.system.approver)
    assert answered.status_code in (200, 202), answered.text
    rig.system.wait_ended([job], PATIENCE_S)
    return tag, job


def test_a_workflow_waits_for_a_signal_the_clock_and_a_human_and_is_asked_once(rig: Rig) -> None:
    tag, job = decided(rig, "approve")
    assert rig.system.job(job)["result"] == {"w": "sent"}
    assert rig.external.count(f"{tag}-it") == 1
    assert len(rig.system.events(job, "approval_requested")) == 1
    rig.system.verified(job)


def test_a_humans_no_comes_back_to_the_code_as_a_failure_that_it_may_catch(rig: Rig) -> None:
    tag, job = decided(rig, "reject")
    assert rig.system.job(job)["status"] == "completed"
    assert (rig.external.count(f"{tag}-it"), rig.external.count(f"{tag}-not")) == (0, 1)
    rig.system.verified(job)


def test_a_workflow_that_fails_is_undone_the_last_call_first(rig: Rig) -> None:
    tag = fresh("undone")
    job = rig.system.submit(flow_node("w", "undone", tag=tag, fails=True))
    rig.system.wait_ended([job], PATIENCE_S)
    assert rig.system.job(job)["status"] == "failed"
    assert [rig.external.count(f"{tag}-undo-{number}") for number in range(2)] == [1, 1]
    (end,) = rig.system.data_of(job, "job_failed")
    ids = [event["node_id"] for event in rig.system.data_of(job, "call_planned")][:2]
    assert end["compensated"] == ids[::-1]
    rig.system.verified(job)


def test_a_cancel_ends_a_waiting_workflow_and_undoes_what_it_did(rig: Rig) -> None:
    tag = fresh("undone")
    job = rig.system.submit(flow_node("w", "undone", tag=tag, fails=False))
    rig.system.wait_status(job, "waiting", PATIENCE_S)
    cancelled = rig.system.api.post(f"/jobs/{job}/cancel", json={"reason": "enough", "compensate": True})
    assert cancelled.status_code in (200, 202), cancelled.text
    rig.system.wait_ended([job], PATIENCE_S)
    assert rig.system.job(job)["status"] == "cancelled"
    assert [rig.external.count(f"{tag}-undo-{number}") for number in range(2)] == [1, 1]
    rig.system.verified(job)


def test_nothing_of_a_paused_workflow_starts_and_it_goes_on_where_it_was(rig: Rig) -> None:
    tag = fresh("equal")
    job = rig.system.submit(flow_node("w", "equal", tag=tag))
    until(lambda: rig.external.count(f"{tag}-0") == 1, PATIENCE_S)
    assert rig.system.api.post(f"/jobs/{job}/pause", json={"reason": "look"}).status_code in (200, 202)
    rig.system.wait_status(job, "paused", PATIENCE_S)
    (pause,) = rig.system.events(job, "job_paused")
    assert rig.system.api.post(f"/jobs/{job}/resume", json={"reason": "seen"}).status_code in (200, 202)
    rig.system.wait_ended([job], PATIENCE_S)
    (resume,) = rig.system.events(job, "job_resumed")
    assert [rig.external.count(f"{tag}-{number}") for number in range(6)] == [1] * 6
    report = rig.system.verified(job)
    assert report["ok"]
    assert pause["seq"] < resume["seq"]


def test_a_frozen_tool_holds_a_workflows_next_call_and_it_goes_on_when_that_is_over(rig: Rig) -> None:
    tag, frozen = fresh("equal"), {"tool": "poke_idempotent"}
    job = rig.system.submit(flow_node("w", "equal", tag=tag))
    until(lambda: rig.external.count(f"{tag}-0") == 1, PATIENCE_S)
    answer = rig.system.api.post("/freezes", json={**frozen, "reason": "look"}, headers=rig.system.approver)
    assert answer.status_code == 200, answer.text
    until(lambda: "poke_idempotent is frozen by" in rig.system.job(job).get("why", ""), PATIENCE_S)
    done = [rig.external.count(f"{tag}-{number}") for number in range(6)]
    rig.system.kill("executor-0")
    rig.system.wait_ready()
    assert [rig.external.count(f"{tag}-{number}") for number in range(6)] == done
    assert rig.system.api.post("/freezes/end", json=frozen, headers=rig.system.approver).status_code == 200
    rig.system.wait_ended([job], PATIENCE_S)
    assert [len({one["key"] for one in rig.external.effects(tag=f"{tag}-{number}")}) for number in range(6)] == [1] * 6
    rig.system.verified(job)
