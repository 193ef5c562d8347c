"""`python -m aetheris.notifier`."""

import sys
from asyncio import Event

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.notifier.app import serve
from aetheris.notifier.settings import NotifierSettings
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load


async def _main(stop: Event) -> None:
    await serve(load(NotifierSettings), stop)


if __name__ == "__main__":
    sys.exit(lifecycle.run(_main, service="notifier"))
