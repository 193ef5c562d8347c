"""Every replica in sync is gone, and one comes back that lacks records: nobody leads until one comes that has all.

Where somebody forces it to lead all the same, nothing runs on.
"""

from collections import Counter
from collections.abc import Generator

import pytest

from aetheris.runtime.base.refusal import REFUSED_STATUS
from tests.testkit.broker_faults import EVENTS, kafka_tool
from tests.testkit.cluster import Cluster, running_cluster_apart
from tests.testkit.cluster_rig import JVM, PARTITIONS, PATIENCE_S, ClusterLoad, ClusterRig, running_on
from tests.testkit.external_server import until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.timeout(1200)]

LATE = 3
"""It is out of sync when the others go."""
NOBODY = -1
JOBS = 20
READERS = {"planner", "ledger", "executor", "verifier"}
"""Each goes on from where it had read jobs.events."""


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ClusterRig]:
    """The controller is apart: it could elect while all brokers are gone."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster_apart(folder, JVM) as cluster, running_on(cluster, folder / "system") as rig:
        yield rig


def only_the_late_one_lives(cluster: Cluster, load: ClusterLoad) -> list[int]:
    """Those that are gone, and have what it lacks."""
    load.wait_ended(JOBS)
    cluster.kill(LATE)
    cluster.wait_out_of_sync(EVENTS, LATE)
    load.wait_ended(JOBS)
    others = [node for node in cluster.nodes if node != LATE]
    for node in others:
        cluster.kill(node)
    cluster.start(LATE)
    cluster.wait_led_by(EVENTS, NOBODY)
    return others


def elect(cluster: Cluster, kind: str) -> None:
    """By Kafka's own tool, of every partition of jobs.events."""
    argv = ["--bootstrap-server", cluster.broker(LATE).address, "--topic", EVENTS, "--election-type", kind]
    for partition in range(PARTITIONS):
        kafka_tool("LeaderElectionCommand", *argv, "--partition", str(partition))


def test_who_lacks_records_is_not_elected_and_no_job_is_lost(rig: ClusterRig) -> None:
    cluster = rig.cluster
    with rig.loaded() as load:
        others = only_the_late_one_lives(cluster, load)
        with pytest.raises(AssertionError, match="could not be elected"):
            elect(cluster, "PREFERRED")
        cluster.wait_led_by(EVENTS, NOBODY)
        cluster.start(*others)
        cluster.wait_whole()
        load.wait_ended(JOBS)
        outcome = load.finish()
    assert outcome.holds, outcome


def test_an_election_that_is_forced_is_named_by_all_who_had_read_further_and_nothing_runs_on(rig: ClusterRig) -> None:
    """Though the log looks whole, and whatever is written to it from then on."""
    cluster = rig.cluster
    with rig.loaded() as load:
        others = only_the_late_one_lives(cluster, load)
        elect(cluster, "UNCLEAN")
        cluster.wait_led_by(EVENTS, LATE)
        cluster.start(*others)
        cluster.wait_whole()
        until(lambda: refused(rig) >= READERS, PATIENCE_S)
        made = Counter(effect["tag"] for effect in rig.external.effects())
    assert max(made.values()) == 1
    said = [path for path in rig.system.data.rglob("*.log") if '"log_cut"' in path.read_text(errors="replace")]
    assert {path.name.partition("-")[0].partition(".")[0] for path in said} >= READERS


def refused(rig: ClusterRig) -> set[str]:
    """Services that have ended, and are not started again."""
    parts = rig.system.state().parts
    return {name.rpartition("-")[0] for name, part in parts.items() if part.last_exit == REFUSED_STATUS}
