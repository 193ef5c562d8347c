"""Draws what it reads as JSON on standard input: {"panels": [{"title", "bars": [[name, value]]}], "to": path}."""

import json
import sys

import matplotlib as mpl
from matplotlib import pyplot

OURS, THEIRS = "#0b6e4f", "#5b7db1"


def main() -> None:
    """A panel for each workload, a bar for each system; the same figures give the same bytes."""
    asked = json.load(sys.stdin)
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "aetheris", "svg.fonttype": "none", "font.size": 8})
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    panels = asked["panels"]
    figure, places = pyplot.subplots(len(panels), 1, figsize=(7.5, 2.1 * len(panels)), squeeze=False)
    for panel, axes in zip(panels, places[:, 0], strict=True):
        names = [name for name, _ in panel["bars"]]
        drawn = axes.barh(names, [value for _, value in panel["bars"]], color=[_colour(name) for name in names])
        axes.bar_label(drawn, fmt=_number, padding=3)
        axes.set_title(panel["title"], loc="left")
        axes.invert_yaxis()
        axes.margins(x=0.12)
    figure.tight_layout()
    figure.savefig(asked["to"], metadata={"Date": None})


def _colour(name: str) -> str:
    return OURS if name.startswith("Aetheris") else THEIRS


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
