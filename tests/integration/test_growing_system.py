"""More partitions while jobs are under way: nothing moves, a token is one job across it, and nothing happens twice.

Services are killed around each growth. Effects are counted outside, and all that ended is sealed and verified after it.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from aiokafka.admin import NewPartitions
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.console import CommandError
from aetheris.cli.growth import GrowingInstallation
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobPlaced
from aetheris.protocol.messages.envelope import read_barrier
from aetheris.runtime.kafka.admin import Admin, partition_counts
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig, wait

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]

SEED = 20
FIRST = 4
JOBS = 30
_BIRTH = b"io.aetheris.job_created.v1"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("growing"), executor=2) as found:
        yield found


def steps(tag: str) -> list[dict[str, Any]]:
    return [poke(f"s{at}", f"{tag}/{at}", *([f"s{at - 1}"] if at else []), delay_s=0.2) for at in range(3)]


def submit(rig: Rig, token: str) -> str:
    """By a client that insists: the same request under the same token, until it is answered."""
    found: list[str] = []

    def answered() -> bool:
        try:
            answer = rig.system.api.post(
                "/jobs", json={"plan": {"nodes": steps(token)}}, headers={"Idempotency-Key": token}
            )
        except Exception:  # noqa: BLE001  its gateway was killed
            return False
        assert answer.status_code in (200, 202, 503), answer.text
        found.extend([answer.json()["job_id"]] if answer.status_code != 503 else [])
        return bool(found)

    until(answered, 60)
    return found[0]


def grow(rig: Rig, count: int) -> tuple[int, dict[str, Any]]:
    ran = CliRunner().invoke(app, ["topics", "grow", str(count), "--data", str(rig.system.data), "--json"])
    return ran.exit_code, json.loads(ran.stdout)


def births(rig: Rig) -> dict[str, list[int]]:
    """Job → the partitions that hold a creation of it."""
    found: dict[str, list[int]] = defaultdict(list)
    for record in rig.system.records(Topic.JOBS_EVENTS):
        if record.header("ce_type") == _BIRTH:
            found[(record.key or b"").decode()].append(record.partition)
    return found


def counts(rig: Rig) -> dict[str, int]:
    return {name: count for name, (count, _) in asyncio.run(partition_counts(rig.system.state().kafka)).items()}


@pytest.mark.timeout(600)
def test_partitions_are_added_twice_while_jobs_run_and_services_die(rig: Rig) -> None:
    system, chance = rig.system, Random(SEED)  # noqa: S311  replayable
    old = [fresh(f"old-{number}") for number in range(JOBS)]
    jobs = {token: submit(rig, token) for token in old}
    before = {job_id: where for job_id, where in births(rig).items() if job_id in jobs.values()}
    asked = system.submit(wait("w", "go"), poke("after", fresh("after"), "w"))
    with ThreadPoolExecutor(4) as clients:
        for growth, count in enumerate((7, 16)):
            growing = clients.submit(grow, rig, count)
            tokens = [fresh(f"new-{growth}-{number}") for number in range(JOBS)]
            repeated = [*tokens, *tokens, *chance.sample(sorted(jobs), JOBS // 2)]
            chance.shuffle(repeated)
            answers = [(token, clients.submit(submit, rig, token)) for token in repeated]
            for name in chance.sample(("planner-0", "ledger-0", "executor-0", "executor-1", "gateway-0"), 3):
                system.kill(name)
            for token, answer in answers:
                assert jobs.setdefault(token, answer.result()) == answer.result(), token
            system.kill("planner-0")
            code, said = growing.result()
            assert (code, len(said.get("grown", ()))) == (0, 20), said
    assert len(set(jobs.values())) == len(jobs) == 3 * JOBS
    system.wait_ready(120)
    system.wait_ended(jobs.values(), 180)
    later = [system.submit(*steps(fresh("later"))) for _ in range(JOBS)]
    assert system.signal(asked, "go").status_code in (200, 202)
    system.wait_ended([*later, asked], 120)
    _is_whole(rig, [*jobs.values(), *later, asked])
    where = births(rig)
    assert {job_id: where[job_id] for job_id in before} == before
    assert max(number for job_id in later for number in where[job_id]) >= FIRST
    assert any(isinstance(read_barrier(one), JobPlaced) for one in system.records(Topic.JOBS_EVENTS))


def _is_whole(rig: Rig, jobs: list[str]) -> None:
    """Each lies in one partition, all its steps had their effect once, it is sealed, and holds."""
    system, where = rig.system, births(rig)
    assert {job_id: len(set(where[job_id])) for job_id in jobs} == dict.fromkeys(jobs, 1)
    assert [job_id for job_id in jobs if system.job(job_id)["status"] != "completed"] == []
    mine = Counter(one["key"] for one in rig.external.effects() if one["key"].split(":")[1] in jobs)
    assert sum(mine.values()) == len(mine) == 3 * (len(jobs) - 1) + 1
    for job_id in jobs:
        system.wait_sealed(job_id)
        assert system.verified(job_id)["seal"]["ok"]


def test_a_job_of_a_later_partition_is_told_what_others_are(rig: Rig) -> None:
    """Held, let go, read from Kafka alone, and undone, as any."""
    system = rig.system
    grow(rig, 16)
    held = [system.submit(wait("w", "go"), poke("after", fresh("held"), "w")) for _ in range(8)]
    for job_id in held:
        system.wait_status(job_id, "waiting")
    where = births(rig)
    placed = next(job_id for job_id in held if where[job_id][0] >= FIRST)
    assert system.api.post(f"/jobs/{placed}/pause", json={}).status_code in (200, 202)
    system.wait_status(placed, "paused")
    assert system.api.post(f"/jobs/{placed}/resume", json={}).status_code in (200, 202)
    system.wait_status(placed, "waiting")
    system.kill("gateway-0")
    system.wait_ready()
    for job_id in held:
        system.signal(job_id, "go")
    system.wait_ended(held)
    system.wait_sealed(placed)
    ran = CliRunner().invoke(app, ["verify", placed, "--from-log", "--data", str(system.data), "--json"])
    assert ran.exit_code == 0, ran.stdout
    assert json.loads(ran.stdout)["ok"]
    assert system.api.get(f"/jobs/{placed}/effects").status_code == 200


def test_there_are_never_fewer(rig: Rig) -> None:
    grow(rig, 16)
    code, said = grow(rig, FIRST)
    assert (code, said["error"]["code"]) == (2, "cannot_shrink"), said
    assert grow(rig, 16)[1]["grown"] == []
    found = counts(rig)
    assert (found[Topic.JOBS_EVENTS], found[Topic.JOBS_INDEX], found[Topic.FREEZES]) == (16, FIRST, 1)


def test_two_who_grow_at_once_come_to_the_larger(rig: Rig) -> None:
    installation = GrowingInstallation(rig.system.state().kafka)

    async def both() -> list[list[str] | BaseException]:
        return list(await asyncio.gather(installation.grow(18), installation.grow(20), return_exceptions=True))

    told = asyncio.run(both())
    assert {one.code for one in told if isinstance(one, CommandError)} <= {"cannot_shrink"}, told
    assert any(isinstance(one, list) for one in told), told
    until(lambda: counts(rig)[Topic.JOBS_EVENTS] == counts(rig)[Topic.JOBS_COMMANDS] == 20, 30)


def test_what_grew_in_part_is_served_as_far_as_all_did_and_grows_on(rig: Rig) -> None:
    """Somebody dies between two topics: as if there were no more yet; the next one goes on from there."""

    async def half() -> None:
        async with Admin(rig.system.state().kafka, None) as admin:
            await admin.create_partitions({str(Topic.JOBS_EVENTS): NewPartitions(total_count=24)})

    grow(rig, 20)
    asyncio.run(half())
    rig.system.kill("planner-0")
    rig.system.kill("ledger-0")
    rig.system.wait_ready()
    jobs = [rig.system.submit(*steps(fresh("half"))) for _ in range(10)]
    rig.system.wait_ended(jobs)
    assert max(number for job_id in jobs for number in births(rig)[job_id]) < 20
    assert (grow(rig, 24)[0], counts(rig)[Topic.JOBS_COMMANDS]) == (0, 24)
