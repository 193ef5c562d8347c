"""Jobs that are packed while a person cancels them, decides otherwise or revokes a key, and services are killed."""

import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.events import WaitCompleted
from aetheris.runtime.keys.revocations import written
from tests.testkit.attempts import fresh
from tests.testkit.external_flows import flow_node
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST
from tests.testkit.resting_jobs import PACKING, resting, wait_resting
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400)]

MODULES = "tests.testkit.external_tools,tests.testkit.external_flows"
PATIENCE_S = 90.0
ENV = {"AETHERIS_TOOLS": MODULES, "AETHERIS_WORKFLOW_IDLE_S": "1"}
DENY = '[[rules]]\nname = "no"\ntools = ["poke_idempotent"]\neffect = "deny"\n' + ALLOW_REST
MOST_PACKED = {"planner-0": 1800, "ledger-0": 1800, "executor-0": 1800, "verifier-0": 5200}
"""Bytes of one who sleeps, among others like it."""
ALIKE = 120


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("at-rest"), ENV) as rig:
        yield rig


@pytest.fixture(autouse=True)
def at_rest_before(request: pytest.FixtureRequest) -> None:
    """Nothing but what a test puts to sleep is counted."""
    if "rig" in request.fixturenames:
        rig: Rig = request.getfixturevalue("rig")
        until(lambda: all(resting(rig.system, part).jobs == 0 for part in PACKING), PATIENCE_S)


def asleep(rig: Rig, *flows: str) -> dict[str, str]:
    """Tag → job, each packed in every service."""
    jobs: dict[str, str] = {}
    for flow in flows:
        tag = fresh(flow)
        jobs[tag] = rig.system.submit(flow_node("w", flow, tag=tag))
    wait_resting(rig.system, len(jobs))
    return jobs


def wake(rig: Rig, job: str) -> None:
    until(lambda: rig.system.signal(job, "go").status_code == 200, PATIENCE_S)


def ended(rig: Rig, job: str) -> dict[str, Any]:
    """The job as it has ended; its proof holds."""
    rig.system.wait_ended([job], PATIENCE_S)
    rig.system.verified(job)
    return rig.system.job(job)


@pytest.mark.parametrize("killed", ["ledger-0", "planner-0", "executor-0", "verifier-0"])
def test_who_is_cancelled_in_its_sleep_is_undone_once_whoever_dies_meanwhile(rig: Rig, killed: str) -> None:
    jobs = asleep(rig, "undone", "sleeps")
    (tag, job), (other, beside) = jobs.items()
    with rig.system.asleep(killed):
        said = rig.system.api.post(f"/jobs/{job}/cancel", json={"compensate": True}, timeout=PATIENCE_S)
        assert said.status_code in (200, 202), said.text
    rig.system.kill(killed)
    assert ended(rig, job)["status"] == "cancelled"
    tags = [effect["tag"] for effect in rig.external.effects() if effect["tag"].startswith(tag)]
    assert tags == [f"{tag}-a", f"{tag}-b", f"{tag}-undo-b", f"{tag}-undo-a"]
    assert rig.system.job(beside)["status"] == "waiting"
    wake(rig, beside)
    assert (ended(rig, beside)["status"], rig.external.count(other)) == ("completed", 1)


