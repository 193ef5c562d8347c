"""This version takes the place of an earlier build, service by service, under load and kill -9: each effect once."""

from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from tests.deploy.earlier_build import earlier_build, earlier_needed
from tests.deploy.fleet import THIS, Build, Fleet, running_fleet
from tests.testkit.cluster_rig import ClusterLoad, loading
from tests.testkit.services import SERVICES

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(900), earlier_needed]

INSTANCES = (0, 1)
IN_FLIGHT = 6
BESIDE = 5
"""So many jobs end while both builds of a service have partitions."""


@pytest.fixture
def fleet(tmp_path: Path) -> Generator[Fleet]:
    with running_fleet(tmp_path, rooted=True) as running:
        yield running


def replace_each(fleet: Fleet, load: ClusterLoad, services: Sequence[str], build: Build) -> None:
    """One instance of a service after the other, by kill -9 in the middle of what they do."""
    for service in services:
        for number in INSTANCES:
            fleet.kill(service, number)
            fleet.start(service, number, build)
            fleet.wait_shared(service, len(INSTANCES))
            load.wait_ended(BESIDE if number == 0 else 1)


@pytest.mark.parametrize(
    ("services", "goes_back"),
    [
        pytest.param(SERVICES, False, id="who-decides-first"),
        pytest.param(SERVICES[::-1], False, id="who-decides-last", marks=pytest.mark.full),
        pytest.param(SERVICES, True, id="and-back", marks=pytest.mark.full),
    ],
)
def test_it_rolls_out_service_by_service(fleet: Fleet, services: Sequence[str], goes_back: bool) -> None:
    earlier = earlier_build()
    for service in SERVICES:
        for number in INSTANCES:
            fleet.start(service, number, earlier, wait=number == 0)
    for service in SERVICES:
        fleet.wait_ready(service, 1)
    with loading(fleet, fleet.kafka, IN_FLIGHT) as load:
        load.wait_ended(BESIDE)
        replace_each(fleet, load, services, THIS)
        if goes_back:
            replace_each(fleet, load, services[::-1], earlier)
        outcome = load.finish()
    assert outcome.holds, (outcome.lost, outcome.twice, outcome.unproven)
    assert outcome.jobs >= len(services) * BESIDE
