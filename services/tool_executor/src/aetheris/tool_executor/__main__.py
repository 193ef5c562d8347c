"""`python -m aetheris.tool_executor`."""

import sys

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.runtime.process import lifecycle
from aetheris.tool_executor.app import NAME, serve
from aetheris.tool_executor.settings import ExecutorSettings

if __name__ == "__main__":
    settings = lifecycle.settings_for(ExecutorSettings, service=NAME)
    deadline_s = settings.drain_s + settings.tool_drain_s + 5.0
    sys.exit(lifecycle.run(lambda stop: serve(settings, stop), service=NAME, stop_deadline_s=deadline_s))
