"""Jobs that fail undo what they did, while every service is killed: each compensation is counted once outside."""

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from aetheris.runtime.process.crash import ORDERED, VARIABLE
from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer, until
from tests.testkit.policies import ALLOW_ALL, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import System

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

JOBS, STEPS = 12, 3
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    folder = tmp_path_factory.mktemp("compensation")
    with running_rig(folder, {VARIABLE: ORDERED, **ruled_by(folder, ALLOW_ALL)}) as rig:
        yield rig


def undoable(name: str, tag: str, *needs: str, **more: Any) -> dict[str, Any]:
    """A step that makes an effect, and undoes it by making another, of what the first one returned."""
    undo = {"tool": "poke_probeable", "args": {"tag": {"$ref": f"{name}#/poked"}, "hold": ""}}
    node = {"id": name, "tool": "poke_probeable", "args": {"tag": tag}, "depends_on": list(needs)}
    return node | {"compensate_with": undo} | more


def doomed(tag: str) -> list[dict[str, Any]]:
    """Its last step fails without a call: one in flight at a kill would end as *not sure*, and undo nothing."""
    steps = [undoable(f"s{at}", f"{tag}/{at}", *([f"s{at - 1}"] if at else [])) for at in range(STEPS)]
    end = {"id": "end", "kind": "wait", "wait": {"key": "never", "timeout_s": 0.1}, "depends_on": [f"s{STEPS - 1}"]}
    return [*steps, end]


def test_each_compensation_is_counted_once_through_kills_of_each_service(
    system: System, external: ExternalServer
) -> None:
    tag = fresh("doomed")
    system.die_at("after_compensation:poke_probeable")
    jobs = [system.submit(*doomed(f"{tag}-{number}")) for number in range(JOBS)]
    until(system.has_died, PATIENCE_S)
    for name in ("planner-0", "ledger-0", "prober-0", "verifier-0", "gateway-0"):
        system.kill(name)
    system.wait_ready()
    system.wait_ended(jobs, PATIENCE_S)
    order = [f"s{at}" for at in reversed(range(STEPS))]
    for job in jobs:
        view = system.job(job)
        assert (view["status"], view["compensated"]) == ("failed", order)
        types = {step["node_id"]: step.get("result_type") for step in view["steps"]}
        assert [types[name] for name in order] == ["compensated"] * STEPS
    effects = [effect for effect in external.effects() if effect["tag"].startswith(tag)]
    counted = {f"{tag}-{number}/{at}": 2 for number in range(JOBS) for at in range(STEPS)}
    assert Counter(effect["tag"] for effect in effects) == counted
    for job in jobs:
        keys = [effect["key"] for effect in effects if effect["key"].startswith(f"aetheris:{job}:")]
        assert keys[STEPS:] == [f"aetheris:{job}:{name}.undo:0" for name in order]
    for job in jobs[:4]:
        system.verified(job)


def told(system: System, job: str, kind: str, *names: str) -> list[tuple[str, ...]]:
    """These fields of a job's events of one type, in log order."""
    return [tuple(body[name] for name in names) for body in system.data_of(job, kind)]


def test_every_outcome_that_a_step_may_have(system: System, external: ExternalServer) -> None:
    tag = fresh("outcome")
    job = system.submit(
        {"id": "read", "tool": "poke_pure", "args": {"tag": "read"}},
        undoable("a", f"{tag}-a", "read", tool="poke_second_time", retry={"max_attempts": 2, "backoff_s": 0.1}),
        undoable("b", f"{tag}-b", "a", tool="poke_in_part"),
        {"id": "never", "tool": "poke_probeable", "args": {"tag": f"{tag}-never"}, "depends_on": ["b"]},
    )
    refused = system.submit({"id": "end", "tool": "poke_refused"})
    assert system.wait_status(job, "failed", PATIENCE_S)["compensated"] == ["b", "a"]
    system.wait_ended([refused])
    assert told(system, job, "node_finished", "node_id", "result_type") == [
        ("read", "success"),
        ("a", "side_effect_committed"),
        ("b", "compensatable_failure"),
        ("b.undo", "side_effect_committed"),
        ("b", "compensated"),
        ("a.undo", "side_effect_committed"),
        ("a", "compensated"),
    ]
    assert told(system, job, "step_compensated", "node_id", "compensates") == [("b.undo", "b"), ("a.undo", "a")]
    invocations = told(system, job, "tool_invocation_finished", "node_id", "outcome", "via")
    assert [reported for reported in invocations if reported[0] == "a"] == [
        ("a", "retryable_failure", "executor"),
        ("a", "success", "executor"),
    ]
    assert told(system, refused, "node_finished", "result_type") == [("permanent_failure",)]
    assert [external.count(f"{tag}-{name}") for name in ("a", "b", "never")] == [2, 2, 0]
    system.verified(job)


