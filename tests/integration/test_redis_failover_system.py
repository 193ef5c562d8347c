"""Jobs run while Redis fails over, forgets, or moves slots: each effect once, and nothing that runs is doubted."""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.crc import key_slot

from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.valkeys import Replicated, ValkeyCluster, cluster, replicated

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]

JOBS, STEPS = 30, 3
PATIENCE_S = 180.0
LEASE_S = "2"
SETTINGS = {"AETHERIS_LEASE_TTL_S": LEASE_S}


@dataclass(frozen=True)
class UnderLoad:
    """Jobs that run, and one whose call takes until it is let go."""

    rig: Rig
    tags: list[str]
    jobs: list[str]
    held: Path
    holding: str

    def done(self) -> int:
        """How many steps had their effect."""
        return sum(self.rig.external.count(f"{tag}/{step}") for tag in self.tags for step in range(STEPS))

    def end(self) -> None:
        """Let the held call go; everything completes, each effect is there once, and no call was in doubt."""
        self.held.unlink()
        system, external = self.rig.system, self.rig.external
        everything = [self.holding, *self.jobs]
        system.wait_ended(everything, PATIENCE_S)
        assert [job for job in everything if system.job(job)["status"] != "completed"] == []
        effects = Counter(one["tag"] for one in external.effects())
        assert {f"{tag}/{step}": effects[f"{tag}/{step}"] for tag in self.tags for step in range(STEPS)} == {
            f"{tag}/{step}": 1 for tag in self.tags for step in range(STEPS)
        }
        for job in everything:
            assert system.types(job, "invocation_in_doubt") == []
        for job in everything[:5]:
            system.verified(job)


def under_load(rig: Rig) -> UnderLoad:
    """Submitted, and some of it done."""
    rig.system.wait_ready()
    name = fresh("held")
    held = rig.external.hold(name)
    tags = [fresh("job") for _ in range(JOBS)]
    holding = rig.system.submit(poke("a", name, tool="poke_opaque", hold=name))
    rig.external.wait_for(1, name, PATIENCE_S)
    jobs = [
        rig.system.submit(
            *(poke(f"s{n}", f"{tag}/{n}", *([f"s{n - 1}"] if n else []), delay_s=0.3) for n in range(STEPS))
        )
        for tag in tags
    ]
    found = UnderLoad(rig, tags, jobs, held, holding)
    until(lambda: found.done() >= JOBS // 3, PATIENCE_S)
    return found


def listed(rig: Rig, jobs: list[str]) -> bool:
    """Whether the list of jobs, which lies in Redis, has all of them."""
    answer = rig.system.api.get("/jobs", params={"limit": 200})
    return answer.status_code == 200 and set(jobs) <= {one["job_id"] for one in answer.json()["jobs"]}


@dataclass(frozen=True)
class FailingOver:
    rig: Rig
    group: Replicated


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Generator[FailingOver]:
    folder = tmp_path_factory.mktemp("sentinels")
    with replicated(folder / "valkey") as group, running_rig(folder, {"AETHERIS_REDIS": group.url, **SETTINGS}) as rig:
        yield FailingOver(rig, group)


def test_the_master_is_killed_under_load(failing: FailingOver) -> None:
    load, master = under_load(failing.rig), failing.group.master()
    master.kill()
    failing.group.wait_failed_over(master)
    failing.rig.system.wait_ready(PATIENCE_S)
    load.end()
    until(lambda: listed(failing.rig, load.jobs), PATIENCE_S)
    master.start()
    failing.group.wait_in_step()


def test_a_stale_replica_is_promoted_under_load(failing: FailingOver) -> None:
    failing.group.wait_in_step()
    failing.group.cut_off_replica()  # from here on it lacks whatever is written
    load, master = under_load(failing.rig), failing.group.master()
    master.kill()
    failing.group.wait_failed_over(master)
    failing.rig.system.wait_ready(PATIENCE_S)
    load.end()
    until(lambda: listed(failing.rig, load.jobs), PATIENCE_S)


@dataclass(frozen=True)
class Clustered:
    rig: Rig
    nodes: ValkeyCluster


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Generator[Clustered]:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder / "valkey") as nodes, running_rig(folder, {"AETHERIS_REDIS": nodes.url, **SETTINGS}) as rig:
        yield Clustered(rig, nodes)


def test_slots_move_while_jobs_run(clustered: Clustered) -> None:
    """Those of the lists and of the index, where all keys of a script lie, and those of a hundred others."""
    load, nodes = under_load(clustered.rig), clustered.nodes
    moved = [key_slot(b"lists"), key_slot(b"effects"), *range(0, 16384, 164)]
    for slot in moved:
        source = nodes.owner(slot)
        nodes.move(slot, next(one for one in nodes.servers[:3] if one is not source))
    load.end()
    until(lambda: listed(clustered.rig, load.jobs), PATIENCE_S)
    answer = clustered.rig.system.api.get("/effects", params={"limit": 1})
    assert answer.status_code == 200, answer.text


def test_a_node_is_killed_under_load(clustered: Clustered) -> None:
    load, nodes = under_load(clustered.rig), clustered.nodes
    nodes.owner(key_slot(b"lists")).kill()
    until(lambda: any(one.answers() for one in nodes.servers), PATIENCE_S)
    clustered.rig.system.wait_ready(PATIENCE_S)
    load.end()
    until(lambda: listed(clustered.rig, load.jobs), PATIENCE_S)
