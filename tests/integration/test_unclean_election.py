"""Every replica in sync is gone, and one comes back that lacks records: nobody leads until one comes that has all."""

from collections.abc import Generator

import pytest

from tests.testkit.broker_faults import EVENTS, kafka_tool
from tests.testkit.cluster import Cluster, running_cluster_apart
from tests.testkit.cluster_rig import JVM, PARTITIONS, ClusterLoad, ClusterRig, running_on

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.timeout(1200)]

LATE = 3
"""It is out of sync when the others go."""
NOBODY = -1
JOBS = 20


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
