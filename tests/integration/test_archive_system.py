"""Jobs of a running system are archived, and found by whoever restarts. Real parts."""

from collections.abc import Generator
from pathlib import Path

import pytest

from aetheris.cli import judgement
from aetheris.proofs import bundle
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("archive"), {"AETHERIS_ARCHIVE_AFTER_DAYS": "0"}) as rig:
        yield rig


def bundles(rig: Rig, job_id: str) -> list[Path]:
    return list((rig.system.data / "blobs" / "archive").glob(f"*/*/{job_id}.*.zip"))


def test_jobs_of_a_running_system_are_archived_each_once_whoever_is_killed(rig: Rig) -> None:
    system = rig.system
    first = system.completed(poke("one", fresh("archive")), poke("two", fresh("archive"), "one"))
    system.wait_sealed(first)
    until(lambda: bool(bundles(rig, first)), 60)
    system.kill("verifier-0")
    system.wait_ready()
    second = system.completed(poke("one", fresh("archive")))
    until(lambda: bool(bundles(rig, second)), 60)
    keys = judgement.trusted_keys(None, system.data)
    for job_id in (first, second):
        [path] = bundles(rig, job_id)
        assert bundle.judge(path.read_bytes(), keys)["ok"]