def test_a_cancel_settles_what_runs_and_only_then_undoes(system: System, external: ExternalServer) -> None:
    late, undone = fresh("late"), fresh("undone-late")
    held = external.hold(late)
    running = {"tag": late, "hold": held.name}
    job = system.submit(
        undoable("a", undone), {"id": "b", "tool": "patient_probeable", "args": running, "depends_on": ["a"]}
    )
    external.wait_for(1, late, PATIENCE_S)
    answer = system.api.post(f"/jobs/{job}/cancel", json={"compensate": True})
    assert answer.json()["event"] == "cancel_requested", answer.text
    until(lambda: told(system, job, "job_stopping") != [], PATIENCE_S)
    assert (system.job(job)["status"], external.count(undone)) == ("cancelling", 1)
    held.unlink()
    view = system.wait_status(job, "cancelled", PATIENCE_S)
    assert view["compensated"] == ["a"]
    found = [(event["type"], event["data"]) for event in system.events(job)]
    order = [(kind, data.get("node_id", data.get("revision"))) for kind, data in found]
    stop, settled = order.index(("job_stopping", None)), order.index(("tool_invocation_finished", "b"))
    assert stop < settled < order.index(("plan_generated", 1))
    assert (external.count(undone), external.count(late)) == (2, 1)


def test_an_irreversible_compensation_waits_for_its_approval_or_the_policy(
    system: System, external: ExternalServer
) -> None:
    undone = fresh("undone")
    undo = {"tool": "poke_irreversible", "args": {"tag": undone}}
    job = system.submit(
        undoable("a", fresh("irreversible"), compensate_with=undo),
        {"id": "end", "tool": "poke_refused", "depends_on": ["a"]},
    )
    assert system.wait_status(job, "failed", PATIENCE_S)["compensated"] == ["a"]
    assert external.count(undone) == 1
    types = system.types(job)
    assert types.index("policy_allowed") > types.index("job_stopping")


def test_a_cancel_undoes_what_was_done_where_it_is_asked_to(system: System, external: ExternalServer) -> None:
    done, lost = fresh("cancelled"), fresh("lost")
    job = system.submit(
        undoable("a", done),
        {"id": "b", "tool": "poke_lost", "args": {"tag": lost}, "depends_on": ["a"]},
    )
    assert system.wait_status(job, "waiting", PATIENCE_S)["status"] == "waiting"
    answer = system.api.post(f"/jobs/{job}/cancel", json={"compensate": True, "reason": "enough"})
    assert answer.json()["event"] == "cancel_requested", answer.text
    view = system.wait_status(job, "cancelled", PATIENCE_S)
    assert view["compensated"] == ["a"]
    assert {step["node_id"]: step["effect"] for step in view["steps"]} == {
        "a": "confirmed",
        "b": "possible",
        "a.undo": "confirmed",
    }
    assert (external.count(done), external.count(lost)) == (2, 1)
    again = system.api.post(f"/jobs/{job}/cancel", json={"compensate": False})
    assert again.status_code == 409
    system.verified(job)


def test_after_an_unsure_failure_a_human_decides(system: System, external: ExternalServer) -> None:
    unsure = fresh("unsure")
    plan = [undoable("a", unsure), {"id": "b", "tool": "poke_lost", "args": {"tag": "q"}, "depends_on": ["a"]}]
    job = system.submit(*plan, options={"on_in_doubt": "fail"})
    view = system.wait_status(job, "waiting", PATIENCE_S)
    assert view["why"].startswith("b failed without being sure")
    assert external.count(unsure) == 1
    system.api.post(f"/jobs/{job}/cancel", json={"compensate": True})
    assert system.wait_status(job, "cancelled", PATIENCE_S)["compensated"] == ["a"]
    assert external.count(unsure) == 2
    system.verified(job)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"compensate_with": {"tool": "no_such_tool"}}, "plan.nodes[0].compensate_with.tool"),
        ({"compensate_with": {"tool": "poke_probeable", "args": {"x": 1}}}, "plan.nodes[0].compensate_with.args"),
        ({"compensates": "a"}, "plan.nodes[0].compensates"),
    ],
)
def test_a_bad_compensation_is_refused_by_its_field(system: System, change: dict[str, Any], field: str) -> None:
    answer = system.api.post("/jobs", json={"plan": {"nodes": [undoable("a", "bad") | change]}})
    assert answer.status_code == 400
    assert answer.json()["error"]["details"]["field"].startswith(field)
