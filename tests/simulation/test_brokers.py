"""The real appender, pump and reader over simulated brokers: what they promise holds; without a rule it is caught."""

import pytest

from aetheris.testkit.simulation.ablations import Ablation
from aetheris.testkit.simulation.brokers.__main__ import explained, main
from aetheris.testkit.simulation.brokers.ablations import ABLATIONS
from aetheris.testkit.simulation.brokers.run import simulate_brokers
from tests.testkit.ablated_seeds import told_seed

pytestmark = pytest.mark.timeout(600)  # pure CPU: a busy machine has little

SEEDS = 100


def test_what_is_promised_of_the_log_holds() -> None:
    faults, records = 0, 0
    for seed in range(SEEDS):
        outcome = simulate_brokers(seed)
        assert not outcome.broken, explained(outcome)
        faults, records = faults + outcome.faults, records + outcome.records
    assert faults > 4 * SEEDS
    assert records > 100 * SEEDS


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
def test_without_a_rule_it_is_caught(ablation: Ablation) -> None:
    with ablation.applied():
        assert simulate_brokers(told_seed(ablation)).broken, f"{ablation.name} is first caught by {_first(ablation)}"


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
def test_no_seed_before_the_one_that_is_told_catches_it(ablation: Ablation) -> None:
    with ablation.applied():
        assert _first(ablation) == told_seed(ablation)


def test_a_seed_gives_the_same_run_again() -> None:
    assert simulate_brokers(7) == simulate_brokers(7)


def test_a_failing_seed_says_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from", "3", "--seeds", "2", "--processes", "1"]) == 0
    assert "2 seeds held" in capsys.readouterr().out
    seed = told_seed(ABLATIONS[0])
    with ABLATIONS[0].applied():
        found = simulate_brokers(seed)
    assert found.broken
    assert f"--from {seed} --seeds 1" in explained(found)


def _first(ablation: Ablation) -> int | None:
    """The first seed that catches it; called while the rule is left out."""
    return next((seed for seed in range(ablation.caught_within) if simulate_brokers(seed).broken), None)
