"""Later rules are ordered on the whole system: refused while one lives who does not know them; behind their barrier
no job is created under earlier ones, whoever signs it, and through restarts."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from aetheris.cli import token_files
from aetheris.cli.embedded.ports import Ports
from aetheris.planner.core.creations import creation_group
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import Submit, ToolRequest
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import JobCreated, PlanGenerated
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import load_service_key
from aetheris.runtime.keys.records import BirthPlace, RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400)]

PARTITIONS = 2
EVENTS = str(Topic.JOBS_EVENTS)
LATER = """
import os
import sys
from pathlib import Path
if any("aetheris" in one for one in sys.orig_argv):
    from aetheris.cli.embedded import forks
    forks.Template.may_fork = lambda *_: False  # each service is told what it knows when it starts
    old = (Path(__file__).parent / "old").read_text().split()
    if os.environ.get("AETHERIS_WORKER_ID", "").partition(".")[0] not in old:
        from aetheris.proofs import records
        from aetheris.protocol.messages import event_base
        event_base.KNOWN_RULES = records.KNOWN_RULES = frozenset({1, 2})
"""


@dataclass(frozen=True)
class RulesRig(Rig):
    """Its processes know a version 2 of the rules, but those whose names are in `old`."""

    old: Path

    def order(self, version: int = 2, who: dict[str, str] | None = None) -> httpx.Response:
        body = {"version": version, "reason": "a test"}
        return self.system.api.post("/rules", json=body, headers=who or self.system.approver, timeout=60)

    def shown(self) -> dict[str, Any]:
        return self.system.api.get("/rules", headers=self.system.approver).json()

    def refused(self) -> list[str]:
        """Who, by the refusal of an order, does not know it."""
        refused = self.order()
        if refused.status_code == 503:
            return []
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "rules_unknown"), refused.text
        return [one.partition(".")[0] for one in refused.json()["error"]["details"]["processes"]]

    def rules_of(self, job: str) -> list[int]:
        return [one["rules"] for one in self.system.data_of(job, "job_created")]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[RulesRig]:
    folder = tmp_path_factory.mktemp("rules")
    customized = folder / "later"
    customized.mkdir()
    (customized / "sitecustomize.py").write_text(LATER)
    old = customized / "old"
    old.write_text("ledger-0 gateway-1")
    env = {"AETHERIS_PARTITIONS": str(PARTITIONS), "PYTHONPATH": f"{customized}:{REPOSITORY}"}
    with running_rig(folder, env, gateway=2) as rig:
        yield RulesRig(rig.system, rig.external, old)


def test_the_order_waits_for_every_process_and_then_holds_everywhere(rig: RulesRig) -> None:
    held = rig.external.hold("held")
    before = rig.system.submit(poke("a", "before", hold="held"))
    until(lambda: rig.external.count("before") == 1, 60)
    shown = rig.shown()
    assert (shown["version"], shown["order"]) == (1, None)
    knows = {one["name"].partition(".")[0]: one["known"] for one in shown["services"]}
    others = {f"{name}-0": [1, 2] for name in ("planner", "verifier", "executor", "prober", "gateway")}
    assert knows == {**others, "ledger-0": [1], "gateway-1": [1]}
    assert rig.refused() == ["ledger/ledger-0", "gateway/gateway-1"]
    agent = {"Authorization": f"Bearer {token_files.saved(rig.system.data, token_files.AGENT)}"}
    assert rig.order(who=agent).status_code == 403
    assert rig.rules_of(rig.system.completed(poke("a", fresh("first")))) == [1], "nothing has changed"
    rig.old.write_text("gateway-1")
    rig.system.kill("ledger-0")
    until(lambda: rig.refused() == ["gateway/gateway-1"], 60)
    rig.old.write_text("none")
    rig.system.kill("gateway-1")
    rig.system.wait_ready()
    until(lambda: all(one["known"] == [1, 2] for one in rig.shown()["services"]), 60)
    taken = rig.order()
    assert (taken.status_code, taken.json()["answered"]) == (200, PARTITIONS), taken.text
    assert rig.order().json() == taken.json(), "said again it is the same order"
    jobs = [(tag, rig.system.submit(poke("a", tag))) for tag in (fresh("after") for _ in range(6))]
    rig.system.wait_ended([job for _, job in jobs])
    for tag, job in jobs:
        assert (rig.rules_of(job), rig.external.count(tag)) == ([2], 1)
    assert {partition_of(job, PARTITIONS) for _, job in jobs} == set(range(PARTITIONS))
    held.unlink()
    rig.system.wait_ended([before])
    assert (rig.rules_of(before), rig.system.job(before)["status"]) == ([1], "completed"), "it keeps its rules for life"
    for job in (before, jobs[0][1]):
        rig.system.wait_sealed(job)
        assert rig.system.report(job)["ok"]


def test_a_gateway_that_does_not_know_them_and_comes_later_is_seen_and_shows_no_job_of_theirs(rig: RulesRig) -> None:
    job = rig.system.completed(poke("a", fresh("later")))
    assert rig.rules_of(job) == [2]
    rig.old.write_text("gateway-1")
    rig.system.kill("gateway-1")
    rig.system.wait_ready()
    until(lambda: rig.refused() == ["gateway/gateway-1"], 60)
    url = f"http://127.0.0.1:{Ports(rig.system.data).get('gateway-1-http')}/api/jobs/{job}"
    shown = httpx.get(url, headers=rig.system.approver, trust_env=False)
    assert (shown.json().get("steps", []), shown.json().get("result")) == ([], None), shown.text
    assert rig.system.job(job)["status"] == "completed"
    rig.old.write_text("none")


def birth_under(rig: RulesRig, rules: int) -> tuple[str, str]:
    """A job that somebody has created who has the planner's key, with a request for its call."""
    tag = fresh("forged")
    job = fresh("job")
    pins = rig.system.data_of(rig.system.completed(poke("a", fresh("pin"))), "plan_generated")[0]["task_graph"]["tools"]
    plan = {"nodes": [poke("a", tag)], "tools": pins}
    command = Submit(job_id=job, tenant="default", by="ann", request_hash="r", plan=plan)
    group = [one.event for one in creation_group(command, "c", rules=rules).facts]
    held = load_service_key(rig.system.data / "keys" / "records", Party.PLANNER)
    signer = RecordSigner({Party.PLANNER: Signer(held.private_key, held.certificate)}, SystemClock())
    keys = RecordKeys(frozenset({rig.system.installation}), signer)
    number = partition_of(job, PARTITIONS)
    at = rig.system.ends(EVENTS)[EVENTS, number]
    drafts = [draft(Topic.JOBS_EVENTS, one, key=job, id=fresh("e"), source="/rogue", time="t") for one in group]
    (signed,) = keys.signed([tuple(drafts)], keys.provenance(), BirthPlace(number, at - 1))
    rig.system.write([signed])
    assert isinstance(group[0], JobCreated)
    assert isinstance(group[1], PlanGenerated)
    request = ToolRequest(job_id=job, birth=at, as_of=at + 1, revision=0, plan_hash=group[1].plan_hash, nodes=("a",))
    rig.system.write([(draft(Topic.TOOLS_REQUESTS, request, key=job, id=fresh("r"), source="/rogue", time="t"),)])
    return job, tag


def beside(rig: RulesRig, job: str) -> None:
    """What was written before this has been read by whoever reads that partition: a job of it is sealed."""
    while True:
        other = rig.system.completed(poke("a", fresh("beside")))
        rig.system.wait_sealed(other)
        if partition_of(other, PARTITIONS) == partition_of(job, PARTITIONS):
            return


def test_a_birth_under_earlier_rules_behind_the_barrier_is_none_whoever_signs_it(rig: RulesRig) -> None:
    later, its_tag = birth_under(rig, 2)
    until(lambda: rig.external.count(its_tag) == 1, 60)
    job, tag = birth_under(rig, 1)
    beside(rig, job)
    assert (rig.external.count(tag), rig.external.count(its_tag)) == (0, 1)
    with rig.system.all_killed():
        pass
    rig.system.wait_ready()
    beside(rig, job)
    other, other_tag = birth_under(rig, 1)
    beside(rig, other)
    assert (rig.external.count(tag), rig.external.count(other_tag)) == (0, 0), "who starts behind it knows it"
    assert later != job
    assert json.loads(rig.system.api.get("/rules", headers=rig.system.approver).text)["version"] == 2
