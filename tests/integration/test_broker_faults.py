"""Three brokers that are hurt in every way while jobs run: none is lost, nothing happens twice, each job verifies."""

import os
import sys
import time
from collections.abc import Generator

import pytest

from tests.testkit.broker_faults import BROKER_FAULTS, DISK_FULL, NOT_ROOT, running_brokers
from tests.testkit.cluster_rig import ClusterRig, running_on
from tests.testkit.doc_tables import write_table

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.timeout(1200)]

BEFORE, AFTER = 30, 30
"""Jobs that end before a fault, and after it."""
DISK_BYTES = 512 * 1024 * 1024
HEADS = (
    "fault",
    "jobs",
    "lost",
    "twice",
    "don't verify",
    "longest gap, s",
    "whole again after, s",
    "restarted",
)
FOUND: dict[str, list[str]] = {}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ClusterRig]:
    folder = tmp_path_factory.mktemp("cluster")
    with running_brokers(folder, DISK_BYTES) as cluster, running_on(cluster, folder / "system") as rig:
        yield rig


@pytest.fixture(scope="module", autouse=True)
def table() -> Generator[None]:
    """Into docs/kafka-cluster.md, once every fault was made."""
    yield
    if FOUND.keys() == BROKER_FAULTS.keys():
        write_table("kafka-cluster.md", "faults", HEADS, [[name, *row] for name, row in FOUND.items()])


@pytest.mark.parametrize("name", BROKER_FAULTS)
def test_no_job_is_lost_and_nothing_happens_twice(name: str, rig: ClusterRig) -> None:
    """Jobs before, meanwhile and after; then the count outside."""
    if name == DISK_FULL and os.geteuid() != 0:
        pytest.skip(NOT_ROOT)
    rig.cluster.heal()
    with rig.loaded() as load:
        load.wait_ended(BEFORE)
        starts, begun_s = rig.starts(), time.monotonic()
        BROKER_FAULTS[name](rig.cluster, load)
        rig.cluster.wait_whole()
        whole_s = time.monotonic()
        load.wait_ended(AFTER)
        outcome = load.finish()
    assert outcome.holds, outcome
    counts = (outcome.jobs, len(outcome.lost), len(outcome.twice), len(outcome.unproven))
    gap_s = outcome.longest_gap_s(begun_s, whole_s)
    FOUND[name] = [*map(str, counts), f"{gap_s:.1f}", f"{whole_s - begun_s:.1f}", str(rig.starts() - starts)]
    sys.stderr.write(f"{' | '.join((name, *FOUND[name]))}\n")
