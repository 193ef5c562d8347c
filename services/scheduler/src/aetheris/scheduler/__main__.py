"""`python -m aetheris.scheduler`."""

import sys
from asyncio import Event

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load
from aetheris.scheduler.app import serve
from aetheris.scheduler.settings import SchedulerSettings


async def _main(stop: Event) -> None:
    await serve(load(SchedulerSettings), stop)


if __name__ == "__main__":
    sys.exit(lifecycle.run(_main, service="scheduler"))
