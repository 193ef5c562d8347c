"""Jobs that workflows begin, on the whole system: each is born once, and told once, whatever dies in between."""

from collections.abc import Generator
from typing import Any

import pytest

from aetheris.protocol.messages.begun import child_job_id, end_key
from tests.testkit.attempts import fresh
from tests.testkit.bundles import opinions
from tests.testkit.external_flows import flow_node
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

MODULES = "tests.testkit.external_tools,tests.testkit.child_flows"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    env = {"AETHERIS_TOOLS": MODULES, "AETHERIS_WORKFLOW_IDLE_S": "2", "AETHERIS_CRASH_AT": "ordered"}
    with running_rig(tmp_path_factory.mktemp("children"), env) as rig:
        yield rig


def run(rig: Rig, flow: str, **args: Any) -> str:
    return rig.system.submit(flow_node("w", flow, **args))


def done(rig: Rig, job: str, node: str = "w") -> Any:
    """What a job returned, once it has completed; and its proof holds."""
    rig.system.wait_ended([job], 120)
    view = rig.system.job(job)
    assert view["status"] == "completed", view
    rig.system.verified(job)
    return view["result"][node]


def begun(rig: Rig, job: str) -> list[str]:
    """The jobs that a job has begun, in the order of its log."""
    starts = rig.system.data_of(job, "call_planned")
    tools = ("jobs.start", "jobs.continue")
    nodes = dict.fromkeys(one["node_id"] for one in starts if one["entry"].get("tool") in tools)
    return [child_job_id(job, node) for node in nodes]


def births(rig: Rig, job: str) -> list[dict[str, Any]]:
    return rig.system.data_of(job, "job_created")


def test_children_are_jobs_of_their_own_that_name_the_call_by_which_they_have_begun(rig: Rig) -> None:
    tag = fresh("several")
    job = run(rig, "several", tag=tag, children=5)
    assert done(rig, job) == [f"did {tag}-{number}" for number in range(5)]
    children = begun(rig, job)
    assert len(children) == 5
    named = rig.system.job(job)["children"]
    assert [(one["job_id"], one["status"]) for one in named] == [(child, "completed") for child in children]
    keys = {one["node_id"]: one["idempotency_key"] for one in rig.system.data_of(job, "tool_invocation_started")}
    for child in children:
        assert done(rig, child, "workflow").startswith("did ")
        (born,) = births(rig, child)
        said = born["begun"]
        view = rig.system.job(child)["begun"]
        assert (view["job_id"], view["node_id"], view["awaited_by"]) == (job, said["node_id"], job)
        assert (said["job_id"], said["idempotency_key"]) == (job, keys[said["node_id"]])
        assert (born["tenant"], born["submitted_by"]) == (
            births(rig, job)[0]["tenant"],
            births(rig, job)[0]["submitted_by"],
        )
    assert [rig.external.count(f"{tag}-{number}") for number in range(5)] == [1] * 5
    assert rig.external.count(f"{tag}-behind") == 1


PLACES = [
    "before_started:jobs.start",
    "after_started:jobs.start",
    "before_call:jobs.start",
    "after_call:jobs.start",
    "before_told:begin_job",
    "before_told:job_ended",
]


@pytest.mark.parametrize("place", PLACES)
def test_whoever_dies_between_the_call_and_the_birth_or_the_end_and_its_word_there_is_one_child_and_one_result(
    rig: Rig, place: str
) -> None:
    tag = fresh("dies")
    rig.system.die_at(place)
    job = run(rig, "several", tag=tag, children=1)
    until(rig.system.has_died, 60)
    assert done(rig, job) == [f"did {tag}-0"]
    (child,) = begun(rig, job)
    assert done(rig, child, "workflow") == f"did {tag}-0"
    assert len(births(rig, child)) == 1
    told = [one for one in rig.system.data_of(job, "signal_received") if one["correlation_key"] == end_key(child)]
    assert len(told) == 1
    assert (rig.external.count(f"{tag}-0"), rig.external.count(f"{tag}-behind")) == (1, 1)


def test_everything_is_killed_while_children_are_at_work(rig: Rig) -> None:
    tag = fresh("all")
    rig.external.hold(tag)
    job = run(rig, "several", tag=tag, children=3, hold=tag)
    rig.external.wait_for(1, f"{tag}-2-held")
    with rig.system.all_killed():
        pass
    rig.system.wait_ready(120)
    rig.external.hold(tag).unlink()
    assert done(rig, job) == [f"did {tag}-{number}" for number in range(3)]
    assert [rig.external.count(f"{tag}-{number}") for number in range(3)] == [1] * 3
    for child in begun(rig, job):
        assert len(births(rig, child)) == 1


