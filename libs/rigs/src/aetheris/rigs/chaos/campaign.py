"""Seeds, one after the other, in a folder that remembers what came of each: an interrupted campaign goes on there."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.errors import NotRunningError
from aetheris.rigs.chaos.system import release_disk

STATE = "campaign.json"

Run = Callable[[Path, int], Mapping[str, Any]]
"""Runs one seed in a folder; its report, with `holds`."""


class OtherSettingsError(Exception):
    """What is there was begun with other numbers; its seeds would not compare."""


class CampaignSettings(BaseModel):
    """What every seed of a campaign has in common."""

    model_config = ConfigDict(frozen=True)

    jobs: int
    kills: int
    brokers: int


class _State(BaseModel):
    terms: CampaignSettings
    reports: dict[int, dict[str, Any]] = {}


@dataclass(frozen=True)
class Campaign:
    """The seeds of a folder."""

    folder: Path
    terms: CampaignSettings

    def go(self, seeds: range, run: Run) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Each seed with its report, run where it has not been yet; the folder of one that holds is removed.

        Raises:
            OtherTermsError.
        """
        state = self._load()
        for seed in seeds:
            if seed not in state.reports:
                own = self.folder / f"seed-{seed}"
                _clear(own)
                state.reports[seed] = dict(run(own, seed))
                self._save(state)
                if state.reports[seed]["holds"]:
                    _clear(own)
            yield seed, state.reports[seed]

    def _load(self) -> _State:
        try:
            state = _State.model_validate_json((self.folder / STATE).read_text())
        except FileNotFoundError:
            return _State(terms=self.terms)
        except ValidationError:
            raise OtherSettingsError(f"{self.folder / STATE} is no campaign's") from None
        if state.terms != self.terms:
            raise OtherSettingsError(f"{self.folder} was begun with {state.terms}")
        return state

    def _save(self, state: _State) -> None:
        """Whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f"{STATE}.new"
        fresh.write_text(state.model_dump_json(indent=1))
        os.replace(fresh, self.folder / STATE)


def _clear(folder: Path) -> None:
    """End what an interrupted run has left running there, and remove it."""
    with suppress(NotRunningError):
        lifecycle.down(folder)
    release_disk(folder)
    shutil.rmtree(folder, ignore_errors=True)
