"""`aetheris chaos`: the promise, attacked."""

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli.console import (
    CommandError,
    Exit,
    Json,
    end,
    errors_as_exits,
    fields,
    print_json,
    print_json_line,
    progress,
)
from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.rigs.chaos import report
from aetheris.rigs.chaos.campaign import Campaign, CampaignSettings, OtherSettingsError
from aetheris.rigs.chaos.runner import run
from aetheris.sdk.client import ApiError


def chaos(
    *,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs of four steps, one of each effect class.")] = 200,
    kills: Annotated[int, typer.Option(min=0, help="Faults of every kind.")] = 100,
    seed: Annotated[int, typer.Option(help="The same seed gives the same schedule of faults.")] = 7,
    seeds: Annotated[int, typer.Option(min=1, help="So many seeds, from --seed on, each a run of its own.")] = 1,
    brokers: Annotated[int, typer.Option(min=1, max=5, help="Kafka brokers; several are a cluster.")] = 1,
    data: Annotated[
        Path | None,
        typer.Option(help="An empty folder to keep, or that of earlier --seeds, to go on; a temporary one by default."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Hurt a system of its own in every way, and count the effects outside."""
    with errors_as_exits(as_json=as_json), tempfile.TemporaryDirectory(prefix="aetheris-chaos-") as temporary:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells of each outage that we make
        if seeds > 1:
            context = CampaignSettings(jobs=jobs, kills=kills, brokers=brokers)
            _campaign(Campaign(data or Path(temporary), context), range(seed, seed + seeds), as_json=as_json)
            return
        folder = _empty(data) if data is not None else Path(temporary)
        try:
            outcome = run(folder, jobs=jobs, kills=kills, seed=seed, progress=progress, brokers=brokers)
        except (ApiError, TimeoutError) as error:
            raise CommandError(Exit.FAILED, "chaos_failed", f"{type(error).__name__}: {error}") from None
    if as_json:
        print_json(report.as_json(outcome, seed=seed, jobs=jobs))
    else:
        fields(list(report.lines(outcome, seed=seed, jobs=jobs)))
    end(Exit.HOLDS if outcome.verdict.holds else Exit.FAILED)


def _campaign(campaign: Campaign, seeds: range, *, as_json: bool) -> None:
    """A line for each seed, or its report; what could not be run to its end is no seed that holds.

    Raises:
        CommandError: the folder is another campaign's.
    """
    context, holds = campaign.terms, True

    def one(folder: Path, seed: int) -> Mapping[str, Any]:
        try:
            outcome = run(
                folder, jobs=context.jobs, kills=context.kills, seed=seed, progress=progress, brokers=context.brokers
            )
        except (ApiError, TimeoutError, EmbeddedError) as error:
            return {"holds": False, "seed": seed, "failed_to_run": f"{type(error).__name__}: {error}"}
        return report.as_json(outcome, seed=seed, jobs=context.jobs)

    try:
        for seed, found in campaign.go(seeds, one):
            holds = holds and found["holds"]
            if as_json:
                print_json_line(found)
            else:
                fields([(f"seed {seed}", report.in_short(found))])
    except OtherSettingsError as error:
        raise CommandError(Exit.BAD_INPUT, "other_campaign", str(error), field="--data") from None
    end(Exit.HOLDS if holds else Exit.FAILED)


def _empty(data: Path) -> Path:
    """What ran there before would be counted.

    Raises:
        CommandError: it isn't empty.
    """
    data.mkdir(parents=True, exist_ok=True)
    if any(data.iterdir()):
        raise CommandError(Exit.BAD_INPUT, "not_empty", f"{data} is not empty", field="--data")
    return data.resolve()
