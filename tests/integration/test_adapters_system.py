"""The same refund agent in other frameworks: killed, and repeating itself (docs/adapters.md)."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.framework_agents import (
    PATIENCE_S,
    FrameworkRig,
    example_of,
    killed_agent,
    running_framework_rig,
    type_errors,
)
from tests.testkit.refund_agent_tools import UNSURE

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(900)]

IN_THE_GATE = ("langchain", "openai_agents")
FRAMEWORKS = (*IN_THE_GATE, "google_adk", "strands", "agent_framework", "smolagents", "crewai")
KILLS, KILLS_IN_THE_GATE = 50, 4


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[FrameworkRig]:
    with running_framework_rig(tmp_path_factory.mktemp("adapters")) as rig:
        yield rig


def each(gate: bool = True) -> list[object]:
    """The frameworks; those that the gate has no time for are marked."""
    return [pytest.param(one, marks=[] if gate and one in IN_THE_GATE else [pytest.mark.full]) for one in FRAMEWORKS]


@pytest.mark.parametrize("name", IN_THE_GATE)
def test_an_agent_is_killed_and_each_effect_is_there_once(rig: FrameworkRig, name: str) -> None:
    killed_agent(rig, name, KILLS_IN_THE_GATE)


@pytest.mark.parametrize("name", each(gate=False))
def test_an_agent_is_killed_fifty_times_and_each_effect_is_there_once(rig: FrameworkRig, name: str) -> None:
    killed_agent(rig, name, KILLS)


@pytest.mark.parametrize("name", each())
def test_a_model_that_repeats_what_nobody_is_sure_of_has_one_effect(rig: FrameworkRig, name: str) -> None:
    order = fresh(UNSURE)
    assert rig.run(name, order) == "It is done."
    assert rig.counted(order) == [1, 1]
    assert rig.told(order).count("A human decides") == 3


@pytest.mark.parametrize("name", each(gate=False))
def test_a_call_that_goes_on_suspends_the_run_and_nothing_further_is_called(
    rig: FrameworkRig, name: str, tmp_path: Path
) -> None:
    order, script = fresh("o"), tmp_path / "agent.py"
    impatient = example_of(name).read_text().replace("RunTools([", "RunTools(patience_s=1, tools=[")
    script.write_text(impatient)
    held = rig.external.hold("refund")
    with rig.started(name, order, script) as agent:
        _, errors = agent.communicate(timeout=PATIENCE_S)
    held.unlink()
    assert (agent.returncode != 0, "RunSuspended: job " in errors) == (True, True), errors
    assert rig.counted(order) == [1, 0]
    assert rig.run(name, order) == "It is done."
    assert rig.counted(order) == [1, 1]


@pytest.mark.parametrize("name", each(gate=False))
def test_the_types_of_an_adapter_and_of_its_example_fit_the_framework_s(name: str, tmp_path: Path) -> None:
    assert type_errors(name, tmp_path) == ""
