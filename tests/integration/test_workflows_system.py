"""Workflows on the whole system: counted outside, killed, taken over, and every job's proof holds."""

import random
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.bundles import opinions
from tests.testkit.external_flows import flow_node
from tests.testkit.external_server import until
from tests.testkit.policies import ASK_IRREVERSIBLE, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import ENDED

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

MODULES = "tests.testkit.external_tools,tests.testkit.external_flows,edited_flow"

EDITED = """
from aetheris.sdk.workflows import WorkflowContext, workflow
from tests.testkit.external_tools import patient_idempotent, poke_idempotent, poke_pure

@workflow(name="edited", tools=[poke_idempotent, patient_idempotent, poke_pure])
async def edited(ctx: WorkflowContext, tag: str) -> str:
{body}
"""
FIRST = """
    await ctx.call(poke_idempotent, tag=tag + "-1")
    await ctx.call(patient_idempotent, tag=tag + "-2", hold=tag)
    await ctx.call(poke_idempotent, tag=tag + "-3")
    return "first"
"""
INSERTED = FIRST.replace('tag + "-1")', 'tag + "-0")\n    await ctx.call(poke_idempotent, tag=tag + "-1")')
APPENDED = FIRST.replace(
    '    return "first"', '    await ctx.call(poke_idempotent, tag=tag + "-4")\n    return "longer"'
)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a workflow that is edited while it runs."""
    return tmp_path_factory.mktemp("code") / "edited_flow.py"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, code: Path) -> Generator[Rig]:
    folder = tmp_path_factory.mktemp("workflows")
    deploy(code, FIRST)
    env = {"AETHERIS_TOOLS": MODULES, "AETHERIS_TOOLS_FOLDER": str(code.parent), "AETHERIS_WORKFLOW_IDLE_S": "2"}
    with running_rig(folder, env | ruled_by(folder, ASK_IRREVERSIBLE)) as rig:
        yield rig


def deploy(code: Path, body: str) -> None:
    """What an executor loads that starts from now on."""
    code.write_text(EDITED.format(body=body))


def done(rig: Rig, job: str) -> Any:
    """What its one workflow returned, once it has completed; and its proof holds."""
    rig.system.wait_ended([job])
    view = rig.system.job(job)
    assert view["status"] == "completed", view
    rig.system.verified(job)
    return view["result"]["w"]


def each_once(rig: Rig, *tags: str) -> bool:
    return [rig.external.count(tag) for tag in tags] == [1] * len(tags)


def test_a_workflow_runs_to_its_end_and_its_proof_holds(rig: Rig) -> None:
    tag = fresh("flow")
    job = rig.system.submit(flow_node("w", "chain", tag=tag, steps=12))
    assert done(rig, job) == 12
    assert each_once(rig, *(f"{tag}-{number}" for number in range(12)))


def test_a_jobs_bundle_says_so_to_both_its_readers(rig: Rig, tmp_path: Path) -> None:
    """One of which a body was killed and taken over."""
    tag = fresh("bundle")
    job = rig.system.submit(flow_node("w", "chain", tag=tag, steps=12, delay_s=0.1))
    rig.external.wait_for(1, f"{tag}-3")
    rig.system.kill("executor-0")
    assert done(rig, job) == 12
    rig.system.wait_sealed(job)
    bundle = rig.system.api.get(f"/jobs/{job}/evidence").raise_for_status().content
    assert [(one["ok"], one["violations"]) for one in opinions(rig.system, bundle, tmp_path)] == [(True, [])] * 2


def test_what_its_own_functions_said_stands_when_its_process_is_killed(rig: Rig) -> None:
    tag = fresh("records")
    job = rig.system.submit(flow_node("w", "records", tag=tag))
    until(
        lambda: (
            len([one for one in rig.system.data_of(job, "tool_invocation_started") if one["tool_name"] == "local.read"])
            == 1
        ),
        60,
    )
    rig.system.kill("executor-0")
    acted, read = done(rig, job)
    ended = [one["result"] for one in rig.system.data_of(job, "tool_invocation_finished") if one["result"] == acted]
    assert (read, ended) == (f"read {tag}", [acted])
    started = [one["tool_name"] for one in rig.system.data_of(job, "tool_invocation_started")]
    assert (started.count("local.act"), started.count("local.read")) == (1, 2)
    assert each_once(rig, f"{tag}-acted", f"{tag}-read")


def test_a_frozen_workflow_begins_no_call_until_it_is_thawed(rig: Rig) -> None:
    def order(path: str) -> None:
        said = rig.system.api.post(path, json={"tool": "chain"}, headers=rig.system.approver, timeout=60)
        assert said.status_code == 200, said.text

    def started() -> int:
        return len(rig.system.data_of(job, "tool_invocation_started"))

    tag = fresh("frozen")
    job = rig.system.submit(flow_node("w", "chain", tag=tag, steps=40, delay_s=0.2))
    rig.external.wait_for(1, f"{tag}-2")
    order("/freezes")
    until(lambda: "tool chain is frozen by" in (rig.system.job(job)["why"] or ""), 60)
    before = started()
    other = fresh("other")
    done(rig, rig.system.submit(flow_node("w", "wide", tag=other, calls=3)))
    assert started() == before < 40
    assert rig.external.count(f"{tag}-39") == 0
    order("/freezes/end")
    assert done(rig, job) == 40
    assert each_once(rig, *(f"{tag}-{number}" for number in range(40)))


def test_calls_at_once_are_made_once_each_and_equal_ones_as_often_as_the_code_says(rig: Rig) -> None:
    tag = fresh("wide")
    first = done(rig, rig.system.submit(flow_node("w", "wide", tag=tag, calls=20)))
    assert each_once(rig, *(f"{tag}-{number}" for number in range(20)), f"{tag}-behind-{first}")
    assert rig.external.count(f"{tag}-same") == 3


def test_a_call_that_fails_is_the_codes_to_catch(rig: Rig) -> None:
    tag = fresh("declined")
    assert done(rig, rig.system.submit(flow_node("w", "declined", tag=tag))) == "declined"
    assert each_once(rig, tag)


def test_it_waits_for_a_person_while_everything_is_killed(rig: Rig) -> None:
    tag = fresh("asks")
    job = rig.system.submit(flow_node("w", "asks", tag=tag))
    request = rig.system.wait_asked(job)
    with rig.system.all_killed():
        pass
    rig.system.wait_ready()
    answer = {"request_id": request["request_id"], "action": "approve"}
    answered = rig.system.api.post("/ecs/respond", json=answer, headers=rig.system.approver)
    assert answered.status_code == 200, answered.text
    assert done(rig, job) == "done"
    assert each_once(rig, tag, f"{tag}-before", f"{tag}-after")
    assert len(rig.system.events(job, "approval_requested")) == 1


def test_it_waits_for_a_signal_and_for_time_while_everything_is_killed(rig: Rig) -> None:
    tag = fresh("waits")
    job = rig.system.submit(flow_node("w", "waits", tag=tag))
    until(lambda: any(one.get("until") for one in rig.system.data_of(job, "tool_invocation_finished")), 60)
    with rig.system.all_killed():
        pass
    rig.system.wait_ready()
    until(lambda: rig.system.signal(job, "go", {"a": 1}).status_code == 200, 60)
    assert done(rig, job) == {"a": 1}
    assert each_once(rig, tag)


def test_a_cancel_stops_it_and_undoes_its_calls_in_reverse(rig: Rig) -> None:
    tag = fresh("undone")
    job = rig.system.submit(flow_node("w", "undone", tag=tag))
    until(lambda: bool(rig.system.events(job, "job_waiting")), 60)
    assert rig.system.api.post(f"/jobs/{job}/cancel", json={"compensate": True}).status_code == 200
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "cancelled"
    rig.system.verified(job)
    tags = [effect["tag"] for effect in rig.external.effects() if effect["tag"].startswith(tag)]
    assert tags == [f"{tag}-a", f"{tag}-b", f"{tag}-undo-b", f"{tag}-undo-a"]


def test_code_that_goes_on_behind_what_is_recorded_completes(rig: Rig, code: Path) -> None:
    tag, job = begun(rig, code)
    deploy(code, APPENDED)
    rig.system.kill("executor-0")
    rig.external.hold(tag).unlink()
    assert done(rig, job) == "longer"
    assert each_once(rig, f"{tag}-1", f"{tag}-3", f"{tag}-4")


def test_code_that_goes_another_way_stands_still_until_it_is_rolled_back(rig: Rig, code: Path) -> None:
    tag, job = begun(rig, code)
    deploy(code, INSERTED)
    rig.system.kill("executor-0")
    rig.external.hold(tag).unlink()
    until(lambda: bool(rig.system.events(job, "invocation_parked")), 60)
    (doubt,) = rig.system.data_of(job, "invocation_in_doubt")[-1:]
    assert doubt["error_class"] == "diverged"
    assert rig.external.count(f"{tag}-0") == 0
    deploy(code, FIRST)
    rig.system.kill("executor-0")
    assert rig.system.resolve(job, "w", "retry").status_code == 200
    assert done(rig, job) == "first"
    assert each_once(rig, f"{tag}-1", f"{tag}-3")
    assert rig.external.count(f"{tag}-0") == 0


@pytest.mark.parametrize(
    "edited",
    [
        FIRST.replace('    await ctx.call(poke_idempotent, tag=tag + "-1")\n', ""),
        FIRST.replace('tag + "-1"', 'tag + "-one"'),
        INSERTED,
    ],
    ids=["removed", "renamed", "inserted"],
)
def test_code_that_goes_another_way_is_named_and_goes_on_when_a_person_accepts_it(
    rig: Rig, code: Path, edited: str
) -> None:
    tag, job = begun(rig, code)
    deploy(code, edited)
    rig.system.kill("executor-0")
    rig.external.hold(tag).unlink()
    until(lambda: bool(rig.system.events(job, "invocation_parked")), 60)
    (parked,) = rig.system.data_of(job, "invocation_parked")
    evidence = next(one for one in parked["evidence"] if "unasked" in one)
    why = rig.system.job(job)["why"]
    recorded, now = evidence["recorded_code"]["hash"], evidence["code"]["hash"]
    assert recorded != now
    assert all(name in why for name in (*evidence["unasked"], *evidence["held"], recorded, now)), why
    assert rig.system.resolve(job, "w", "retry", accept_code=now).status_code == 200
    assert done(rig, job) == "first"
    assert max(len({one["key"] for one in rig.external.effects(tag=f"{tag}-{n}")}) for n in (1, 2, 3)) == 1
    assert each_once(rig, f"{tag}-1", f"{tag}-3")


def test_what_is_too_large_for_the_log_is_told_to_a_new_body_too(rig: Rig) -> None:
    tag, size = fresh("carries"), 200_000
    rig.external.hold(tag)
    job = rig.system.submit(flow_node("w", "carries", tag=tag, size=size))
    rig.external.wait_for(1, tag)
    rig.system.kill("executor-0")
    rig.external.hold(tag).unlink()
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    rig.system.verified(job)
    assert len({one["key"] for one in rig.external.effects(tag=tag)}) == 1
    ends = [one for one in rig.system.data_of(job, "tool_invocation_finished") if one.get("result_ref")]
    assert [one["result_ref"]["size"] > size for one in ends] == [True, True]


SPINS = """
    await ctx.call(poke_idempotent, tag=tag)
    while True:
        pass
