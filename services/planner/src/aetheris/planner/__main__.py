"""`python -m aetheris.planner`."""

import sys

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.planner.app import serve
from aetheris.planner.settings import PlannerSettings
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load

if __name__ == "__main__":
    sys.exit(lifecycle.run(lambda stop: serve(load(PlannerSettings), stop), service="planner"))
