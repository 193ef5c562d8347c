"""Several seeds of chaos: interrupted, they go on where they were."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aetheris.rigs.chaos.campaign import STATE, Campaign, CampaignSettings, OtherSettingsError
from aetheris.rigs.chaos.report import in_short

TERMS = CampaignSettings(jobs=1, kills=1, brokers=1)


class Runs:
    """Runs that leave something in their folders; seed 3 does not hold, and `interrupted` never comes back."""

    def __init__(self, interrupted: int | None = None) -> None:
        self.seeds: list[int] = []
        self._interrupted = interrupted

    def __call__(self, folder: Path, seed: int) -> Mapping[str, Any]:
        assert not folder.exists()
        folder.mkdir(parents=True)
        (folder / "left").touch()
        if seed == self._interrupted:
            raise KeyboardInterrupt
        self.seeds.append(seed)
        return {"holds": seed != 3}


def test_what_was_interrupted_goes_on_with_the_seed_that_it_was_at(tmp_path: Path) -> None:
    first, second, campaign = Runs(interrupted=4), Runs(), Campaign(tmp_path, TERMS)
    with pytest.raises(KeyboardInterrupt):
        list(campaign.go(range(2, 6), first))
    found = list(campaign.go(range(2, 7), second))
    assert (first.seeds, second.seeds) == ([2, 3], [4, 5, 6])
    assert found == [(seed, {"holds": seed != 3}) for seed in range(2, 7)]
    assert sorted(one.name for one in tmp_path.iterdir()) == [STATE, "seed-3"]


@pytest.mark.parametrize("state", ["no state", '{"terms": {"jobs": 2, "kills": 1, "brokers": 1}, "reports": {}}'])
def test_another_campaigns_folder_is_refused(tmp_path: Path, state: str) -> None:
    (tmp_path / STATE).write_text(state)
    with pytest.raises(OtherSettingsError):
        list(Campaign(tmp_path, TERMS).go(range(1), Runs()))


def test_a_seed_that_could_not_be_run_says_so() -> None:
    assert in_short({"holds": False, "failed_to_run": "TimeoutError: x"}) == "DOES NOT HOLD: TimeoutError: x"
