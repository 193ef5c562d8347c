"""The real appender, pump and reader over simulated brokers: what they promise holds; without a rule it is caught."""

from pathlib import Path

import pytest

from aetheris.testkit.simulation.ablations import Ablation
from aetheris.testkit.simulation.brokers.__main__ import explained, main
from aetheris.testkit.simulation.brokers.ablations import ABLATIONS
from aetheris.testkit.simulation.brokers.run import simulate_brokers
from aetheris.testkit.simulation.outcome import RunOutcome

SEEDS = 100
TABLE = Path(__file__).parents[2] / "docs/simulation.md"


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
        found = _caught(ablation)
    assert found is not None, f"{ablation.name} was not caught within {ablation.caught_within} seeds"
    row = f"| {ablation.rule} | {found.seed} |"
    assert row in TABLE.read_text(), f"{ablation.name}: caught by seed {found.seed}: {found.broken}"


def test_a_seed_gives_the_same_run_again() -> None:
    assert simulate_brokers(7) == simulate_brokers(7)


def test_a_failing_seed_says_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from", "3", "--seeds", "2", "--processes", "1"]) == 0
    assert "2 seeds held" in capsys.readouterr().out
    with ABLATIONS[0].applied():
        found = _caught(ABLATIONS[0])
    assert found is not None
    assert f"--from {found.seed} --seeds 1" in explained(found)


def _caught(ablation: Ablation) -> RunOutcome | None:
    outcomes = (simulate_brokers(seed) for seed in range(ablation.caught_within))
    return next((outcome for outcome in outcomes if outcome.broken), None)