def test_behind_another_policy_who_wakes_goes_by_it_though_its_ledger_was_killed(rig: Rig) -> None:
    def activate(policy: str) -> int:
        body = {"policy": policy, "reason": "a test"}
        answer = rig.system.api.post("/policies", json=body, headers=rig.system.approver, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        return answer.json()["number"]

    jobs = asleep(rig, "sleeps", "sleeps", "sleeps")
    (first, *_), (second, third) = jobs, [*jobs][1:]
    denied = activate(DENY)
    assert all(resting(rig.system, part).jobs == len(jobs) for part in PACKING), "nobody was woken for that"
    wake(rig, jobs[first])
    assert (ended(rig, jobs[first])["status"], rig.external.count(first)) == ("failed", 0)
    (no,) = rig.system.data_of(jobs[first], "invocation_rejected")
    assert no["activation"] == denied
    rig.system.kill("ledger-0")
    rig.system.wait_ready(PATIENCE_S)
    wait_resting(rig.system, 2)
    wake(rig, jobs[second])
    assert (ended(rig, jobs[second])["status"], rig.external.count(second)) == ("failed", 0)
    activate(ALLOW_REST)
    wake(rig, jobs[third])
    assert (ended(rig, jobs[third])["status"], rig.external.count(third)) == ("completed", 1)


def test_who_is_frozen_in_its_sleep_begins_nothing_when_it_is_told_to_go_on(rig: Rig) -> None:
    def order(path: str) -> None:
        said = rig.system.api.post(path, json={"tool": "sleeps"}, headers=rig.system.approver, timeout=PATIENCE_S)
        assert said.status_code == 200, said.text

    (tag, job), *_ = asleep(rig, "sleeps").items()
    order("/freezes")
    rig.system.kill("ledger-0")
    rig.system.kill("executor-0")
    rig.system.wait_ready(PATIENCE_S)
    wake(rig, job)
    until(lambda: "tool sleeps is frozen by" in (rig.system.job(job).get("why") or ""), PATIENCE_S)
    assert rig.external.count(tag) == 0
    order("/freezes/end")
    assert (ended(rig, job)["status"], rig.external.count(tag)) == ("completed", 1)


def test_one_that_sleeps_takes_little_in_each_service_and_as_much_again_when_it_has_slept_before(rig: Rig) -> None:
    jobs = asleep(rig, *["sleeps"] * ALIKE)
    first = wait_resting(rig.system, ALIKE)
    taken = {part: one.packed / one.jobs for part, one in first.items()}
    with rig.system.all_killed():
        pass
    rig.system.wait_ready(PATIENCE_S)
    again = {part: one.packed / one.jobs for part, one in wait_resting(rig.system, ALIKE).items()}
    for job in jobs.values():
        rig.system.api.post(f"/jobs/{job}/cancel", json={"compensate": False}, timeout=PATIENCE_S)
    rig.system.wait_ended(jobs.values(), PATIENCE_S)
    print({part: (round(taken[part]), round(again[part])) for part in taken})  # noqa: T201
    assert all(taken[part] < most and again[part] < most for part, most in MOST_PACKED.items()), (taken, again)


def test_a_key_that_is_revoked_while_a_job_sleeps_counts_no_more_in_it(tmp_path: Path) -> None:
    """The ledger alone comes back with another key: everybody else has the job packed when it is told."""
    told, stolen = tmp_path / "revocations.json", tmp_path / "stolen"
    told.write_bytes(written([]))
    with running_rig(tmp_path, {**ENV, "AETHERIS_REVOCATIONS": str(told)}) as rig:
        ((tag, job),) = asleep(rig, "sleeps").items()
        keys = rig.system.data / "keys" / "records"
        shutil.copytree(keys, stolen)
        _replace_ledgers_key(rig, keys, told)
        rig.system.kill("ledger-0")
        until(lambda: len(rig.system.data_of(job, "key_revoked")) == 1, PATIENCE_S)
        rig.system.wait_ready(PATIENCE_S)
        wait_resting(rig.system, 1)
        (waits,) = [one for one in rig.system.data_of(job, "job_waiting") if one["wait_type"] == "signal"]
        about = {name: waits[name] for name in ("job_id", "wait_type", "node_id", "idempotency_key", "correlation_key")}
        rig.system.append_as(Party.LEDGER, WaitCompleted.model_validate(about), stolen)
        rig.system.kill("executor-0")
        rig.system.wait_ready(PATIENCE_S)
        wait_resting(rig.system, 1)
        assert (rig.system.job(job)["status"], rig.external.count(tag)) == ("waiting", 0)
        wake(rig, job)
        assert (ended(rig, job)["status"], rig.external.count(tag)) == ("completed", 1)
        assert len(rig.system.data_of(job, "key_revoked")) == 1
        assert len(rig.system.verified(job)["unproven"]) == 1, "what the thief said"


def _replace_ledgers_key(rig: Rig, keys: Path, told: Path) -> None:
    by, revocation = ["--root", str(keys / "root.pem")], str(told.with_name("revocation.json"))
    for argv in (
        ["revoke", str(keys / "ledger.cert.json"), "--reason", "stolen", "--out", revocation, *by],
        ["bring", revocation, "--to", str(told), "--data", str(rig.system.data)],
        ["certify", "ledger", "--new-key", "--folder", str(keys), *by],
    ):
        done = CliRunner().invoke(app, ["root", *argv])
        assert done.exit_code == 0, done.output
