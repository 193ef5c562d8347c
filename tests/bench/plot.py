"""The plot of a run: drawn by matplotlib in the peers' environment."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aetheris.cli.embedded.errors import EmbeddedError
from tests.bench.environment import Environment
from tests.bench.medians import Found, spread
from tests.bench.systems import Entry

_PANELS = (
    ("W1: steps per second, 100 jobs in flight (more is better)", ("W1", "steps_per_s")),
    ("W2: ms between steps, one job at a time, p50 (less is better)", ("W2", "between_steps_ms", "p50")),
    ("W3: steps per second of one job of 5,000 (more is better)", ("W3x5", "steps_per_s")),
    ("W4: seconds for 200 parallel steps (less is better)", ("W4", "wall_s")),
    ("W5: seconds from the kill to the end of the last job (less is better)", ("W5", "kill_to_done_s")),
    ("W6: ms a step of a workflow of 1,000 (less is better)", ("W6", "ms_per_step")),
)


def panels(found: Found, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """What is drawn: a panel for each workload that was measured. The floor would dwarf what is compared."""
    compared = [entry for entry in entries if entry.name != "floor"]
    drawn = [{"title": title, "bars": _bars(found, compared, path)} for title, path in _PANELS]
    return [panel for panel in drawn if panel["bars"]]


def draw(found: Found, entries: Sequence[Entry], to: Path, environment: Environment) -> None:
    """Write the SVG.

    Raises: EmbeddedError.
    """
    asked = json.dumps({"panels": panels(found, entries), "to": str(to)})
    done = subprocess.run(environment.worker("plot"), input=asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmbeddedError("The plot could not be drawn", f"It said: {done.stderr.strip()[-300:]}")


def _bars(found: Found, entries: Sequence[Entry], path: tuple[str, ...]) -> list[tuple[str, float]]:
    known = ((entry.title.strip("*").partition(":")[0], spread(found, entry.name, *path)) for entry in entries)
    return [(title, one.median) for title, one in known if one is not None]