def test_a_child_that_fails_is_the_codes_to_catch(rig: Rig) -> None:
    tag = fresh("catches")
    job = run(rig, "catches", tag=tag)
    assert done(rig, job) == "failed"
    (child,) = begun(rig, job)
    assert rig.system.job(child)["status"] == "failed"
    tags = [one["tag"] for one in rig.external.effects() if one["tag"].startswith(tag)]
    assert sorted(tags) == sorted([tag, f"{tag}-undo", f"{tag}-caught"]), (
        "it undoes what it did, and its parent goes on"
    )


@pytest.mark.parametrize("dies", [None, "before_told:cancel_child"])
def test_a_cancel_reaches_the_children_and_undoes_what_they_did(rig: Rig, dies: str | None) -> None:
    tag = fresh("cancelled")
    rig.external.hold(tag)
    job = run(rig, "several", tag=tag, children=2, hold=tag)
    rig.external.wait_for(1, f"{tag}-0-held")
    rig.external.wait_for(1, f"{tag}-1-held")
    if dies is not None:
        rig.system.die_at(dies)
    assert rig.system.api.post(f"/jobs/{job}/cancel", json={"compensate": True}).status_code == 200
    if dies is not None:
        until(rig.system.has_died, 60)
    children = begun(rig, job)
    until(lambda: all(rig.system.events(child, "cancel_requested") for child in children), 60)
    rig.external.hold(tag).unlink()
    rig.system.wait_ended([job, *children], 120)
    assert {rig.system.job(one)["status"] for one in (job, *children)} == {"cancelled"}
    for number in range(2):
        assert (rig.external.count(f"{tag}-{number}"), rig.external.count(f"{tag}-{number}-undo")) == (1, 1)
    assert rig.external.count(f"{tag}-behind") == 0


def test_a_job_that_was_left_goes_on_when_its_own_has_ended(rig: Rig) -> None:
    tag = fresh("left")
    job = run(rig, "leaves", tag=tag)
    child = done(rig, job)
    assert [child] == begun(rig, job) == [child_job_id(job, "w.left")]
    assert done(rig, child, "workflow") == f"did {tag}"
    assert rig.external.count(tag) == 1


@pytest.mark.parametrize("dies", [None, "after_call:jobs.continue", "before_told:begin_job"])
def test_a_job_goes_on_as_another_once_and_who_awaits_it_gets_the_last_ones_result(rig: Rig, dies: str | None) -> None:
    tag = fresh("rounds")
    if dies is not None:
        rig.system.die_at(dies)
    job = run(rig, "awaits_rounds", tag=tag, left=3)
    if dies is not None:
        until(rig.system.has_died, 60)
    assert done(rig, job) == f"{tag} is over"
    chain = begun(rig, job)
    while following := begun(rig, chain[-1]):
        assert done(rig, chain[-1], "workflow") == {"continued_as": following[0]}
        chain += following
    assert len(chain) == 4
    assert [len(births(rig, one)) for one in chain] == [1] * 4
    assert [births(rig, one)[0]["begun"]["replaces"] for one in chain] == [False, True, True, True]
    assert [rig.external.count(f"{tag}-{left}") for left in range(4)] == [1] * 4


def test_nobody_else_says_how_a_child_has_ended(rig: Rig) -> None:
    tag = fresh("forged")
    rig.external.hold(tag)
    job = run(rig, "several", tag=tag, children=1, hold=tag)
    rig.external.wait_for(1, f"{tag}-0-held")
    (child,) = begun(rig, job)
    said = rig.system.signal(job, end_key(child), {"job_id": child, "status": "completed", "result": "forged"})
    assert said.status_code == 400
    assert "correlation_key" in said.text
    rig.external.hold(tag).unlink()
    assert done(rig, job) == [f"did {tag}-0"]


def test_bundles_of_both_say_so_to_both_their_readers(rig: Rig, tmp_path: Any) -> None:
    tag = fresh("bundles")
    job = run(rig, "several", tag=tag, children=1)
    done(rig, job)
    for number, one in enumerate((job, *begun(rig, job))):
        rig.system.wait_sealed(one)
        bundle = rig.system.api.get(f"/jobs/{one}/evidence").raise_for_status().content
        folder = tmp_path / str(number)
        folder.mkdir()
        assert [(said["ok"], said["violations"]) for said in opinions(rig.system, bundle, folder)] == [(True, [])] * 2
