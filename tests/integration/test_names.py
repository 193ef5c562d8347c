"""Two processes of one name, on a real Kafka: the second is refused, and neither takes the other's partitions."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from aetheris.cli.embedded.ports import free_port
from aetheris.planner.app import GROUP, INPUTS
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.kafka.members import members
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.services import ServiceProcess, running_service

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
AGAIN = 75
PARTITIONS = 4
SERVICES = ("planner", "ledger", "prober", "verifier")


def refused(service: ServiceProcess) -> bool:
    """Whether it has ended because its name is another's."""
    return service.wait_ended(PATIENCE_S) == AGAIN and "worker_id_taken" in service.log.read_text()


@dataclass(frozen=True)
class NamedServices:
    """Where services of any name and folder are started."""

    kafka: str
    redis: str
    folder: Path

    @contextmanager
    def started(
        self, service: str, folder: str, name: str, session_timeout_s: float = 6.0
    ) -> Generator[ServiceProcess]:
        given = {
            "AETHERIS_KAFKA": self.kafka,
            "AETHERIS_REDIS": self.redis,
            "AETHERIS_DATA": str(self.folder / folder),
            "AETHERIS_PARTITIONS": str(PARTITIONS),
            "AETHERIS_SESSION_TIMEOUT_S": str(session_timeout_s),
            "AETHERIS_HTTP_PORT": str(free_port()),
            "AETHERIS_WORKER_ID": name,
        }
        with running_service(service, self.folder, given) as running:
            yield running

    async def places(self, service: str, name: str) -> list[str]:
        """The member ids that a name has in its service's group."""
        found = await members(self.kafka, f"aetheris.{service}")
        return [member_id for member_id, its in found.items() if its == name]


@pytest.fixture
def services(kafka: str, valkey_url: str, tmp_path: Path) -> NamedServices:
    return NamedServices(kafka, valkey_url, tmp_path)


@pytest.mark.parametrize("service", SERVICES)
async def test_a_second_of_one_name_is_refused_and_the_first_keeps_its_place(
    services: NamedServices, service: str
) -> None:
    name = fresh("twin")
    with services.started(service, "one", name) as first:
        until(first.ready, PATIENCE_S)
        places = await services.places(service, name)
        with services.started(service, "two", name) as second:
            assert refused(second)
        assert (await services.places(service, name), len(places)) == (places, 1)
        assert first.ready()
        assert "revoked" not in first.log.read_text()


@pytest.mark.parametrize("service", SERVICES)
def test_on_one_folder_the_lock_says_so(services: NamedServices, service: str) -> None:
    name = fresh("twin")
    with services.started(service, "one", name) as first:
        until(first.ready, PATIENCE_S)
        with services.started(service, "one", name) as second:
            assert refused(second)
        assert first.ready()


def test_of_two_that_start_at_once_one_lives(services: NamedServices) -> None:
    name = fresh("twin")
    with services.started("planner", "one", name) as one, services.started("planner", "two", name) as two:
        until(lambda: one.ended() or two.ended(), PATIENCE_S)
        lives, ended = (two, one) if one.ended() else (one, two)
        assert refused(ended)
        until(lives.ready, PATIENCE_S)


async def test_whose_place_was_taken_does_not_take_it_back(services: NamedServices) -> None:
    """By one that does not look first."""
    name = fresh("twin")
    with services.started("planner", "one", name) as first:
        until(first.ready, PATIENCE_S)
        log = KafkaLog(services.kafka)
        await log.start()
        rival = log.membership(GROUP, name, INPUTS.topics)
        gained: list[frozenset[int]] = []

        async def gains(numbers: frozenset[int]) -> None:
            gained.append(numbers)

        await rival.start(gains, gains)
        try:
            assert await asyncio.to_thread(refused, first)
            assert len(await services.places("planner", name)) == 1
        finally:
            await rival.stop()
            await log.stop()


@pytest.mark.parametrize("service", SERVICES)
async def test_a_successor_on_the_folder_of_one_that_was_killed_waits_for_no_session(
    services: NamedServices, service: str
) -> None:
    """The session is longer than this test waits."""
    name = fresh("killed")
    with services.started(service, "one", name, 300.0) as first:
        until(first.ready, PATIENCE_S)
        places = await services.places(service, name)
        first.process.kill()
        first.process.wait()
    assert await services.places(service, name) == places, "the broker has not missed it"
    with services.started(service, "one", name, 300.0) as second:
        until(second.ready, PATIENCE_S)


async def test_a_successor_elsewhere_waits_for_the_session_of_one_that_was_killed(services: NamedServices) -> None:
    name = fresh("killed")
    with services.started("ledger", "one", name) as first:
        until(first.ready, PATIENCE_S)
        places = await services.places("ledger", name)
        first.process.kill()
        first.process.wait()
    with services.started("ledger", "two", name) as second:
        until(second.ready, PATIENCE_S)
        assert places[0] not in await services.places("ledger", name)
