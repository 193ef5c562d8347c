"""Two processes of one name, on a real Kafka: the second is refused, and neither takes the other's partitions."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import spawn
from aetheris.planner.app import GROUP, INPUTS
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.kafka.members import members
from tests.testkit.attempts import fresh
from tests.testkit.outside import until
from tests.testkit.services import asked

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
AGAIN = 75
PARTITIONS = 4
SERVICES = ("planner", "ledger", "verifier")


@dataclass(frozen=True)
class Process:
    """A service, and where its log is."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def ready(self) -> bool:
        return asked(self.port, "/readyz")[0] == 200

    def ended(self) -> bool:
        return self.process.poll() is not None

    def refused(self) -> bool:
        """Whether it has ended because its name is another's."""
        return self.process.wait(PATIENCE_S) == AGAIN and "worker_id_taken" in self.log.read_text()


@dataclass(frozen=True)
class World:
    kafka: str
    redis: str
    folder: Path

    @contextmanager
    def started(self, service: str, folder: str, name: str, session_timeout_s: float = 6.0) -> Generator[Process]:
        port = free_port()
        log = self.folder / f"{service}-{port}.log"
        given = {
            "AETHERIS_KAFKA": self.kafka,
            "AETHERIS_REDIS": self.redis,
            "AETHERIS_DATA": str(self.folder / folder),
            "AETHERIS_DEV": "1",
            "AETHERIS_PARTITIONS": str(PARTITIONS),
            "AETHERIS_SESSION_TIMEOUT_S": str(session_timeout_s),
            "AETHERIS_HEALTH_PORT": str(port),
            "AETHERIS_HTTP_PORT": str(free_port()),
            "AETHERIS_WORKER_ID": name,
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith("AETHERIS_")}
        process = spawn((sys.executable, "-m", f"aetheris.{service}"), log=log, env=kept | given)
        try:
            yield Process(process, log, port)
        finally:
            process.kill()
            process.wait()

    async def places(self, service: str, name: str) -> list[str]:
        """The member ids that a name has in its service's group."""
        found = await members(self.kafka, f"aetheris.{service}")
        return [member_id for member_id, its in found.items() if its == name]


@pytest.fixture
def world(kafka: str, valkey_url: str, tmp_path: Path) -> World:
    return World(kafka, valkey_url, tmp_path)


@pytest.mark.parametrize("service", SERVICES)
async def test_a_second_of_one_name_is_refused_and_the_first_keeps_its_place(world: World, service: str) -> None:
    name = fresh("twin")
    with world.started(service, "one", name) as first:
        until(first.ready, PATIENCE_S)
        places = await world.places(service, name)
        with world.started(service, "two", name) as second:
            assert second.refused()
        assert (await world.places(service, name), len(places)) == (places, 1)
        assert first.ready()
        assert "revoked" not in first.log.read_text()


@pytest.mark.parametrize("service", SERVICES)
def test_on_one_folder_the_lock_says_so(world: World, service: str) -> None:
    name = fresh("twin")
    with world.started(service, "one", name) as first:
        until(first.ready, PATIENCE_S)
        with world.started(service, "one", name) as second:
            assert second.refused()
        assert first.ready()


def test_of_two_that_start_at_once_one_lives(world: World) -> None:
    name = fresh("twin")
    with world.started("planner", "one", name) as one, world.started("planner", "two", name) as two:
        until(lambda: one.ended() or two.ended(), PATIENCE_S)
        lives, ended = (two, one) if one.ended() else (one, two)
        assert ended.refused()
        until(lives.ready, PATIENCE_S)


async def test_whose_place_was_taken_does_not_take_it_back(world: World) -> None:
    """By one that does not look first."""
    name = fresh("twin")
    with world.started("planner", "one", name) as first:
        until(first.ready, PATIENCE_S)
        log = KafkaLog(world.kafka)
        await log.start()
        rival = log.membership(GROUP, name, INPUTS.topics)
        gained: list[frozenset[int]] = []

        async def gains(numbers: frozenset[int]) -> None:
            gained.append(numbers)

        await rival.start(gains, gains)
        try:
            assert await asyncio.to_thread(first.refused)
            assert len(await world.places("planner", name)) == 1
        finally:
            await rival.stop()
            await log.stop()


@pytest.mark.parametrize("service", SERVICES)
async def test_a_successor_on_the_folder_of_one_that_was_killed_waits_for_no_session(
    world: World, service: str
) -> None:
    """The session is longer than this test waits."""
    name = fresh("killed")
    with world.started(service, "one", name, 300.0) as first:
        until(first.ready, PATIENCE_S)
        places = await world.places(service, name)
        first.process.kill()
        first.process.wait()
    assert await world.places(service, name) == places, "the broker has not missed it"
    with world.started(service, "one", name, 300.0) as second:
        until(second.ready, PATIENCE_S)


async def test_a_successor_elsewhere_waits_for_the_session_of_one_that_was_killed(world: World) -> None:
    name = fresh("killed")
    with world.started("ledger", "one", name) as first:
        until(first.ready, PATIENCE_S)
        places = await world.places("ledger", name)
        first.process.kill()
        first.process.wait()
    with world.started("ledger", "two", name) as second:
        until(second.ready, PATIENCE_S)
        assert places[0] not in await world.places("ledger", name)
