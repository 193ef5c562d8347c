"""`python -m aetheris.console`."""

import sys

import aetheris.http_server.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.console.app import serve
from aetheris.console.settings import ConsoleSettings
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load

if __name__ == "__main__":
    sys.exit(lifecycle.run(lambda stop: serve(load(ConsoleSettings), stop), service="console"))
