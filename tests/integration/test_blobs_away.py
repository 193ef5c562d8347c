"""A store of blobs that is away: in the one partition that all jobs share, only those that need it wait."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from aetheris.cli.embedded.doctor import examine
from tests.testkit.external_server import until
from tests.testkit.rig import TOOLS, Rig, running_rig
from tests.testkit.system import System

pytestmark = [pytest.mark.nightly, pytest.mark.real]

LARGE = 200_000


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    env = {"AETHERIS_TOOLS": f"tests.testkit.wide_tools,{TOOLS}", "AETHERIS_PARTITIONS": "1"}
    with running_rig(tmp_path_factory.mktemp("away"), env) as rig:
        yield rig


@contextmanager
def away(system: System) -> Generator[None]:
    """A file lies where the folder was: nothing can be read there, nor written."""
    blobs, aside = system.data / "blobs", system.data / "blobs.aside"
    blobs.mkdir(exist_ok=True)
    blobs.rename(aside)
    blobs.touch()
    try:
        yield
    finally:
        blobs.unlink()
        aside.rename(blobs)


def test_a_large_result_waits_for_the_store_and_nobody_waits_for_it(system: System) -> None:
    with away(system):
        waits = system.submit({"id": "a", "tool": "wide", "args": {"size": LARGE}})
        until(lambda: any(not one.ok and "blobs is away" in one.detail for one in examine(system.data)), 30)
        _others_go_on(system)
        assert system.job(waits)["status"] == "running"
    system.wait_ended([waits])
    assert system.job(waits)["status"] == "completed"
    system.verified(waits)


def test_a_humans_large_answer_waits_for_the_store_and_nobody_waits_for_it(system: System) -> None:
    job = system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": "blobs-away"}})
    system.wait_status(job, "waiting")
    with away(system):
        answer = system.resolve(job, "a", "happened", "seen", result={"text": "x" * LARGE})
        assert answer.status_code in (200, 202), answer.text
        _others_go_on(system)
    system.wait_ended([job])
    assert system.job(job)["status"] == "completed"


def test_arguments_and_seals_wait_for_the_store_and_nobody_waits_for_them(system: System) -> None:
    first = {"id": "a", "tool": "wide", "args": {"size": LARGE}}
    hold = {"id": "b", "tool": "poke_pure", "args": {"tag": "hold", "delay_s": 6}}
    last = {"id": "c", "tool": "take", "args": {"text": {"$ref": "a#/text"}}, "depends_on": ["a", "b"]}
    jobs = [system.submit(first, hold, last), system.submit(first, hold)]
    until(lambda: all(_has(system, job, "node_finished", "a") for job in jobs), 30)
    with away(system):
        until(lambda: system.job(jobs[1]).get("status") == "completed", 60)
        _others_go_on(system)
        assert system.job(jobs[0])["status"] == "running"
    system.wait_ended(jobs)
    assert {system.job(job)["status"] for job in jobs} == {"completed"}
    for job in jobs:
        system.verified(job)


def _others_go_on(system: System) -> None:
    others = [system.submit({"id": "a", "tool": "wide", "args": {"size": 3}}) for _ in range(10)]
    system.wait_ended(others, 20)


def _has(system: System, job: str, what: str, node: str) -> bool:
    return any(body["node_id"] == node for body in system.data_of(job, what))
