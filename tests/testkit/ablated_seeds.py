"""The tables of docs/simulation.md: a rule that is left out, and the first seed that catches it."""

import re

from aetheris.testkit.simulation.ablations import Ablation
from tests.testkit.system import REPOSITORY


def told_seed(ablation: Ablation) -> int:
    """The seed in its row.

    Raises AssertionError where no row, or more than one, has its rule.
    """
    page = (REPOSITORY / "docs/simulation.md").read_text()
    seeds = re.findall(rf"^\| {re.escape(ablation.rule)} \| (\d+) \|$", page, flags=re.MULTILINE)
    assert len(seeds) == 1, f"docs/simulation.md has {len(seeds)} rows of: {ablation.rule}"
    return int(seeds[0])