"""


@pytest.mark.full
def test_a_body_that_never_waits_disturbs_nobody_of_another_module_and_is_named(rig: Rig, code: Path) -> None:
    tag, other = fresh("spins"), fresh("beside")
    deploy(code, SPINS)
    rig.system.kill("executor-0")
    job = rig.system.submit(flow_node("w", "edited", tag=tag))
    rig.external.wait_for(1, tag)
    beside = rig.system.submit(flow_node("w", "chain", tag=other, steps=12))
    assert done(rig, beside) == 12
    assert not rig.system.events(job, "invocation_in_doubt")
    until(lambda: bool(rig.system.events(job, "invocation_in_doubt")), 90)
    (doubt, *_) = rig.system.data_of(job, "invocation_in_doubt")
    assert "edited_flow" in str(doubt["evidence"])
    assert rig.system.api.post(f"/jobs/{job}/cancel", json={"compensate": False}).status_code == 200
    rig.system.wait_ended([job], 120)
    assert each_once(rig, tag)


def begun(rig: Rig, code: Path) -> tuple[str, str]:
    """A job of the first code, at its second call, which is held."""
    tag = fresh("edited")
    deploy(code, FIRST)
    rig.system.kill("executor-0")
    rig.external.hold(tag)
    job = rig.system.submit(flow_node("w", "edited", tag=tag))
    rig.external.wait_for(1, f"{tag}-2")
    return tag, job


def test_a_large_result_is_handed_on_by_who_never_reads_it_and_took_over_from_one_that_died(
    rig: Rig, tmp_path: Path
) -> None:
    """Its record has none of it; whoever checks the job looks it up where it was returned."""
    tag, size = fresh("handed"), 3_000_000
    rig.external.hold(tag)
    job = rig.system.submit(flow_node("w", "hands_on", tag=tag, size=size))
    rig.external.wait_for(1, f"{tag}-held")
    rig.system.kill("executor-0")
    rig.external.hold(tag).unlink()
    assert done(rig, job) == size
    assert each_once(rig, f"{tag}-{size}")
    assert len({one["key"] for one in rig.external.effects(tag=f"{tag}-held")}) == 1
    (planned,) = [one for one in rig.system.data_of(job, "call_planned") if one.get("call_key")]
    assert planned["entry"]["args"]["text"]["$ref"].startswith("large.")
    assert max(len(str(record)) for record in rig.system.data_of(job, "call_planned")) < 10_000
    (kept,) = [one for one in rig.system.data_of(job, "tool_invocation_started") if one["tool_name"] == "keep_text"]
    assert (kept["idempotency_key"], kept["args_hash"]) == (planned["call_key"], planned["args_hash"])
    rig.system.wait_sealed(job)
    bundle = rig.system.api.get(f"/jobs/{job}/evidence").raise_for_status().content
    assert [(one["ok"], one["violations"]) for one in opinions(rig.system, bundle, tmp_path)] == [(True, [])] * 2


def test_a_body_that_always_dies_at_one_place_stands_still(rig: Rig) -> None:
    tag = fresh("dies")
    job = rig.system.submit({**flow_node("w", "dies", tag=tag), "retry": {"backoff_s": 0}})
    until(lambda: bool(rig.system.events(job, "invocation_parked")), 120)
    assert each_once(rig, tag)


SERVICES = ("executor-0", "ledger-0", "executor-0", "planner-0", "executor-0", "gateway-0")


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("kills", "flows", "steps", "any_part"),
    [
        (6, 6, 30, False),
        pytest.param(200, 20, 100, False, marks=pytest.mark.full),
        pytest.param(200, 20, 100, True, marks=pytest.mark.full),
    ],
)
def test_killed_again_and_again_each_effect_is_there_once(
    rig: Rig, kills: int, flows: int, steps: int, any_part: bool
) -> None:
    """Of what can be asked about, also no second try; each kill meets workflows at work."""
    chance = random.Random(kills)  # noqa: S311
    parts = [*rig.system.state().parts] if any_part else SERVICES[: 1 if kills > len(SERVICES) else None]
    jobs: dict[str, str] = {}
    running: set[str] = set()
    for kill in range(kills):
        running -= {job for job in running if rig.system.job(job).get("status") in ENDED}
        for _ in range(flows - len(running)):
            tag = fresh("killed")
            jobs[tag] = rig.system.submit(flow_node("w", "chain", tag=tag, steps=steps, delay_s=0.05))
            running.add(jobs[tag])
        goal = rig.external.count() + flows
        until(lambda goal=goal: rig.external.count() >= goal, 180)
        rig.system.kill(chance.choice(parts) if any_part else parts[kill % len(parts)])
        rig.system.wait_ready(120)
    rig.system.wait_ended(jobs.values(), 600)
    keys: dict[str, list[str]] = {}
    for effect in rig.external.effects():
        keys.setdefault(effect["tag"], []).append(effect["key"])
    takeovers = 0
    for tag, job in jobs.items():
        assert done(rig, job) == steps
        takeovers += len([one for one in rig.system.data_of(job, "tool_invocation_started") if one.get("plans")]) - 1
        made = [keys.get(f"{tag}-{number}", []) for number in range(steps)]
        assert [len(set(found)) for found in made] == [1] * steps
        assert [len(found) for found in made[1::2]] == [1] * (steps // 2)
    print(f"{kills} kills, {len(jobs)} workflows, {len(jobs) * steps} effects, {takeovers} takeovers")  # noqa: T201
