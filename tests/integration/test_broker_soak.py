"""Three brokers, jobs all the time, and a fault a minute: `make cluster-soak MINUTES=60`."""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.testkit.broker_faults import BROKER_FAULTS, DISK_FULL, running_brokers
from tests.testkit.cluster_rig import ClusterRig, running_on
from tests.testkit.doc_tables import write_table

MINUTES = int(os.environ.get("CLUSTER_SOAK_MINUTES", "60"))
SEED = int(os.environ.get("CLUSTER_SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
SLOTS = 4
"""Jobs at a time: an hour of them fits the small disk, with as much room again."""
DISK_BYTES = 4 * 1024**3
EVERY_S = 60.0

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.timeout(60 * (2 * MINUTES + 30))]


@pytest.fixture
def rig(tmp_path: Path) -> Generator[ClusterRig]:
    with running_brokers(tmp_path, DISK_BYTES) as cluster, running_on(cluster, tmp_path / "system") as rig:
        yield rig


def faults(seed: int, count: int) -> list[str]:
    """Each as often as any other, in an order of the seed's."""
    names = [name for name in BROKER_FAULTS if name != "none" and (name != DISK_FULL or os.geteuid() == 0)]
    order = random.Random(seed)  # noqa: S311  it is printed, so that the order can be had again
    return [name for _ in range(-(-count // len(names))) for name in order.sample(names, len(names))][:count]


def told(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def test_a_fault_a_minute(rig: ClusterRig) -> None:
    told(f"CLUSTER_SOAK_SEED={SEED}")
    struck: list[tuple[str, float, float]] = []
    starts, begun_s = rig.starts(), time.monotonic()
    with rig.loaded(SLOTS) as load:
        load.wait_ended(SLOTS)
        for number, name in enumerate(faults(SEED, MINUTES)):
            at_s = time.monotonic()
            BROKER_FAULTS[name](rig.cluster, load)
            rig.cluster.wait_whole()
            struck.append((name, at_s, time.monotonic()))
            load.wait_ended(SLOTS)
            told(f"{number + 1}. {name}: whole again after {struck[-1][2] - at_s:.1f} s")
            time.sleep(max(0.0, at_s + EVERY_S - time.monotonic()))
        took_s = time.monotonic() - begun_s
        outcome = load.finish()
    assert outcome.holds, outcome
    times = Counter(name for name, _, _ in struck)
    rows = [
        [
            name,
            str(count),
            f"{max(outcome.longest_gap_s(begun, ended) for one, begun, ended in struck if one == name):.1f}",
            f"{max(ended - begun for one, begun, ended in struck if one == name):.1f}",
        ]
        for name, count in sorted(times.items())
    ]
    told(f"{outcome.jobs} jobs in {took_s / 60:.0f} minutes; {rig.starts() - starts} services restarted; seed {SEED}")
    write_table("kafka-cluster.md", "soak", ["fault", "times", "longest gap, s", "whole again after, s at most"], rows)
