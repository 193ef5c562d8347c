"""Workflows on the whole system: counted outside, killed, taken over, and every job's proof holds."""

from collections.abc import Generator

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.external_flows import flow_node
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

MODULES = "tests.testkit.external_tools,tests.testkit.external_flows"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("workflows"), {"AETHERIS_TOOLS": MODULES}) as rig:
        yield rig


def test_a_workflow_runs_to_its_end_and_its_proof_holds(rig: Rig) -> None:
    tag = fresh("flow")
    job = rig.system.submit(flow_node("w", "chain", {"tag": tag, "steps": 12}))
    rig.system.wait_ended([job])
    view = rig.system.job(job)
    assert (view["status"], view["result"]) == ("completed", {"w": 12}), view
    assert [rig.external.count(f"{tag}-{number}") for number in range(12)] == [1] * 12
    rig.system.verified(job)
