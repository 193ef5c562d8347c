"""`python -m aetheris.archiver`."""

import sys
from asyncio import Event

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.archiver.app import serve
from aetheris.archiver.settings import ArchiverSettings
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load


async def _main(stop: Event) -> None:
    await serve(load(ArchiverSettings), stop)


if __name__ == "__main__":
    sys.exit(lifecycle.run(_main, service="archiver"))
